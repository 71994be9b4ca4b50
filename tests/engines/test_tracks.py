"""Tracks: what their tasks have in common."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from dibs.core.settings import Limit, QueueSettings, Tier
from dibs.core.task import NewTask
from dibs.engines.decisions.facts import MIXED, Track
from dibs.engines.decisions.transaction import Queue
from dibs.engines.memory import MemoryEngine
from dibs.engines.postgres.catalog import MOST_TRACKS, Catalog
from dibs.testing.tasks import changed


def track(band: int) -> Track:
    return Track(1, "q", "a", (), 0, 1, False, band)


def test_every_band_has_a_tier() -> None:
    assert {tier: track(band).tier for tier, band in MIXED.items()} == {tier: tier for tier in Tier}
    assert [track(band).tier for band in (30, 50, 70, 90)] == list(Tier)
    assert [track(band).is_mixed for band in (-1, -4, 0, 90)] == [True, True, False, False]


def catalog(tracks: int = 0, **settings: Any) -> Catalog:
    made = Catalog()
    made.queues["q"] = Queue("q", settings=QueueSettings(**settings))
    for number in range(tracks):
        made.add(Track(number, "q", f"other{number}", (), 0, 1))
    return made


def band(catalog: Catalog, priority: int, in_order: bool = True) -> int:
    return catalog.track_key("q", "a", (), 0, priority, in_order=in_order)[-1]


@pytest.mark.parametrize(("priority", "mixed"), [(30, MIXED[Tier.LOW]), (51, MIXED[Tier.MEDIUM]), (0, MIXED[Tier.LOW])])
def test_a_task_in_the_order_of_its_arrival_has_a_band_of_its_priority(priority: int, mixed: int) -> None:
    assert (band(catalog(), priority), band(catalog(), priority, in_order=False)) == (priority, mixed)
    assert track(priority).tier == track(mixed).tier


@pytest.mark.parametrize("settings", [{"fair": True}, {"max_concurrent": 5}, {"per_partition": Limit(1)}])
def test_where_claims_start_at_the_beginning_only_named_priorities_have_bands(settings: dict[str, Any]) -> None:
    assert (band(catalog(**settings), 50), band(catalog(**settings), 51)) == (50, MIXED[Tier.MEDIUM])


def test_a_queue_has_only_so_many_tracks_for_priorities_without_a_name() -> None:
    full = catalog(MOST_TRACKS)
    assert (band(full, 50), band(full, 51)) == (50, MIXED[Tier.MEDIUM])
    full.add(Track(MOST_TRACKS, "q", "a", (), 0, 1, False, 51))
    assert band(full, 51) == 51, "it is there already"


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
