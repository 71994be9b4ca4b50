"""schedules: by name, with everything that was given."""

from __future__ import annotations

from dibs.core.recurrence import CatchUp, Overlap, Recurrence
from dibs.core.settings import Defaults
from dibs.core.times import SECOND
from dibs.testing.conformance.harness import Harness
from dibs.testing.conformance.schedule_help import TEMPLATE, put, schedule
from dibs.testing.tasks import changed


async def test_everything_given_comes_back(harness: Harness) -> None:
    recurrence = Recurrence(
        cron="*/5 * * * *",
        tz="America/New_York",
        jitter=SECOND,
        catch_up=CatchUp.ALL,
        catch_up_limit=7,
        overlap=Overlap.SKIP,
    )
    task = changed(
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
