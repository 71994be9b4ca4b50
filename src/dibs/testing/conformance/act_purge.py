"""purge: ended tasks are forgotten, unfinished ones never."""

from __future__ import annotations

from dibs.core.states import State
from dibs.core.task import Outcome
from dibs.core.times import HOUR
from dibs.engines.values import Cancel, Changed, Purge
from dibs.testing.conformance.harness import Harness


async def test_ended_tasks_go_with_their_history(harness: Harness) -> None:
    completed, dead, cancelled = await harness.ended(), await harness.ended(Outcome.PERMANENT), await harness.add()
    await harness.engine.act([Cancel(cancelled)], now=harness.now)
    ids = [completed, dead, cancelled]
    assert await harness.engine.act([Purge(each) for each in ids], now=harness.now) == [Changed.DONE] * 3
    assert await harness.engine.get(ids) == [None] * 3
    assert [await harness.engine.history(task_id) for task_id in ids] == [[], [], []]
    assert await harness.counts() == {}


async def test_unfinished_tasks_stay(harness: Harness) -> None:
    retrying = await harness.start()
    await harness.settle(retrying, Outcome.FAILED, delay=HOUR)
    running = await harness.start()
    ids = [await harness.add(), await harness.add(delay=HOUR), running.id, retrying.id]
    assert await harness.engine.act([Purge(each) for each in ids], now=harness.now) == [Changed.WRONG_STATE] * 4
    assert None not in await harness.engine.get(ids)
    counts = {State.PENDING: 1, State.SCHEDULED: 1, State.RUNNING: 1, State.RETRYING: 1}
    assert await harness.counts() == counts


async def test_repeat_is_unknown(harness: Harness) -> None:
    task_id = await harness.ended()
    assert await harness.engine.act([Purge(task_id), Purge(task_id)], now=harness.now) == [
        Changed.DONE,
        Changed.UNKNOWN,
    ]
    assert await harness.engine.act([Purge(task_id)], now=harness.now) == [Changed.UNKNOWN]
    assert await harness.counts() == {}
