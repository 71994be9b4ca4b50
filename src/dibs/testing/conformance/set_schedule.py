"""set_schedule: created or replaced by name; the next fire is part of the record."""

from __future__ import annotations

from msgspec import structs

from dibs.core.recurrence import Recurrence, first_fire
from dibs.core.schedules import ScheduleRecord
from dibs.core.times import DAY, HOUR, MINUTE
from dibs.engines.values import Changed
from dibs.testing.conformance.harness import Harness
from dibs.testing.conformance.schedule_help import HOURLY, NIGHTLY, TEMPLATE, acts, put, schedule
from dibs.testing.tasks import changed


async def test_a_new_one_waits_for_its_first_fire(harness: Harness) -> None:
    assert await put(harness) is Changed.DONE
    assert await harness.engine.schedules() == [
        ScheduleRecord(
            name="s", recurrence=HOURLY, task=TEMPLATE, next_fire_at=harness.now + HOUR, created_at=harness.now
        )
    ]
    assert await put(harness, "nightly", NIGHTLY) is Changed.DONE
    assert (await schedule(harness, "nightly")).next_fire_at == first_fire(NIGHTLY, harness.now)


async def test_the_same_again_is_unchanged(harness: Harness) -> None:
    await put(harness)
    before = await schedule(harness)
    harness.later(MINUTE)
    assert await put(harness) is Changed.UNCHANGED
    assert await schedule(harness) == before
    assert await acts(harness) == [("ada", "set schedule", "s")]


async def test_another_task_keeps_the_next_fire(harness: Harness) -> None:
    await put(harness)
    before = await schedule(harness)
    harness.later(MINUTE)
    other = changed(TEMPLATE, args=b'{"n":2}', priority=90)
    assert await put(harness, task=other) is Changed.DONE
    assert await schedule(harness) == structs.replace(before, task=other)
    assert len(await acts(harness)) == 2


async def test_another_recurrence_starts_again(harness: Harness) -> None:
    await put(harness)
    created = harness.now
    harness.later(MINUTE)
    assert await put(harness, recurrence=Recurrence(every=DAY)) is Changed.DONE
    record = await schedule(harness)
    assert (record.next_fire_at, record.created_at) == (harness.now + DAY, created)


async def test_a_declaration_is_dated(harness: Harness) -> None:
    assert await put(harness, declared=True) is Changed.DONE
    record = await schedule(harness)
    assert (record.declared, record.declared_at) == (True, harness.now)
    harness.later(DAY)
    assert await put(harness, declared=True) is Changed.UNCHANGED
    again = await schedule(harness)
    assert again == structs.replace(record, declared_at=harness.now)
    assert len(await acts(harness)) == 1


async def test_one_made_by_hand_is_not_declared(harness: Harness) -> None:
    await put(harness)
    record = await schedule(harness)
    assert (record.declared, record.declared_at) == (False, None)


async def test_a_schedule_makes_no_queue(harness: Harness) -> None:
    await put(harness)
    assert await harness.engine.queues() == []
