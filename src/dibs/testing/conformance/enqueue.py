"""enqueue: tasks are stored once, durably, in order, or refused for a reason that is said."""

from __future__ import annotations

from msgspec import structs

from dibs.core.settings import Defaults, QueueSettings
from dibs.core.states import State
from dibs.core.task import Outcome, QueueRecord, QueueState
from dibs.core.times import DAY, HOUR, MINUTE, SECOND
from dibs.engines.figures import Counter
from dibs.engines.port import at_once
from dibs.engines.values import EnqueueOutcome, Feature, Purge
from dibs.testing.conformance.harness import QUEUE, Harness
from dibs.testing.tasks import changed

ENQUEUED, EXISTS, TAKEN = EnqueueOutcome.ENQUEUED, EnqueueOutcome.EXISTS, EnqueueOutcome.TAKEN
DUPLICATE, CONFLICT = EnqueueOutcome.DUPLICATE, EnqueueOutcome.CONFLICT
FULL, DRAINING, ABANDONED = EnqueueOutcome.FULL, EnqueueOutcome.DRAINING, EnqueueOutcome.ABANDONED
STORED = ("id", "queue", "name", "args", "requires", "spec")


async def test_stores_everything_that_was_given(harness: Harness) -> None:
    task = harness.new(
        args=b'{"to":"ada"}',
        priority=73,
        deadline=harness.now + DAY,
        key="k",
        fingerprint="f",
        requires=("gpu", "host:a"),
        metadata={"customer": 7, "tags": ["a", "b"], "nested": {"deep": None}},
        headers={"traceparent": "00-1-2-03"},
        parent=harness.new_id(),
        partition="Müller & Söhne",
        tenant="acme, inc.",
        expires_at=harness.now + 2 * DAY,
        workflow=harness.new_id(),
        takes=True,
    )
    await harness.enqueue(task)
    record = await harness.record(task.id)
    for name in STORED:
        assert getattr(record, name) == getattr(task, name)
    assert (record.state, record.created_at, record.ready_at) == (State.PENDING, harness.now, harness.now)
    assert (record.due_at, record.lease, record.attempts, record.losses) == (None, 0, 0, 0)


async def test_answers_with_id_and_state(harness: Harness) -> None:
    soon, later = harness.new(), harness.new(delay=SECOND)
    answers = await harness.engine.enqueue([soon, later], now=harness.now)
    assert [(answer.id, answer.state) for answer in answers] == [
        (soon.id, State.PENDING),
        (later.id, State.SCHEDULED),
    ]


async def test_nothing_is_nothing(harness: Harness) -> None:
    assert await harness.engine.enqueue([], now=harness.now) == []
    assert await harness.engine.enqueue([], atomic=True, now=harness.now) == []


async def test_delay_schedules(harness: Harness) -> None:
    record = await harness.record(await harness.add(delay=90 * SECOND))
    assert (record.state, record.due_at) == (State.SCHEDULED, harness.now + 90 * SECOND)
    assert record.ready_at == record.due_at


async def test_an_instant_schedules_and_a_past_one_is_now(harness: Harness) -> None:
    future = await harness.record(await harness.add(at=harness.now + 1))
    past = await harness.record(await harness.add(at=harness.now - DAY))
    present = await harness.record(await harness.add(at=harness.now))
    assert (future.state, future.due_at) == (State.SCHEDULED, harness.now + 1)
    assert (past.state, past.due_at, past.ready_at) == (State.PENDING, None, harness.now)
    assert (present.state, present.due_at) == (State.PENDING, None)


async def test_queue_exists_from_its_first_task(harness: Harness) -> None:
    assert await harness.engine.queues() == []
    await harness.add(queue="mail")
    assert await harness.engine.queues() == [QueueRecord(name="mail", settings=QueueSettings())]


async def test_same_task_again_exists(harness: Harness) -> None:
    task = harness.new(args=b'{"n":1}')
    await harness.enqueue(task)
    harness.later(SECOND)
    (again,) = await harness.engine.enqueue([task], now=harness.now)
    assert (again.outcome, again.id, again.state) == (EXISTS, task.id, State.PENDING)
    assert await harness.counts() == {State.PENDING: 1}
    assert await harness.counter(Counter.ENQUEUED) == 1


async def test_repeat_finds_the_task_wherever_it_is(harness: Harness) -> None:
    tasks = [harness.new() for _ in range(3)]
    await harness.enqueue(*tasks)
    completed, dead, _ = await harness.claim(3)
    await harness.settle(completed)
    await harness.settle(dead, Outcome.PERMANENT)
    answers = await harness.engine.enqueue(tasks, now=harness.now)
    assert [answer.outcome for answer in answers] == [EXISTS] * 3
    assert [answer.state for answer in answers] == [State.COMPLETED, State.DEAD, State.RUNNING]


async def test_other_content_under_the_same_id_is_taken(harness: Harness) -> None:
    task = harness.new(args=b'{"n":1}')
    await harness.enqueue(task)
    changes: list[dict[str, object]] = [{"name": "other"}, {"queue": "other"}, {"args": b'{"n":2}'}]
    for change in changes:
        assert await harness.outcomes(structs.replace(task, **change)) == [TAKEN]
    assert (await harness.record(task.id)).args == task.args
    assert await harness.outcomes(changed(task, priority=1)) == [EXISTS]
    assert (await harness.record(task.id)).spec.priority == task.spec.priority


async def test_items_see_those_before_them(harness: Harness) -> None:
    task, keyed = harness.new(), harness.new(key="k")
    other = harness.new(key="k")
    answers = await harness.engine.enqueue([task, task, keyed, other], now=harness.now)
    assert [answer.outcome for answer in answers] == [ENQUEUED, EXISTS, ENQUEUED, DUPLICATE]
    assert answers[3].id == keyed.id
    assert await harness.counts() == {State.PENDING: 2}


async def test_state_of_those_before_is_told(harness: Harness) -> None:
    later = harness.new(delay=HOUR, key="k")
    answers = await harness.engine.enqueue([later, later, harness.new(key="k")], now=harness.now)
    assert [answer.outcome for answer in answers] == [ENQUEUED, EXISTS, DUPLICATE]
    assert [answer.state for answer in answers] == [State.SCHEDULED] * 3


async def test_key_stands_for_its_first_task(harness: Harness) -> None:
    first = await harness.add(key="k", fingerprint="same")
    (answer,) = await harness.engine.enqueue([harness.new(key="k", fingerprint="same")], now=harness.now)
    assert (answer.outcome, answer.id, answer.state) == (DUPLICATE, first, State.PENDING)
    assert await harness.counts() == {State.PENDING: 1}
    assert await harness.counter(Counter.DUPLICATES) == 1
    assert await harness.counter(Counter.ENQUEUED) == 1


async def test_key_with_other_arguments_conflicts(harness: Harness) -> None:
    first = await harness.add(key="k", fingerprint="one")
    (answer,) = await harness.engine.enqueue([harness.new(key="k", fingerprint="two")], now=harness.now)
    assert (answer.outcome, answer.id) == (CONFLICT, first)
    assert await harness.counts() == {State.PENDING: 1}


async def test_keys_of_two_queues_are_strangers(harness: Harness) -> None:
    await harness.add(key="k", queue="one")
    await harness.add(key="k", queue="two")


async def test_key_is_held_through_its_window(harness: Harness) -> None:
    first = await harness.ended(key="k", window=HOUR)
    harness.later(HOUR - 1)
    (answer,) = await harness.engine.enqueue([harness.new(key="k")], now=harness.now)
    assert (answer.outcome, answer.id, answer.state) == (DUPLICATE, first, State.COMPLETED)
    harness.later(2)
    assert await harness.outcomes(harness.new(key="k")) == [ENQUEUED]


async def test_without_a_loop(harness: Harness) -> None:
    """Engines that can answer without one answer alike, and what they stored can be claimed."""
    if Feature.INLINE not in harness.engine.features:
        return
    new = harness.new(key="k")
    async with harness.blocking() as engine:
        answers = [at_once(engine.enqueue([each], now=harness.now))[0] for each in (new, new, harness.new(key="k"))]
    outcomes = [EnqueueOutcome.ENQUEUED, EnqueueOutcome.EXISTS, EnqueueOutcome.DUPLICATE]
    assert [answer.outcome for answer in answers] == outcomes
    assert answers[0].state is State.PENDING
    assert await harness.claim_ids() == [new.id]


async def test_key_of_a_purged_task_is_free(harness: Harness) -> None:
    first = await harness.ended(key="k")
    await harness.engine.act([Purge(first)], now=harness.now)
    assert await harness.add(key="k") != first
    assert (await harness.counts())[State.PENDING] == 1


async def test_key_is_held_while_its_task_is_unfinished(harness: Harness) -> None:
    task = await harness.start(key="k", window=SECOND)
    harness.later(30 * DAY)
    assert await harness.outcomes(harness.new(key="k")) == [DUPLICATE]
    await harness.settle(task)
    assert await harness.outcomes(harness.new(key="k")) == [ENQUEUED]


async def test_window_counts_from_the_enqueue(harness: Harness) -> None:
    task = await harness.start(key="k", window=HOUR)
    harness.later(HOUR - SECOND)
    await harness.settle(task)
    assert await harness.outcomes(harness.new(key="k")) == [DUPLICATE]
    harness.later(2 * SECOND)
    assert await harness.outcomes(harness.new(key="k")) == [ENQUEUED]


async def test_no_window_holds_a_key_while_unfinished_only(harness: Harness) -> None:
    await harness.ended(key="k", window=0)
    assert await harness.outcomes(harness.new(key="k", window=0), harness.new(key="k", window=0)) == [
        ENQUEUED,
        DUPLICATE,
    ]


async def test_key_taken_over_belongs_to_the_new_task(harness: Harness) -> None:
    old = await harness.ended(key="k", window=0)
    new = await harness.add(key="k", window=HOUR, fingerprint="new")
    (answer,) = await harness.engine.enqueue([harness.new(key="k", fingerprint="new")], now=harness.now)
    assert (answer.outcome, answer.id) == (DUPLICATE, new)
    assert (await harness.record(old)).spec.key == "k"


async def test_id_is_looked_at_before_the_key(harness: Harness) -> None:
    task = harness.new(key="k")
    await harness.enqueue(task)
    assert await harness.outcomes(task) == [EXISTS]
    assert await harness.counter(Counter.DUPLICATES) == 0


async def test_draining_queue_refuses(harness: Harness) -> None:
    task = harness.new(key="k")
    await harness.enqueue(task)
    await harness.engine.set_queue_state(QUEUE, QueueState.DRAINING, now=harness.now)
    assert await harness.outcomes(harness.new(), task, harness.new(key="k")) == [DRAINING, EXISTS, DUPLICATE]
    assert await harness.outcomes(harness.new(delay=HOUR)) == [DRAINING]
    assert await harness.counter(Counter.REJECTED) == 2
    assert await harness.counts() == {State.PENDING: 1}


async def test_paused_queue_takes_tasks(harness: Harness) -> None:
    await harness.set_queue()
    await harness.engine.set_queue_state(QUEUE, QueueState.PAUSED, now=harness.now)
    assert await harness.outcomes(harness.new()) == [ENQUEUED]


async def test_full_queue_refuses_what_is_for_now(harness: Harness) -> None:
    await harness.set_queue(max_depth=2)
    tasks = [harness.new(), harness.new(), harness.new(), harness.new(delay=HOUR), harness.new(queue="other")]
    assert await harness.outcomes(*tasks) == [ENQUEUED, ENQUEUED, FULL, ENQUEUED, ENQUEUED]
    assert await harness.counter(Counter.REJECTED) == 1
    assert await harness.counts() == {State.PENDING: 2, State.SCHEDULED: 1}
    assert await harness.engine.get([tasks[2].id]) == [None]


async def test_a_producer_that_waits_is_counted_once(harness: Harness) -> None:
    await harness.set_queue(max_depth=1)
    await harness.add()
    new = harness.new()
    waiting = changed(new, waits=True)
    full = EnqueueOutcome.FULL
    assert await harness.outcomes(new) == [full]
    assert [await harness.outcomes(waiting) for _ in range(3)] == [[full]] * 3
    assert await harness.counter(Counter.REJECTED) == 1
    await harness.claim()
    assert await harness.outcomes(waiting, new) == [EnqueueOutcome.ENQUEUED, EnqueueOutcome.EXISTS]


async def test_full_looks_at_pending_tasks_only(harness: Harness) -> None:
    await harness.set_queue(max_depth=1)
    await harness.add(delay=HOUR)
    await harness.start()
    assert await harness.outcomes(harness.new(), harness.new()) == [ENQUEUED, FULL]


async def test_full_queue_still_knows_its_tasks(harness: Harness) -> None:
    await harness.set_queue(max_depth=1)
    task = harness.new(key="k", fingerprint="f")
    await harness.enqueue(task)
    assert await harness.outcomes(
        task, harness.new(key="k", fingerprint="f"), harness.new(key="k", fingerprint="g")
    ) == [EXISTS, DUPLICATE, CONFLICT]
    assert await harness.counter(Counter.REJECTED) == 0


async def test_full_queue_takes_its_own_tasks_back(harness: Harness) -> None:
    await harness.set_queue(max_depth=1)
    first = await harness.start()
    await harness.add()
    await harness.settle(first, Outcome.RELEASED)
    assert await harness.counts() == {State.PENDING: 2}
    assert await harness.outcomes(harness.new()) == [FULL]


async def test_atomic_batch_is_all(harness: Harness) -> None:
    there = harness.new(key="k")
    await harness.enqueue(there)
    assert await harness.outcomes(harness.new(), there, harness.new(key="k"), harness.new(), atomic=True) == [
        ENQUEUED,
        EXISTS,
        DUPLICATE,
        ENQUEUED,
    ]
    assert await harness.counts() == {State.PENDING: 3}


async def test_atomic_batch_is_nothing(harness: Harness) -> None:
    taken = harness.new()
    await harness.enqueue(taken)
    before = await harness.counter(Counter.ENQUEUED)
    tasks = [harness.new(key="a"), structs.replace(taken, name="other"), harness.new(queue="elsewhere")]
    assert await harness.outcomes(*tasks, atomic=True) == [ABANDONED, TAKEN, ABANDONED]
    assert await harness.engine.get([tasks[0].id, tasks[2].id]) == [None, None]
    assert await harness.counts() == {State.PENDING: 1}
    assert await harness.counter(Counter.ENQUEUED) == before
    assert await harness.outcomes(harness.new(key="a")) == [ENQUEUED]


async def test_atomic_batch_is_refused_for_its_own_size(harness: Harness) -> None:
    await harness.set_queue(max_depth=2)
    assert await harness.outcomes(*(harness.new() for _ in range(3)), atomic=True) == [ABANDONED, ABANDONED, FULL]
    assert await harness.counts() == {}
    assert await harness.outcomes(*(harness.new() for _ in range(2)), atomic=True) == [ENQUEUED, ENQUEUED]


async def test_refused_items_do_not_harm_the_others(harness: Harness) -> None:
    await harness.set_queue("closed")
    await harness.engine.set_queue_state("closed", QueueState.DRAINING, now=harness.now)
    assert await harness.outcomes(harness.new(), harness.new(queue="closed"), harness.new()) == [
        ENQUEUED,
        DRAINING,
        ENQUEUED,
    ]
    assert await harness.counts() == {State.PENDING: 2}


async def test_settings_of_call_tier_queue_and_app_become_one(harness: Harness) -> None:
    await harness.set_queue(
        policy="tiers", tiers={"low": {"retries": 7, "timeout": 7}}, retries=5, timeout=5, lease=50, retry_base=5
    )
    app = Defaults(retries=1, timeout=MINUTE, lease=MINUTE, retry_base=MINUTE, retry_cap=2 * MINUTE)
    low = await harness.record(await harness.add(priority=10, options=Defaults(retries=9), app_options=app))
    high = await harness.record(await harness.add(priority=90, app_options=app))
    assert (low.options.retries, low.options.timeout, low.options.lease) == (9, 7 * SECOND, 50 * SECOND)
    assert (high.options.retries, high.options.timeout, high.options.lease) == (5, 5 * SECOND, 50 * SECOND)
    assert (high.options.retry_base, high.options.retry_cap) == (5 * SECOND, 2 * MINUTE)


async def test_a_large_batch(harness: Harness) -> None:
    await harness.add_many(2_500)
    assert await harness.counts() == {State.PENDING: 2_500}
    assert await harness.counter(Counter.ENQUEUED) == 2_500


async def test_payload_bytes_come_back_as_they_were(harness: Harness) -> None:
    args = '{"text":"ünïcode \\u0000 …","big":9007199254740993}'.encode()
    assert (await harness.record(await harness.add(args=args))).args == args
