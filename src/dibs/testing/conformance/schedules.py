"""schedules: set, paused, resumed and deleted by name; the next fire is part of the record."""

from __future__ import annotations

from msgspec import structs

from dibs.core.schedules import CatchUp, Overlap, Recurrence, ScheduleRecord, ScheduleState, first_fire
from dibs.core.settings import Defaults
from dibs.core.task import NewTask
from dibs.core.times import DAY, HOUR, MINUTE, SECOND
from dibs.engines.values import SCHEDULES, Changed
from dibs.testing.conformance.harness import QUEUE, Harness
from dibs.testing.conformance.subscribe import rings

HOURLY = Recurrence(every=HOUR)
NIGHTLY = Recurrence(cron="30 2 * * *", tz="Europe/Zurich")
TEMPLATE = NewTask(id="", queue=QUEUE, name="report")


async def put(
    harness: Harness,
    name: str = "s",
    recurrence: Recurrence = HOURLY,
    task: NewTask = TEMPLATE,
    *,
    declared: bool = False,
) -> Changed:
    return await harness.engine.set_schedule(name, recurrence, task, declared=declared, actor="ada", now=harness.now)


async def schedule(harness: Harness, name: str = "s") -> ScheduleRecord:
    """A schedule that must be there."""
    return next(record for record in await harness.engine.schedules() if record.name == name)


async def pause(harness: Harness, paused: bool = True, name: str = "s") -> Changed:
    return await harness.engine.set_schedule_state(
        name, ScheduleState.PAUSED if paused else ScheduleState.ACTIVE, actor="ada", now=harness.now
    )


async def delete(harness: Harness, name: str = "s") -> Changed:
    return await harness.engine.set_schedule_state(name, ScheduleState.DELETED, actor="ada", now=harness.now)


async def acts(harness: Harness) -> list[tuple[str, str, str]]:
    """The audit, oldest first."""
    return [(entry.actor, entry.act, entry.target) for entry in reversed(await harness.engine.audit())]


async def test_a_new_one_waits_for_its_first_fire(harness: Harness) -> None:
    assert await put(harness) is Changed.DONE
    assert await harness.engine.schedules() == [
        ScheduleRecord(
            name="s", recurrence=HOURLY, task=TEMPLATE, next_fire_at=harness.now + HOUR, created_at=harness.now
        )
    ]
    assert await put(harness, "nightly", NIGHTLY) is Changed.DONE
    assert (await schedule(harness, "nightly")).next_fire_at == first_fire(NIGHTLY, harness.now)


async def test_everything_given_comes_back(harness: Harness) -> None:
    recurrence = Recurrence(
        cron="*/5 * * * *",
        tz="America/New_York",
        jitter=SECOND,
        catch_up=CatchUp.ALL,
        catch_up_limit=7,
        overlap=Overlap.SKIP,
    )
    task = structs.replace(
        TEMPLATE,
        args=b'{"n":1}',
        priority=73,
        options=Defaults(retries=9),
        metadata={"a": [1]},
        headers={"h": "x"},
        tenant="acme",
        partition="p",
        requires=("gpu",),
    )
    await put(harness, recurrence=recurrence, task=task)
    record = await schedule(harness)
    assert (record.recurrence, record.task) == (recurrence, task)


async def test_by_name(harness: Harness) -> None:
    for name in ("b", "a", "c"):
        await put(harness, name)
    assert [record.name for record in await harness.engine.schedules()] == ["a", "b", "c"]


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
    other = structs.replace(TEMPLATE, args=b'{"n":2}', priority=90)
    assert await put(harness, task=other) is Changed.DONE
    assert await schedule(harness) == structs.replace(before, task=other)
    assert len(await acts(harness)) == 2


async def test_another_rhythm_starts_anew(harness: Harness) -> None:
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
    await put(harness, task=structs.replace(TEMPLATE, priority=90), declared=True)
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


async def test_every_change_rings(harness: Harness) -> None:
    assert await rings(harness, SCHEDULES, put(harness))
    assert await rings(harness, SCHEDULES, put(harness, recurrence=Recurrence(every=MINUTE)))
    assert await rings(harness, SCHEDULES, pause(harness))
    assert await rings(harness, SCHEDULES, pause(harness, False))
    assert await rings(harness, SCHEDULES, delete(harness))


async def test_a_schedule_makes_no_queue(harness: Harness) -> None:
    await put(harness)
    assert await harness.engine.queues() == []
