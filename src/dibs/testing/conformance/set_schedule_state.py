"""set_schedule_state: schedules are paused, resumed and deleted by name."""

from __future__ import annotations

from dibs.core.recurrence import Recurrence
from dibs.core.times import DAY, HOUR, MINUTE
from dibs.engines.topics import SCHEDULES
from dibs.engines.values import Changed
from dibs.testing.conformance.harness import Harness
from dibs.testing.conformance.schedule_help import TEMPLATE, acts, delete, pause, put, schedule
from dibs.testing.conformance.subscribe import notifies
from dibs.testing.tasks import changed


async def test_pause_and_resume(harness: Harness) -> None:
    await put(harness)
    assert await pause(harness) is Changed.DONE
    assert await pause(harness) is Changed.UNCHANGED
    assert (await schedule(harness)).paused
    harness.later(DAY + MINUTE)
    assert await pause(harness, False) is Changed.DONE
    assert await pause(harness, False) is Changed.UNCHANGED
    record = await schedule(harness)
    assert (record.paused, record.next_fire_at) == (False, harness.now + HOUR), "what it missed is not caught up"
    assert await acts(harness) == [
        ("ada", "set schedule", "s"),
        ("ada", "pause schedule", "s"),
        ("ada", "resume schedule", "s"),
    ]


async def test_a_new_task_does_not_resume_it(harness: Harness) -> None:
    await put(harness, declared=True)
    await pause(harness)
    await put(harness, task=changed(TEMPLATE, priority=90), declared=True)
    await put(harness, recurrence=Recurrence(every=DAY), declared=True)
    assert (await schedule(harness)).paused


async def test_delete(harness: Harness) -> None:
    await put(harness)
    assert await delete(harness) is Changed.DONE
    assert await harness.engine.schedules() == []
    assert await delete(harness) is Changed.UNKNOWN
    assert await acts(harness) == [("ada", "set schedule", "s"), ("ada", "delete schedule", "s")]


async def test_unknown_ones(harness: Harness) -> None:
    assert await pause(harness) is Changed.UNKNOWN
    assert await delete(harness) is Changed.UNKNOWN
    assert await acts(harness) == []


async def test_every_change_notifies(harness: Harness) -> None:
    assert await notifies(harness, SCHEDULES, put(harness))
    assert await notifies(harness, SCHEDULES, put(harness, recurrence=Recurrence(every=MINUTE)))
    assert await notifies(harness, SCHEDULES, pause(harness))
    assert await notifies(harness, SCHEDULES, pause(harness, False))
    assert await notifies(harness, SCHEDULES, delete(harness))
