"""Looking for lost tasks: what a caller tells the store of its clock, and when it leaves others' leases alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dibs.client import consumer
from dibs.client.app import Dibs
from dibs.core.policy import RESCUE_BATCH
from dibs.core.task import NewTask
from dibs.core.times import MINUTE, SECOND, Duration, Instant
from dibs.engines.memory import MemoryEngine
from dibs.engines.values import ClaimRequest, Rescued
from dibs.runtime.rescue import HOLD_OFF, Rescue

START: Instant = 1_760_000_000 * SECOND
LEASE: Duration = 2 * SECOND


class TurnedEngine(MemoryEngine):
    """A store whose clock, and the caller's own, are turned by hand; also while a rescue is on its way."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.own = 100.0
        self.delay = 0.0

    def later(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)
        self.own += seconds

    async def rescue(self, **known: Any) -> Rescued:
        delay, self.delay = self.delay, 0.0
        self.later(delay)
        return await super().rescue(**{**known, "now": self.now})

    async def lease(self, number: int = 1, lease: Duration = LEASE) -> list[str]:
        """Tasks that somebody has begun just now."""
        await self.open()
        news = [NewTask(id=f"{self.now}-{place:04}", queue="q", name="n") for place in range(number)]
        await self.enqueue(news, now=self.now)
        request = ClaimRequest(worker="w", sequence=self.now, queues=("q",), limit=number, lease=lease)
        return [task.id for task in (await self.claim(request, now=self.now)).tasks]

    def looks(self, newcomer: Duration | None = None) -> Rescue:
        return Rescue(Dibs("memory://", engine=self).hub, newcomer=newcomer, monotonic=lambda: self.own)

    def known(self) -> Rescue:
        """The looks of somebody who has been there for a while."""
        rescue = self.looks()
        for _ in range(round(HOLD_OFF) + 1):
            look(rescue)
            self.later(1)
        look(rescue)
        return rescue


@pytest.fixture
def store() -> TurnedEngine:
    return TurnedEngine()


def look(rescue: Rescue) -> Rescued:
    return asyncio.run(rescue.look())


def lease(store: TurnedEngine, number: int = 1, lease: Duration = LEASE) -> list[str]:
    return asyncio.run(store.lease(number, lease))


def test_what_had_ended_at_the_look_before_is_taken(store: TurnedEngine) -> None:
    rescue, tasks = store.known(), lease(store)
    for _ in range(2):
        store.later(1)
        assert look(rescue).ids == []
    store.later(1)
    assert look(rescue).ids == tasks
    assert not rescue.holds_off(store.own)


def test_a_newcomer_leaves_leases_alone_at_first(store: TurnedEngine) -> None:
    """It can't know whether the store stood still, or its clock was set, until just now."""
    tasks, rescue = lease(store, lease=SECOND), store.looks()
    store.later(3600)
    for _ in range(round(HOLD_OFF)):
        assert look(rescue).ids == []
        store.later(1)
    assert look(rescue).ids == []
    store.later(1)
    assert look(rescue).ids == tasks


def test_who_may_come_only_once_takes_what_ended_long_ago(store: TurnedEngine) -> None:
    tasks = lease(store)
    store.later(61)
    assert look(store.looks(MINUTE)).ids == []
    store.later(1)
    assert look(store.looks(MINUTE)).ids == tasks


def test_a_look_that_is_held_up_takes_nothing_and_then_holds_off(store: TurnedEngine) -> None:
    rescue, tasks = store.known(), lease(store)
    store.later(1)
    store.delay = 2.4
    rescued = look(rescue)
    assert (rescued.stalled, rescued.ids) == (True, [])
    store.later(HOLD_OFF - 0.1)
    assert rescue.holds_off(store.own)
    store.later(0.2)
    assert not rescue.holds_off(store.own)
    assert look(rescue).ids == tasks, "its holder has had its time"
    assert not rescue.holds_off(store.own), "looks that were not meant are not missed"


def test_a_stall_between_two_looks_costs_nothing(store: TurnedEngine) -> None:
    """Shorter than what could be noticed, but longer than the rest of a lease."""
    rescue, _ = store.known(), lease(store, lease=SECOND)
    store.later(1.1)
    assert look(rescue).ids == []
    assert not rescue.holds_off(store.own)


def test_a_process_that_slept_holds_off(store: TurnedEngine) -> None:
    rescue, tasks = store.known(), lease(store)
    store.later(60)
    assert look(rescue).ids == []
    assert rescue.holds_off(store.own + HOLD_OFF - 0.1)
    store.later(HOLD_OFF)
    assert look(rescue).ids == tasks


def test_a_machine_that_slept_holds_off(store: TurnedEngine) -> None:
    """Its own clock stood still as well: only the store's tells."""
    rescue, _ = store.known(), lease(store)
    store.now += MINUTE
    store.own += 1
    assert look(rescue).stalled
    assert rescue.holds_off(store.own + HOLD_OFF - 0.1)


def test_who_looks_now_and_then_takes_what_had_ended_then(store: TurnedEngine) -> None:
    rescue, tasks, found = store.looks(), lease(store), []
    for _ in range(6):
        store.later(5)
        if not rescue.holds_off(store.own):
            found += look(rescue).ids
    assert found == tasks


def test_a_clock_that_is_set_back_stops_nobody(store: TurnedEngine) -> None:
    rescue = store.known()
    store.now -= 3600 * SECOND
    tasks = lease(store)
    store.later(1)
    assert look(rescue).ids == []
    store.later(1.5)
    look(rescue)
    store.later(1)
    assert look(rescue).ids == tasks


def test_what_one_look_could_not_take_the_next_takes_at_once_but_no_more(store: TurnedEngine) -> None:
    rescue, tasks = store.known(), lease(store, RESCUE_BATCH + 1, lease=SECOND)
    store.later(1)
    look(rescue)
    later = lease(store, lease=SECOND // 2)
    store.later(1)
    assert look(rescue).ids == tasks[:RESCUE_BATCH]
    store.later(0.05)
    assert look(rescue).ids == tasks[RESCUE_BATCH:]
    store.later(0.05)
    assert look(rescue).ids == later


def test_own_loops_are_as_careful(store: TurnedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "RESCUE_EVERY", 0)
    engine: Any = store
    with Dibs("memory://", engine=engine) as app:
        rescue = app._consumer._rescue
        monkeypatch.setattr(rescue, "_monotonic", lambda: store.own)
        app.claim()
        [task] = app.hub.runner.run(store.lease())
        store.later(1)
        store.delay = 30
        app.claim(["elsewhere"])
        assert rescue.holds_off(store.own)
        record = app.tasks.get(task)
        assert (record.state, record.losses) == ("running", 0)
