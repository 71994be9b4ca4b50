"""history: what happened to a task, oldest first."""

from __future__ import annotations

from dibs.core.task import HISTORY_LIMIT, HistoryEvent, Outcome
from dibs.core.times import HOUR, SECOND, Instant
from dibs.testing.conformance.harness import Harness


async def last_entry(harness: Harness, task_id: str) -> tuple[HistoryEvent, Instant | None, Instant]:
    """What happened last: the event, the start of the run, and when it happened."""
    entry = (await harness.engine.history(task_id))[-1]
    return entry.event, entry.started_at, entry.at


async def test_history_of_an_unknown_task_is_empty(harness: Harness) -> None:
    assert await harness.engine.history(harness.new_id()) == []


async def test_the_newest_are_kept(harness: Harness) -> None:
    task = await harness.start()
    for number in range(HISTORY_LIMIT + 2):
        await harness.settle(task, Outcome.RELEASED, note=str(number))
        task = await harness.take(task.id)
    entries = await harness.engine.history(task.id)
    assert {entry.event for entry in entries} == {HistoryEvent.RELEASED}
    assert [entry.note for entry in entries] == [str(number) for number in range(2, HISTORY_LIMIT + 2)]


async def test_the_end_of_a_run_tells_its_start(harness: Harness) -> None:
    ends = [
        (Outcome.FAILED, HistoryEvent.FAILED),
        (Outcome.RELEASED, HistoryEvent.RELEASED),
        (Outcome.SNOOZED, HistoryEvent.SNOOZED),
        (Outcome.CANCELLED, HistoryEvent.CANCELLED),
        (Outcome.PERMANENT, HistoryEvent.DEAD),
    ]
    for outcome, event in ends:
        task = await harness.start(queue=str(outcome))
        harness.later(SECOND)
        await harness.settle(task, outcome)
        assert await last_entry(harness, task.id) == (event, harness.now - SECOND, harness.now)


async def test_each_run_tells_its_own_start(harness: Harness) -> None:
    task = await harness.start()
    starts = []
    for _ in range(3):
        starts.append(harness.now)
        harness.later(SECOND)
        await harness.settle(task, Outcome.FAILED, timed_out=True)
        harness.later(HOUR)
        task = await harness.take(task.id)
    entries = await harness.engine.history(task.id)
    assert [(entry.event, entry.started_at) for entry in entries] == [(HistoryEvent.TIMED_OUT, at) for at in starts]


async def test_a_lost_run_tells_its_start(harness: Harness) -> None:
    task = await harness.start()
    started_at = harness.now
    harness.later(HOUR)
    await harness.engine.rescue(now=harness.now)
    assert await last_entry(harness, task.id) == (HistoryEvent.LOST, started_at, harness.now)


async def test_what_is_no_id_has_no_history(harness: Harness) -> None:
    for nonsense in ("nonsense", "ünï", ""):
        assert await harness.engine.history(nonsense) == []
