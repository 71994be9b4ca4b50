"""replace: a newer task with the same key takes the place of one that still waits."""

from __future__ import annotations

from dibs.core.settings import Defaults
from dibs.core.states import State
from dibs.core.task import HistoryEvent, Outcome, QueueState
from dibs.core.times import DAY, HOUR, MINUTE, SECOND
from dibs.engines.figures import Counter
from dibs.engines.topics import work_topic
from dibs.engines.values import EnqueueAnswer, EnqueueOutcome, Replay
from dibs.testing.conformance.harness import QUEUE, Harness
from dibs.testing.conformance.subscribe import notifies

ENQUEUED, REPLACED = EnqueueOutcome.ENQUEUED, EnqueueOutcome.REPLACED
DUPLICATE, CONFLICT, EXISTS = EnqueueOutcome.DUPLICATE, EnqueueOutcome.CONFLICT, EnqueueOutcome.EXISTS
PENDING, SCHEDULED = State.PENDING, State.SCHEDULED


async def replace(harness: Harness, **facts: object) -> EnqueueAnswer:
    """Enqueue one task that may take another's place."""
    (answer,) = await harness.engine.enqueue([harness.new(key="k", replace=True, **facts)], now=harness.now)
    return answer


async def test_a_waiting_task_gets_the_new_content(harness: Harness) -> None:
    task_id = await harness.add(key="k", args=b'{"n":1}', tenant="a", partition="p", fingerprint="one")
    created = harness.now
    harness.later(MINUTE)
    answer = await replace(
        harness,
        args=b'{"n":2}',
        priority=80,
        options=Defaults(retries=9),
        metadata={"a": 1},
        headers={"h": "x"},
        tenant="b",
        partition="q",
        expires_at=harness.now + DAY,
        fingerprint="two",
    )
    assert (answer.outcome, answer.id, answer.state) == (REPLACED, task_id, PENDING)
    record = await harness.record(task_id)
    assert (record.args, record.spec.priority, record.options.retries) == (b'{"n":2}', 80, 9)
    assert (record.spec.metadata, record.spec.headers) == ({"a": 1}, {"h": "x"})
    assert (record.spec.tenant, record.spec.partition, record.spec.expires_at) == ("b", "q", harness.now + DAY)
    assert (record.created_at, record.ready_at) == (created, created), "it keeps its place"
    assert await harness.events(task_id) == [HistoryEvent.REPLACED]
    assert await harness.counts() == {PENDING: 1}


async def test_the_new_id_is_not_stored(harness: Harness) -> None:
    await harness.add(key="k")
    new = harness.new(key="k", replace=True)
    assert await harness.outcomes(new) == [REPLACED]
    assert await harness.engine.get([new.id]) == [None]
    assert await harness.outcomes(new) == [REPLACED], "a repeat does the same again"
    assert await harness.counter(Counter.ENQUEUED) == 1


async def test_a_free_key_is_taken(harness: Harness) -> None:
    answer = await replace(harness)
    assert (answer.outcome, answer.state) == (ENQUEUED, PENDING)


async def test_the_key_stands_for_the_new_content(harness: Harness) -> None:
    task_id = await harness.add(key="k", fingerprint="one", window=MINUTE)
    harness.later(SECOND)
    await replace(harness, fingerprint="two", window=HOUR)
    assert await harness.outcomes(harness.new(key="k", fingerprint="one"), harness.new(key="k", fingerprint="two")) == [
        CONFLICT,
        DUPLICATE,
    ]
    await harness.finish(task_id)
    harness.later(HOUR - 1)
    assert await harness.outcomes(harness.new(key="k", fingerprint="two")) == [DUPLICATE]
    harness.later(2)
    assert await harness.outcomes(harness.new(key="k", fingerprint="two")) == [ENQUEUED]


async def test_another_name_conflicts(harness: Harness) -> None:
    task_id = await harness.add(key="k", name="one")
    answer = await replace(harness, name="two")
    assert (answer.outcome, answer.id) == (CONFLICT, task_id)
    assert await harness.events(task_id) == []


async def test_putting_off_again_and_again(harness: Harness) -> None:
    """Debouncing: each call restarts the wait."""
    answer = await replace(harness, delay=MINUTE)
    for _ in range(5):
        harness.later(MINUTE - 1)
        assert (await replace(harness, delay=MINUTE)).id == answer.id
        assert await harness.claim(5) == []
    record = await harness.record(answer.id)
    assert (record.state, record.due_at, record.ready_at) == (SCHEDULED, harness.now + MINUTE, harness.now + MINUTE)
    harness.later(MINUTE)
    assert await harness.claim_ids(5) == [answer.id]


async def test_but_not_for_ever(harness: Harness) -> None:
    answer = await replace(harness, delay=MINUTE, debounce_limit=2 * MINUTE)
    first = harness.now
    for _ in range(3):
        harness.later(50 * SECOND)
        await replace(harness, delay=MINUTE, debounce_limit=2 * MINUTE)
    record = await harness.record(answer.id)
    assert harness.now > first + 2 * MINUTE
    assert (record.state, record.due_at) == (PENDING, None)
    assert await harness.claim_ids(5) == [answer.id]


async def test_a_scheduled_task_is_brought_forward(harness: Harness) -> None:
    task_id = await harness.add(key="k", delay=DAY)
    answer = await replace(harness)
    assert (answer.outcome, answer.id, answer.state) == (REPLACED, task_id, PENDING)
    assert (await harness.claims()).next_due_in is None
    assert await harness.counts() == {State.RUNNING: 1}


async def test_a_pending_task_is_put_off(harness: Harness) -> None:
    task_id = await harness.add(key="k")
    answer = await replace(harness, delay=HOUR)
    assert (answer.id, answer.state) == (task_id, SCHEDULED)
    assert await harness.claim(5) == []
    assert await harness.counts() == {SCHEDULED: 1}


async def test_a_retrying_task_starts_over(harness: Harness) -> None:
    task = await harness.start(key="k")
    await harness.settle(task, Outcome.FAILED, delay=DAY)
    answer = await replace(harness)
    assert (answer.outcome, answer.id, answer.state) == (REPLACED, task.id, PENDING)
    record = await harness.record(task.id)
    assert (record.attempts, record.losses, record.failure) == (0, 0, None)


async def test_a_blocked_task_stays_blocked(harness: Harness) -> None:
    need = await harness.add()
    follower = await harness.follow(need, key="k", args=b'{"n":1}')
    answer = await replace(harness, args=b'{"n":2}', delay=HOUR)
    assert (answer.outcome, answer.id, answer.state) == (REPLACED, follower, State.BLOCKED)
    assert await harness.is_open(follower) == [True]
    await harness.finish(need)
    record = await harness.record(follower)
    assert (record.state, record.args, record.due_at) == (SCHEDULED, b'{"n":2}', harness.now + HOUR)


async def test_a_task_that_runs_or_has_ended_is_succeeded(harness: Harness) -> None:
    running = await harness.start(key="k", window=DAY)
    answer = await replace(harness)
    assert (answer.outcome, answer.state) == (ENQUEUED, PENDING)
    assert answer.id != running.id
    assert (await replace(harness)).id == answer.id, "the key is the newer one's now"
    await harness.finish(answer.id)
    last = await replace(harness)
    assert last.outcome is ENQUEUED
    assert await harness.outcomes(harness.new(key="k")) == [DUPLICATE]


async def test_within_a_batch(harness: Harness) -> None:
    first = harness.new(key="k", replace=True, args=b'{"n":1}')
    second = harness.new(key="k", replace=True, args=b'{"n":2}', delay=HOUR)
    third = harness.new(key="k", replace=True, args=b'{"n":3}', delay=HOUR)
    answers = await harness.engine.enqueue([first, second, third], now=harness.now)
    assert [(answer.outcome, answer.id, answer.state) for answer in answers] == [
        (ENQUEUED, first.id, PENDING),
        (REPLACED, first.id, SCHEDULED),
        (REPLACED, first.id, SCHEDULED),
    ]
    assert (await harness.record(first.id)).args == b'{"n":3}'
    assert await harness.counts() == {SCHEDULED: 1}


async def test_items_see_what_was_replaced_before_them(harness: Harness) -> None:
    for there in (harness.new(key="k", fingerprint="one"), harness.new(key="k", fingerprint="one", queue="other")):
        batch = [
            harness.new(key="k", fingerprint="two", replace=True, queue=there.queue),
            harness.new(key="k", fingerprint="two", queue=there.queue),
            harness.new(key="k", fingerprint="one", queue=there.queue),
        ]
        if there.queue == QUEUE:  # stored before, and as an earlier item
            await harness.enqueue(there)
        else:
            batch.insert(0, there)
        assert (await harness.outcomes(*batch))[-3:] == [REPLACED, DUPLICATE, CONFLICT]


async def test_in_a_batch_that_is_refused_nothing_is_replaced(harness: Harness) -> None:
    await harness.set_queue("closed")
    await harness.engine.set_queue_state("closed", QueueState.DRAINING, now=harness.now)
    task_id = await harness.add(key="k", args=b'{"n":1}')
    batch = [harness.new(key="k", replace=True, args=b'{"n":2}'), harness.new(queue="closed")]
    assert await harness.outcomes(*batch, atomic=True) == [EnqueueOutcome.ABANDONED, EnqueueOutcome.DRAINING]
    assert (await harness.record(task_id)).args == b'{"n":1}'
    assert await harness.events(task_id) == []


async def test_a_full_or_draining_queue_still_takes_new_content(harness: Harness) -> None:
    await harness.set_queue(max_depth=1)
    await harness.add(key="k")
    assert (await replace(harness)).outcome is REPLACED
    await harness.engine.set_queue_state(QUEUE, QueueState.DRAINING, now=harness.now)
    assert (await replace(harness)).outcome is REPLACED
    assert await harness.counter(Counter.REJECTED) == 0


async def test_the_id_is_looked_at_first(harness: Harness) -> None:
    task = harness.new(key="k", replace=True)
    await harness.enqueue(task)
    assert await harness.outcomes(task) == [EXISTS]
    assert await harness.events(task.id) == []


async def test_priority_moves_it(harness: Harness) -> None:
    other = await harness.add(priority=60)
    task_id = await harness.add(key="k", priority=50)
    await replace(harness, priority=70)
    assert await harness.peek() == [task_id, other]


async def test_a_task_that_was_replayed_elsewhere_is_ranked_where_it_is(harness: Harness) -> None:
    await harness.set_queue("strict", policy="strict")
    task_id = await harness.ended(Outcome.PERMANENT, key="k")
    await harness.engine.act([Replay(task_id, queue="strict")], now=harness.now)
    harness.later(1_000 * HOUR)
    other = await harness.add(queue="strict", priority=60)
    assert await notifies(harness, work_topic("strict"), replace(harness, priority=59))
    assert (await harness.record(task_id)).queue == "strict"
    assert await harness.peek("strict") == [other, task_id]
    await replace(harness, priority=61)
    assert await harness.peek("strict") == [task_id, other]


async def test_it_notifies(harness: Harness) -> None:
    await harness.add(key="k", delay=DAY)
    assert await notifies(harness, work_topic(QUEUE), replace(harness))


async def test_it_needs_the_new_capabilities(harness: Harness) -> None:
    task_id = await harness.add(key="k", fingerprint="one")
    await replace(harness, requires=("gpu",), fingerprint="two")
    assert await harness.claim_ids() == []
    assert await harness.claim_ids(capabilities=("gpu",)) == [task_id]
