"""counts and counters: exact at every moment."""

from __future__ import annotations

from collections import Counter as Tally

from dibs.core.states import State
from dibs.core.task import Outcome, QueueState
from dibs.core.times import DAY, HOUR, SECOND
from dibs.engines.figures import Counter
from dibs.engines.values import Cancel, Purge, Query, Replay
from dibs.testing.conformance.harness import QUEUE, Harness


async def check_counts(harness: Harness) -> None:
    """Counts equal what a look at every task finds."""
    records = (await harness.engine.search(Query(limit=1_000))).tasks
    seen = Tally((record.queue, record.state) for record in records)
    counts = (await harness.engine.counts()).tasks
    assert {(queue, state): n for queue, states in counts.items() for state, n in states.items() if n} == seen


async def test_empty_store(harness: Harness) -> None:
    assert (await harness.engine.counts()).tasks == {}
    assert (await harness.engine.counts()).counters == {}


async def test_zeros_are_included(harness: Harness) -> None:
    await harness.add()
    await harness.set_queue("empty")
    counts = (await harness.engine.counts()).tasks
    assert counts == {
        QUEUE: {state: int(state is State.PENDING) for state in State},
        "empty": dict.fromkeys(State, 0),
    }


async def test_exact_after_every_move(harness: Harness) -> None:
    for queue in ("a", "b"):
        await harness.add_many(12, queue=queue)
        await harness.add_many(3, queue=queue, delay=HOUR)
    await check_counts(harness)
    tasks = await harness.claim(20, queues=("a", "b"))
    await check_counts(harness)
    for number, task in enumerate(tasks[:12]):
        await harness.settle(task, list(Outcome)[number % len(Outcome)], delay=SECOND)
        await check_counts(harness)
    harness.later(2 * SECOND)
    await harness.claim(1, queues=("a",))
    await check_counts(harness)
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    await check_counts(harness)
    page = await harness.engine.search(Query(limit=1_000))
    await harness.engine.act([Cancel(record.id) for record in page.tasks[::4]], now=harness.now)
    await check_counts(harness)
    dead = [record.id for record in page.tasks if record.state is State.DEAD]
    await harness.engine.act([Replay(each, queue="c") for each in dead], now=harness.now)
    await check_counts(harness)
    await harness.engine.delete_queue("a", force=True, now=harness.now)
    await check_counts(harness)
    await harness.engine.act([Purge(record.id) for record in page.tasks[::3]], now=harness.now)
    await check_counts(harness)
    harness.later(60 * DAY)
    await harness.all_chores()
    await check_counts(harness)


async def test_exact_while_chores_run(harness: Harness) -> None:
    await harness.add_many(10)
    for _ in range(3):
        await harness.all_chores()
        assert await harness.counts() == {State.PENDING: 10}


async def test_counters_tell_what_happened(harness: Harness) -> None:
    first = harness.new(key="k")
    await harness.enqueue(first)
    await harness.outcomes(harness.new(key="k"))
    task = await harness.take(first.id)
    await harness.settle(task, Outcome.FAILED)
    task = await harness.take(first.id)
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    await harness.settle(task)
    await harness.settle(await harness.take(first.id), Outcome.PERMANENT)
    await harness.engine.act([Replay(first.id)], now=harness.now)
    await harness.engine.set_queue_state(QUEUE, QueueState.DRAINING, now=harness.now)
    await harness.outcomes(harness.new())
    counters = ((await harness.engine.counts()).counters)[QUEUE]
    assert counters == {
        Counter.ENQUEUED: 1,
        Counter.DUPLICATES: 1,
        Counter.REJECTED: 1,
        Counter.CLAIMED: 3,
        Counter.REFUSED: 1,
        Counter.LOSSES: 1,
        Counter.RETRIES: 1,
        Counter.REPLAYED: 1,
        Counter.FAILURES: 2,
        Counter.DEAD_PERMANENT: 1,
    }


async def test_counters_survive_chores(harness: Harness) -> None:
    await harness.add_many(3)
    await harness.all_chores()
    await harness.add_many(2)
    await harness.all_chores()
    assert await harness.counter(Counter.ENQUEUED) == 5
