"""settle: one outcome per run, recorded under its current lease and no other."""

from __future__ import annotations

from dibs.core.retry import jitter, retry_delay
from dibs.core.settings import Defaults
from dibs.core.states import Reason, State
from dibs.core.task import HISTORY_LIMIT, Failure, HistoryEvent, Lease, Outcome, Settlement
from dibs.core.times import HOUR, MINUTE, SECOND
from dibs.engines.figures import Counter
from dibs.engines.values import COMPLETED, Cancel, Extension, SettleAnswer, SettleOutcome
from dibs.testing.conformance.harness import WORKER, Harness, lease_of

DONE, ALREADY, REFUSED = SettleOutcome.DONE, SettleOutcome.ALREADY, SettleOutcome.REFUSED
FAILURE = Failure(type="ValueError", message="no such thing", traceback="Traceback …")


async def test_completed_with_its_result(harness: Harness) -> None:
    task = await harness.start()
    harness.later(SECOND)
    assert await harness.settle(task, result=b'{"sum":3}') is DONE
    record = await harness.record(task.id)
    assert (record.state, record.result, record.reason) == (State.COMPLETED, b'{"sum":3}', None)
    assert (record.started_at, record.finished_at) == (task.claimed_at, harness.now)
    assert (record.worker, record.lease, record.settled_lease, record.attempts) == (WORKER, *[task.lease] * 2, 0)
    assert record.lease_expires_at is None
    assert await harness.counts() == {State.COMPLETED: 1}
    assert await harness.engine.history(task.id) == [], "a clean run's row tells all"


async def test_no_result_and_a_null_result_differ(harness: Harness) -> None:
    nothing, null = await harness.start(), await harness.start()
    await harness.settle(nothing)
    await harness.settle(null, result=b"null")
    assert (await harness.record(nothing.id)).result is None
    assert (await harness.record(null.id)).result == b"null"


async def test_a_completed_task_is_done_entirely(harness: Harness) -> None:
    """What it last reported about its progress is over; one that reported nothing still reports nothing."""
    reported, silent = await harness.start(), await harness.start()
    extension = Extension(lease_of(reported), MINUTE, progress=0.67, message="two of three")
    await harness.engine.extend([extension], now=harness.now)
    await harness.settle(reported)
    await harness.settle(silent)
    done = await harness.record(reported.id)
    assert (done.progress, done.progress_message) == (1.0, "two of three")
    assert (await harness.record(silent.id)).progress is None


async def test_what_did_not_complete_keeps_its_progress(harness: Harness) -> None:
    task = await harness.start()
    await harness.engine.extend([Extension(lease_of(task), MINUTE, progress=0.5)], now=harness.now)
    await harness.settle(task, Outcome.PERMANENT)
    assert (await harness.record(task.id)).progress == 0.5


async def test_metadata_is_added_whatever_the_outcome(harness: Harness) -> None:
    for outcome in Outcome:
        task = await harness.start(queue=str(outcome), metadata={"a": 1, "b": 1})
        result = b"3" if outcome is Outcome.COMPLETED else None
        assert await harness.settle(task, outcome, metadata={"b": 2, "c": [3]}, result=result, delay=HOUR) is DONE
        record = await harness.record(task.id)
        assert record.spec.metadata == {"a": 1, "b": 2, "c": [3]}, outcome
        assert (record.settled_lease, record.result) == (task.lease, result)


async def test_metadata_of_one_completion_leaves_the_others_alone(harness: Harness) -> None:
    plain, told = await harness.start(metadata={"a": 1}), await harness.start(metadata={"a": 1})
    reports = [
        Settlement(lease=lease_of(plain), outcome=Outcome.COMPLETED, result=b"1"),
        Settlement(lease=lease_of(told), outcome=Outcome.COMPLETED, result=b"2", metadata={"a": 2}),
    ]
    assert await harness.engine.settle(reports, now=harness.now) == [COMPLETED, COMPLETED]
    first, second = await harness.records([plain.id, told.id])
    assert (first.spec.metadata, first.result) == ({"a": 1}, b"1")
    assert (second.spec.metadata, second.result) == ({"a": 2}, b"2")
    assert await harness.counts() == {State.COMPLETED: 2}
    assert await harness.engine.settle(reports, now=harness.now) == [SettleAnswer(ALREADY, State.COMPLETED)] * 2


async def test_metadata_of_a_lost_lease_is_refused(harness: Harness) -> None:
    task = await harness.start(metadata={"a": 1})
    assert await harness.settle(Lease(task.id, task.lease + 1), metadata={"a": 2}) is REFUSED
    assert (await harness.record(task.id)).spec.metadata == {"a": 1}


async def test_retry_waits_and_counts(harness: Harness) -> None:
    task = await harness.start()
    harness.later(SECOND)
    assert await harness.settle(task, Outcome.FAILED, delay=MINUTE, failure=FAILURE, note="soon") is DONE
    record = await harness.record(task.id)
    assert (record.state, record.due_at, record.attempts) == (State.RETRYING, harness.now + MINUTE, 1)
    assert (record.failure, record.worker, record.started_at) == (FAILURE, None, None)
    (entry,) = await harness.engine.history(task.id)
    assert (entry.event, entry.at, entry.lease) == (HistoryEvent.FAILED, harness.now, task.lease)
    assert entry.worker == WORKER
    assert (entry.failure, entry.note) == (FAILURE, "soon")
    assert await harness.counter(Counter.RETRIES) == 1
    assert await harness.counts() == {State.RETRYING: 1}


async def test_retry_is_claimed_again_with_the_next_lease(harness: Harness) -> None:
    task = await harness.start()
    await harness.settle(task, Outcome.FAILED, delay=MINUTE)
    harness.later(MINUTE - 1)
    assert await harness.claim() == []
    harness.later(1)
    (again,) = await harness.claim()
    assert again.lease > task.lease
    assert (again.id, again.attempts, again.attempt) == (task.id, 1, 2)


async def test_retry_without_delay_is_due_at_once(harness: Harness) -> None:
    task = await harness.start()
    await harness.settle(task, Outcome.FAILED)
    assert await harness.claim_ids() == [task.id]


async def test_timed_out_run_says_so(harness: Harness) -> None:
    task = await harness.start()
    await harness.settle(task, Outcome.FAILED, timed_out=True, failure=FAILURE)
    assert await harness.events(task.id) == [HistoryEvent.TIMED_OUT]


async def test_failed_attempts_lower_the_rank(harness: Harness) -> None:
    task = await harness.start(priority=50)
    await harness.settle(task, Outcome.FAILED)
    fresh = await harness.add(priority=49)
    assert await harness.claim_ids(2) == [fresh, task.id]


async def test_strict_queue_forgives_failures(harness: Harness) -> None:
    await harness.set_queue(policy="strict")
    task = await harness.start(priority=50)
    await harness.settle(task, Outcome.FAILED)
    fresh = await harness.add(priority=49)
    assert await harness.claim_ids(2) == [task.id, fresh]


async def test_dead_with_reason_and_failure(harness: Harness) -> None:
    task = await harness.start()
    harness.later(SECOND)
    assert await harness.settle(task, Outcome.PERMANENT, failure=FAILURE, note="enough") is DONE
    record = await harness.record(task.id)
    assert (record.state, record.reason, record.failure) == (State.DEAD, Reason.PERMANENT, FAILURE)
    assert (record.attempts, record.finished_at, record.note) == (1, harness.now, "enough")
    assert await harness.events(task.id) == [HistoryEvent.DEAD]
    assert await harness.counts() == {State.DEAD: 1}


async def test_the_last_failed_attempt_is_death(harness: Harness) -> None:
    task = await harness.start(options=Defaults(retries=2))
    for attempt in (1, 2):
        assert await harness.settle(task, Outcome.FAILED) is DONE
        assert (await harness.record(task.id)).attempts == attempt
        task = await harness.take(task.id)
    (answer,) = await harness.engine.settle([Settlement(lease=lease_of(task), outcome=Outcome.FAILED)], now=harness.now)
    assert answer == SettleAnswer(DONE, State.DEAD)
    record = await harness.record(task.id)
    assert (record.reason, record.attempts, record.note) == (Reason.EXHAUSTED, 3, "")
    assert await harness.events(task.id) == [HistoryEvent.FAILED, HistoryEvent.FAILED, HistoryEvent.DEAD]


async def test_a_failed_attempt_waits_as_its_options_say(harness: Harness) -> None:
    """The store decides when it runs again, and tells the worker."""
    task = await harness.start()
    settlement = Settlement(lease=lease_of(task), outcome=Outcome.FAILED, failure=FAILURE)
    (answer,) = await harness.engine.settle([settlement], now=harness.now)
    delay = retry_delay(task.options, 1, jitter(task.id, 0))
    assert answer == SettleAnswer(DONE, State.RETRYING, delay)
    assert (await harness.record(task.id)).due_at == harness.now + delay
    (again,) = await harness.engine.settle([settlement], now=harness.now + MINUTE)
    assert again.outcome is ALREADY


async def test_says_what_became_of_each_task(harness: Harness) -> None:
    await harness.add_many(len(Outcome))
    tasks = await harness.claim(len(Outcome))
    pairs = zip(tasks, Outcome, strict=True)
    reports = [Settlement(lease=lease_of(task), outcome=outcome, delay=SECOND) for task, outcome in pairs]
    answers = await harness.engine.settle(reports, now=harness.now)
    records = await harness.records([task.id for task in tasks])
    assert [answer.state for answer in answers] == [record.state for record in records]
    due = [None if answer.due_in is None else harness.now + answer.due_in for answer in answers]
    assert due == [record.due_at for record in records]


async def test_a_permanent_failure_asks_for_no_reason(harness: Harness) -> None:
    record = await harness.record(await harness.ended(Outcome.PERMANENT))
    assert (record.reason, record.note) == (Reason.PERMANENT, "")


async def test_cancelled_by_its_worker(harness: Harness) -> None:
    task = await harness.start()
    await harness.engine.act([Cancel(task.id, "not needed")], now=harness.now)
    assert await harness.settle(task, Outcome.CANCELLED) is DONE
    record = await harness.record(task.id)
    assert (record.state, record.reason, record.note) == (State.CANCELLED, Reason.USER, "not needed")
    assert await harness.events(task.id) == [HistoryEvent.CANCEL_REQUESTED, HistoryEvent.CANCELLED]


async def test_released_is_pending_at_once(harness: Harness) -> None:
    task = await harness.start()
    harness.later(SECOND)
    assert await harness.settle(task, Outcome.RELEASED) is DONE
    record = await harness.record(task.id)
    assert (record.state, record.attempts, record.losses, record.due_at) == (State.PENDING, 0, 0, None)
    assert (record.worker, record.lease_expires_at, record.ready_at) == (None, None, harness.now)
    assert await harness.events(task.id) == [HistoryEvent.RELEASED]
    assert await harness.claim_ids() == [task.id]


async def test_snoozed_is_scheduled(harness: Harness) -> None:
    task = await harness.start()
    assert await harness.settle(task, Outcome.SNOOZED, delay=HOUR) is DONE
    record = await harness.record(task.id)
    assert (record.state, record.attempts, record.due_at) == (State.SCHEDULED, 0, harness.now + HOUR)
    assert await harness.events(task.id) == [HistoryEvent.SNOOZED]
    harness.later(HOUR)
    assert await harness.claim_ids() == [task.id]


async def test_asked_to_cancel_it_does_not_come_back(harness: Harness) -> None:
    for outcome in (Outcome.FAILED, Outcome.RELEASED, Outcome.SNOOZED):
        task = await harness.start()
        await harness.engine.act([Cancel(task.id, "stop")], now=harness.now)
        assert await harness.settle(task, outcome, delay=SECOND) is DONE
        record = await harness.record(task.id)
        assert (record.state, record.note, record.due_at) == (State.CANCELLED, "stop", None)
    assert await harness.counts() == {State.CANCELLED: 3}


async def test_completion_wins_over_a_cancel_request(harness: Harness) -> None:
    task = await harness.start()
    await harness.engine.act([Cancel(task.id)], now=harness.now)
    assert await harness.settle(task, result=b"1") is DONE
    assert await harness.state(task.id) is State.COMPLETED


async def test_repeat_is_already(harness: Harness) -> None:
    for outcome in Outcome:
        task = await harness.start(queue=outcome.value)
        assert await harness.settle(task, outcome, delay=HOUR) is DONE
        before, history = await harness.record(task.id), await harness.engine.history(task.id)
        harness.later(SECOND)
        assert await harness.settle(task, outcome, delay=HOUR) is ALREADY
        assert await harness.record(task.id) == before
        assert await harness.engine.history(task.id) == history
        assert await harness.counter(Counter.REFUSED, outcome.value) == 0


async def test_repeat_is_already_while_the_next_run_is_under_way(harness: Harness) -> None:
    task = await harness.start()
    await harness.settle(task, Outcome.FAILED)
    await harness.take(task.id)
    assert await harness.settle(task, Outcome.FAILED) is ALREADY
    assert await harness.state(task.id) is State.RUNNING


async def test_another_outcome_under_a_settled_lease_changes_nothing(harness: Harness) -> None:
    task = await harness.start()
    await harness.settle(task, result=b"1")
    assert await harness.settle(task, Outcome.PERMANENT) is ALREADY
    assert await harness.state(task.id) is State.COMPLETED


async def test_zombie_settles_nothing_before_the_heir_runs(harness: Harness) -> None:
    zombie = await harness.start()
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    before = await harness.record(zombie.id)
    for outcome in Outcome:
        assert await harness.settle(zombie, outcome, delay=HOUR) is REFUSED
    assert await harness.record(zombie.id) == before
    assert await harness.counter(Counter.REFUSED) == len(Outcome)


async def test_zombie_settles_nothing_of_its_heir(harness: Harness) -> None:
    zombie = await harness.start()
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    (heir,) = await harness.claim(worker="heir")
    before = await harness.record(zombie.id)
    for outcome in Outcome:
        assert await harness.settle(zombie, outcome, delay=HOUR) is REFUSED
    assert await harness.record(zombie.id) == before
    assert await harness.settle(heir) is DONE
    assert (await harness.record(zombie.id)).worker == "heir"


async def test_refusal_is_remembered_while_unfinished(harness: Harness) -> None:
    zombie = await harness.start()
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    assert await harness.settle(zombie) is REFUSED
    assert await harness.events(zombie.id) == [HistoryEvent.LOST, HistoryEvent.REFUSED]
    refused = (await harness.engine.history(zombie.id))[-1]
    assert (refused.at, refused.lease) == (harness.now, zombie.lease)
    await harness.settle(await harness.take(zombie.id))
    assert await harness.settle(zombie) is REFUSED
    assert await harness.events(zombie.id) == [HistoryEvent.LOST, HistoryEvent.REFUSED]
    assert await harness.counter(Counter.REFUSED) == 2


async def test_unknown_task_and_future_lease_are_refused(harness: Harness) -> None:
    task = await harness.start()
    assert await harness.settle(Lease(harness.new_id(), 1)) is REFUSED
    assert await harness.settle(Lease(task.id, task.lease + 1)) is REFUSED
    assert await harness.state(task.id) is State.RUNNING


async def test_a_task_that_waits_can_not_be_settled(harness: Harness) -> None:
    task_id = await harness.add()
    for number in (0, 1):
        assert await harness.settle(Lease(task_id, number)) is REFUSED
    assert await harness.state(task_id) is State.PENDING


async def test_expired_lease_that_nobody_took_may_settle(harness: Harness) -> None:
    task = await harness.start()
    harness.later(HOUR)
    assert await harness.settle(task) is DONE
    assert (await harness.engine.rescue(now=harness.now)).ids == []


async def test_answers_in_the_order_asked(harness: Harness) -> None:
    await harness.add_many(6)
    tasks = await harness.claim(6)
    settlements = [
        Settlement(lease=lease_of(task), outcome=outcome, delay=SECOND)
        for task, outcome in zip(tasks, Outcome, strict=True)
    ]
    stale = Settlement(lease=Lease(tasks[0].id, tasks[0].lease + 1), outcome=Outcome.PERMANENT)
    answers = await harness.engine.settle([stale, *settlements, settlements[0]], now=harness.now)
    assert [answer.outcome for answer in answers] == [REFUSED, *[DONE] * 6, ALREADY]
    states = [record.state for record in await harness.engine.get([task.id for task in tasks]) if record]
    assert states == [
        State.COMPLETED,
        State.RETRYING,
        State.DEAD,
        State.CANCELLED,
        State.PENDING,
        State.SCHEDULED,
    ]


async def test_nothing_is_nothing(harness: Harness) -> None:
    assert await harness.engine.settle([], now=harness.now) == []


async def test_history_keeps_the_newest(harness: Harness) -> None:
    task = await harness.start()
    rounds = HISTORY_LIMIT + 5
    for number in range(1, rounds + 1):
        await harness.settle(task, Outcome.RELEASED, note=str(number))
        task = await harness.take(task.id)
    history = await harness.engine.history(task.id)
    assert [entry.note for entry in history] == [str(number) for number in range(6, rounds + 1)]


async def test_history_survives_the_end(harness: Harness) -> None:
    task = await harness.start()
    await harness.settle(task, Outcome.FAILED, failure=FAILURE)
    await harness.settle(await harness.take(task.id))
    assert await harness.events(task.id) == [HistoryEvent.FAILED]
    assert (await harness.record(task.id)).failure is None


async def test_a_large_batch(harness: Harness) -> None:
    await harness.add_many(1_000)
    tasks = await harness.claim(1_000)
    settlements = [Settlement(lease=lease_of(task), outcome=Outcome.COMPLETED) for task in tasks]
    assert await harness.engine.settle(settlements, now=harness.now) == [COMPLETED] * 1_000
    assert await harness.counts() == {State.COMPLETED: 1_000}
