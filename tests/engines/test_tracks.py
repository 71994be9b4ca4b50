"""Tracks: what their tasks have in common."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dibs.core.settings import QueueSettings, Tier
from dibs.core.task import NewTask, TaskSpec
from dibs.engines.decisions.facts import MIXED, Track, mixed_band
from dibs.engines.memory import MemoryEngine
from dibs.engines.postgres.catalog import band_of
from dibs.testing.tasks import changed


def track(band: int) -> Track:
    return Track(1, "q", "a", (), 0, 1, False, band)


def test_every_band_has_a_tier() -> None:
    assert {tier: track(band).tier for tier, band in MIXED.items()} == {tier: tier for tier in Tier}
    assert [track(band).tier for band in (30, 50, 70, 90)] == list(Tier)
    assert [track(band).is_mixed for band in (-1, -4, 0, 90)] == [True, True, False, False]


@pytest.mark.parametrize(("priority", "band"), [(30, 30), (50, 50), (51, mixed_band(50)), (0, mixed_band(30))])
def test_the_band_of_a_new_task_is_of_its_tier(priority: int, band: int) -> None:
    new = NewTask(id="x", queue="q", name="a", spec=TaskSpec(priority=priority))
    assert band_of(new, 0) == band
    assert track(band_of(changed(new, deadline=1), 0)).tier == track(band).tier


@pytest.mark.parametrize("band", [-5, 101])
def test_a_band_that_is_none_makes_a_track_unreadable(band: int) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert((1, "q", "a", (), 0, 1, False, band, False), Track)


def test_only_a_queue_that_mixes_tiers_has_more_than_one_track() -> None:
    async def test() -> None:
        engine: Any = MemoryEngine()
        await engine.open()
        await engine.set_queue("q", QueueSettings(), expected=0)
        tasks = [NewTask(id=f"{number:036}", queue="q", name="a") for number in range(4)]
        await engine.enqueue([changed(task, priority=40 + number) for number, task in enumerate(tasks[:3])])
        assert len(engine._opened().catalog.tracks) == 1
        await engine.enqueue([changed(tasks[3], priority=90)])
        assert len(engine._opened().catalog.tracks) == 2
        await engine.close()

    asyncio.run(test())
