"""delete_queue: deletion that loses nothing."""

from __future__ import annotations

import asyncio

from dibs.core.policy import BURY_BATCH
from dibs.core.settings import QueueSettings
from dibs.core.states import Reason, State
from dibs.core.task import HistoryEvent, Outcome, QueueState
from dibs.core.times import HOUR, SECOND
from dibs.engines.steps import DeleteQueue, StepRecord
from dibs.engines.values import Changed, EnqueueOutcome, Replay
from dibs.testing.conformance.harness import QUEUE, Harness


async def test_empty_queue_is_deleted(harness: Harness) -> None:
    await harness.set_queue(max_depth=1)
    assert await harness.engine.delete_queue(QUEUE, now=harness.now) is Changed.DONE
    assert await harness.engine.queues() == []
    assert await harness.engine.delete_queue(QUEUE, now=harness.now) is Changed.UNKNOWN


async def test_queue_with_only_ended_tasks_is_deleted_and_they_stay(harness: Harness) -> None:
    completed, dead = await harness.ended(), await harness.ended(Outcome.PERMANENT)
    assert await harness.engine.delete_queue(QUEUE, now=harness.now) is Changed.DONE
    assert await harness.queue() is None
    assert [await harness.state(completed), await harness.state(dead)] == [State.COMPLETED, State.DEAD]
    assert await harness.counts() == {State.COMPLETED: 1, State.DEAD: 1}


async def test_queue_with_tasks_is_not(harness: Harness) -> None:
    for facts in ({"delay": HOUR}, {"delay": 0}):
        await harness.add(**facts)
        assert await harness.engine.delete_queue(QUEUE, now=harness.now) is Changed.WRONG_STATE
    task = await harness.start(queue="running")
    assert await harness.engine.delete_queue("running", now=harness.now) is Changed.WRONG_STATE
    assert await harness.state(task.id) is State.RUNNING


async def test_force_makes_waiting_tasks_dead(harness: Harness) -> None:
    running = await harness.start()
    retrying = await harness.start()
    await harness.settle(retrying, Outcome.FAILED, delay=HOUR)
    waiting = [await harness.add(), await harness.add(delay=HOUR), retrying.id]
    harness.later(SECOND)
    assert await harness.engine.delete_queue(QUEUE, force=True, actor="ada", now=harness.now) is Changed.DONE
    for task_id in waiting:
        record = await harness.record(task_id)
        assert (record.state, record.reason, record.finished_at) == (State.DEAD, Reason.QUEUE, harness.now)
        assert (await harness.events(task_id))[-1] is HistoryEvent.DEAD
    assert await harness.queue() is None
    assert await harness.state(running.id) is State.RUNNING
    await harness.settle(running)
    assert await harness.state(running.id) is State.COMPLETED
    assert await harness.counts() == {State.DEAD: 3, State.COMPLETED: 1}
    harness.later(2 * HOUR)
    assert await harness.claim(9) == []


async def test_a_run_that_would_go_back_to_a_deleted_queue_is_dead(harness: Harness) -> None:
    failed, lost = await harness.start(), await harness.start()
    await harness.engine.delete_queue(QUEUE, force=True, now=harness.now)
    await harness.settle(failed, Outcome.FAILED, delay=HOUR)
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    for task_id in (failed.id, lost.id):
        record = await harness.record(task_id)
        assert (record.state, record.reason) == (State.DEAD, Reason.QUEUE)


async def test_the_dead_of_a_deleted_queue_run_elsewhere(harness: Harness) -> None:
    task_id = await harness.add()
    await harness.engine.delete_queue(QUEUE, force=True, now=harness.now)
    assert await harness.engine.act([Replay(task_id, queue="elsewhere")], now=harness.now) == [Changed.DONE]
    assert await harness.claim_ids(queues=("elsewhere",)) == [task_id]


async def test_deleted_queue_starts_over(harness: Harness) -> None:
    await harness.set_queue(policy="strict", max_depth=1)
    await harness.engine.set_queue_state(QUEUE, QueueState.PAUSED, now=harness.now)
    await harness.engine.delete_queue(QUEUE, now=harness.now)
    await harness.add_many(3)
    record = await harness.queue()
    assert record is not None
    assert (record.settings, record.state) == (QueueSettings(), QueueState.ACTIVE)


async def begun(harness: Harness, count: int) -> StepRecord:
    """A queue with so many tasks is being deleted, and its caller has gone. It may have been quick."""
    await harness.add_many(count)
    other = harness.engine.sibling()
    await other.open()
    deletion = asyncio.create_task(harness.engine.delete_queue(QUEUE, force=True, actor="ada", now=harness.now))
    while not await other.steps():  # an engine in memory never suspends by itself
        await asyncio.gather(asyncio.sleep(0))
    deletion.cancel()
    await asyncio.gather(deletion, return_exceptions=True)
    await other.close()
    (record,) = await harness.engine.steps()
    return record


async def test_a_large_one_goes_on_after_its_caller(harness: Harness) -> None:
    count = 3 * BURY_BATCH + 10
    record = await begun(harness, count)
    assert (record.act, record.actor, record.matched) == (DeleteQueue(QUEUE, True), "ada", count)
    assert record.visited >= BURY_BATCH
    assert record.ended_at or await harness.outcomes(harness.new()) == [EnqueueOutcome.DRAINING]
    await harness.finish_chore("background_steps")
    (record,) = await harness.engine.steps([record.id])
    assert (record.changed, record.outcome, record.ended_at) == (count, Changed.DONE, harness.now)
    assert await harness.queue() is None
    assert await harness.counts() == {State.DEAD: count}
    assert [entry.detail for entry in await harness.engine.audit()] == ["force", f"begun: {count} waiting tasks"]


async def test_another_caller_waits_for_the_same_deletion(harness: Harness) -> None:
    step = await begun(harness, 3 * BURY_BATCH + 10)
    answers = [await harness.engine.delete_queue(QUEUE, force=force, now=harness.now) for force in (False, True)]
    assert answers == [Changed.UNKNOWN] * 2 if step.ended_at else [Changed.WRONG_STATE, Changed.DONE]
    assert [(record.id, record.ended_at) for record in await harness.engine.steps()] == [(step.id, harness.now)]
    await harness.add()
    await harness.finish_chore("background_steps")
    assert await harness.counts() == {State.DEAD: 3 * BURY_BATCH + 10, State.PENDING: 1}
