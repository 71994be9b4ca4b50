"""history: what happened to a task, oldest first."""

from __future__ import annotations

from dibs.core.task import HISTORY_LIMIT, HistoryEvent, Outcome
from dibs.testing.conformance.harness import Harness


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
