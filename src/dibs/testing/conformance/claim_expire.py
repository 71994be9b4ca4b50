"""expires_at: a task that has not started by then never does."""

from __future__ import annotations

from dibs.core.policy import EXPIRE_BATCH
from dibs.core.states import Reason, State
from dibs.core.task import Edit, HistoryEvent, Outcome, QueueState
from dibs.core.times import DAY, HOUR, MINUTE, SECOND
from dibs.engines.topics import ended_topic
from dibs.engines.values import Changed, EnqueueOutcome, Replay
from dibs.testing.conformance.harness import QUEUE, Harness
from dibs.testing.conformance.subscribe import notifies

PENDING, RUNNING, CANCELLED = State.PENDING, State.RUNNING, State.CANCELLED


async def test_it_ends_at_its_moment(harness: Harness) -> None:
    task_id = await harness.add(expires_at=harness.now + HOUR)
    harness.later(HOUR - 1)
    await harness.claim(queues=("nowhere",))
    assert await harness.state(task_id) is PENDING
    harness.later(1)
    assert await harness.claim(5) == []
    record = await harness.record(task_id)
    assert (record.state, record.reason, record.finished_at) == (CANCELLED, Reason.EXPIRED, harness.now)
    assert "expired" in record.note
    assert await harness.events(task_id) == [HistoryEvent.CANCELLED]
    assert await harness.counts() == {CANCELLED: 1}
    assert await harness.engine.audit() == []


async def test_a_task_is_claimed_until_then(harness: Harness) -> None:
    task_id = await harness.add(expires_at=harness.now + HOUR)
    harness.later(HOUR - 1)
    assert await harness.claim_ids() == [task_id]


async def test_every_waiting_state_expires(harness: Harness) -> None:
    at = harness.now + HOUR
    retrying = await harness.start(expires_at=at)
    await harness.settle(retrying, Outcome.FAILED, delay=DAY)
    need = await harness.add(queue="elsewhere")
    ids = [
        await harness.add(expires_at=at),
        await harness.add(expires_at=at, delay=DAY),
        await harness.follow(need, expires_at=at),
        retrying.id,
    ]
    harness.later(HOUR)
    await harness.claim(queues=("nowhere",))
    for task_id in ids:
        record = await harness.record(task_id)
        assert (record.state, record.reason, record.due_at) == (CANCELLED, Reason.EXPIRED, None)
    assert await harness.followers(need) == []
    assert await harness.state(need) is PENDING


async def test_its_waiters_learn(harness: Harness) -> None:
    need = await harness.add(expires_at=harness.now + HOUR)
    follower = await harness.follow(need)
    harness.later(HOUR)
    await harness.claim(queues=("nowhere",))
    record = await harness.record(follower)
    assert (record.state, record.reason, record.note) == (CANCELLED, Reason.DEPENDENCY, f"{need} is cancelled")


async def test_it_expires_rather_than_falls_due(harness: Harness) -> None:
    task_id = await harness.add(delay=HOUR, expires_at=harness.now + HOUR)
    harness.later(HOUR)
    assert await harness.claim(5) == []
    assert (await harness.record(task_id)).reason is Reason.EXPIRED


async def test_already_too_late_when_enqueued(harness: Harness) -> None:
    (answer,) = await harness.engine.enqueue([harness.new(expires_at=harness.now)], now=harness.now)
    assert (answer.outcome, answer.state) == (EnqueueOutcome.ENQUEUED, PENDING)
    assert await harness.claim(5) == []
    assert await harness.state(answer.id) is CANCELLED


async def test_running_tasks_do_not_expire(harness: Harness) -> None:
    task = await harness.start(expires_at=harness.now + MINUTE)
    harness.later(HOUR)
    answer = await harness.claims(5)
    assert (answer.tasks, answer.next_due_in) == ([], None)
    assert await harness.state(task.id) is RUNNING
    await harness.settle(task)
    assert await harness.state(task.id) is State.COMPLETED


async def test_one_that_comes_back_does_at_the_next_claim(harness: Harness) -> None:
    task = await harness.start(expires_at=harness.now + MINUTE)
    harness.later(HOUR)
    await harness.settle(task, Outcome.RELEASED)
    assert await harness.state(task.id) is PENDING
    assert await harness.claim(5) == []
    assert (await harness.record(task.id)).reason is Reason.EXPIRED


async def test_in_paused_queues_too(harness: Harness) -> None:
    task_id = await harness.add(expires_at=harness.now + MINUTE)
    await harness.engine.set_queue_state(QUEUE, QueueState.PAUSED, now=harness.now)
    harness.later(MINUTE)
    await harness.claim(queues=("nowhere",))
    assert await harness.state(task_id) is CANCELLED


async def test_tells_when_the_next_one_expires(harness: Harness) -> None:
    await harness.add(queue="elsewhere", expires_at=harness.now + HOUR)
    assert (await harness.claims()).next_due_in == HOUR
    await harness.add(queue="elsewhere", delay=MINUTE)
    assert (await harness.claims()).next_due_in == MINUTE
    await harness.add(queue="elsewhere", expires_at=harness.now + SECOND)
    assert (await harness.claims()).next_due_in == SECOND


async def test_what_is_claimed_expires_for_nobody(harness: Harness) -> None:
    await harness.add(expires_at=harness.now + MINUTE)
    answer = await harness.claims(5)
    assert (len(answer.tasks), answer.next_due_in) == (1, None)


async def test_ends_so_many_at_a_time_the_longest_expired_first(harness: Harness) -> None:
    late = await harness.add_many(100, expires_at=harness.now + 2 * SECOND)
    early = await harness.add_many(EXPIRE_BATCH, expires_at=harness.now + SECOND)
    harness.later(MINUTE)
    answer = await harness.claims(queues=("nowhere",))
    assert answer.next_due_in == 0
    assert await harness.counts() == {CANCELLED: EXPIRE_BATCH, PENDING: 100}
    assert await harness.states(late[0], early[-1]) == [PENDING, CANCELLED]
    assert (await harness.claims(queues=("nowhere",))).next_due_in is None
    assert await harness.counts() == {CANCELLED: EXPIRE_BATCH + 100}


async def test_frees_its_key_and_its_place(harness: Harness) -> None:
    await harness.set_queue(max_depth=1)
    await harness.add(key="k", window=0, expires_at=harness.now + MINUTE)
    harness.later(MINUTE)
    await harness.claim(queues=("nowhere",))
    assert await harness.outcomes(harness.new(key="k")) == [EnqueueOutcome.ENQUEUED]


async def test_edit_moves_it(harness: Harness) -> None:
    task_id = await harness.add(expires_at=harness.now + MINUTE)
    other = await harness.add()
    edits = [Edit(id=task_id, expires_at=harness.now + HOUR), Edit(id=other, expires_at=harness.now + MINUTE)]
    assert await harness.engine.act(edits, now=harness.now) == [Changed.DONE] * 2
    assert await harness.engine.act(edits, now=harness.now) == [Changed.UNCHANGED] * 2
    harness.later(MINUTE)
    assert await harness.claim_ids(5) == [task_id]
    assert await harness.state(other) is CANCELLED


async def test_replay_gives_a_late_task_another_life(harness: Harness) -> None:
    task = await harness.start(expires_at=harness.now + MINUTE)
    await harness.settle(task, Outcome.PERMANENT)
    harness.later(HOUR)
    await harness.engine.act([Replay(task.id)], now=harness.now)
    assert await harness.claim_ids(5) == [task.id]


async def test_it_notifies(harness: Harness) -> None:
    await harness.add(expires_at=harness.now + MINUTE)
    harness.later(MINUTE)
    assert await notifies(harness, ended_topic(QUEUE), harness.claim(queues=("nowhere",)))
