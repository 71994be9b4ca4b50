"""The state machine is worth its time: it finds bugs that are planted in damaged copies of the memory engine, and in
the decisions that engines share.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from msgspec import structs

from dibs.core.graph import Rule
from dibs.core.limits import Scope
from dibs.core.schedules import ScheduleRecord
from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import Kind, Lease, Settlement, TaskRecord
from dibs.core.times import Instant
from dibs.engines.decisions.dependencies import Ends, judged
from dibs.engines.decisions.records import Ledger
from dibs.engines.decisions.schedules import schedule_paused
from dibs.engines.decisions.settling import settle_one
from dibs.engines.decisions.steps import Step
from dibs.engines.decisions.transaction import Transaction
from dibs.engines.memory import MemoryEngine
from dibs.engines.memory.edges import Edges, Link
from dibs.engines.memory.pending_index import Entry, PendingIndex, Place
from dibs.engines.memory.store import Queue, Store
from dibs.engines.sqlite import SqliteEngine
from dibs.engines.values import (
    Claimed,
    ClaimRequest,
    ExtendAnswer,
    Extension,
    SettleAnswer,
    SettleOutcome,
)
from dibs.testing.model import PROFILE, check_engine

QUICK = settings(PROFILE, max_examples=500, phases=(Phase.generate,), database=None)


class FencelessEngine(MemoryEngine):
    """settle does not look at the lease number: any worker may report about any run."""

    async def settle(self, settlements: Sequence[Settlement], *, now: Instant | None = None) -> list[SettleOutcome]:
        current = [await self.current(settlement.lease) for settlement in settlements]
        waved = [structs.replace(each, lease=lease) for each, lease in zip(settlements, current, strict=True)]
        return await super().settle(waved, now=now)

    async def current(self, lease: Lease) -> Lease:
        (record,) = await self.get([lease.id])
        return lease if record is None else Lease(lease.id, record.lease)


class ZombieEngine(FencelessEngine):
    """extend keeps the current lease, whatever lease the caller has; settle is sound."""

    async def settle(self, settlements: Sequence[Settlement], *, now: Instant | None = None) -> list[SettleOutcome]:
        return await MemoryEngine.settle(self, settlements, now=now)

    async def extend(self, extensions: Sequence[Extension], *, now: Instant | None = None) -> list[ExtendAnswer]:
        waved = [structs.replace(each, lease=await self.current(each.lease)) for each in extensions]
        return await super().extend(waved, now=now)


class DamagedStore(Store):
    """A store whose shelves are of another kind."""

    pending_index: type[PendingIndex] = PendingIndex

    def queue(self, name: str) -> Queue:
        return self.damaged(super().queue(name))

    def restock(self, queue: Queue) -> None:
        super().restock(queue)
        self.damaged(queue)

    def damaged(self, queue: Queue) -> Queue:
        queue.pending_index.__class__ = self.pending_index
        return queue


class FifoIndex(PendingIndex):
    def in_order(self, share: str, lane: int, kind: Kind) -> Iterator[TaskRecord]:
        yield from sorted(super().in_order(share, lane, kind), key=lambda record: record.id)


class FifoStore(DamagedStore):
    """Hands tasks out in the order of their ids, whatever their rank."""

    pending_index = FifoIndex


class ForgetfulIndex(PendingIndex):
    def describes(self, entry: Entry, place: Place) -> bool:
        return super().describes(entry, place) and self.tasks[entry[1]].lease == 0


class ForgetfulStore(DamagedStore):
    """A task that comes back after a run is in no index: it is pending for ever."""

    pending_index = ForgetfulIndex


class UnfairIndex(PendingIndex):
    def served(self, share: str, settings: QueueSettings) -> None:
        """No turn ever ends."""


class UnfairStore(DamagedStore):
    """The first tenant is served as long as it has something."""

    pending_index = UnfairIndex


class CrowdedStore(Store):
    """Tasks that run are not counted by partition."""

    def count(self, record: TaskRecord, by: int) -> None:
        super().count(record, by)
        if record.state is State.RUNNING and record.spec.partition is not None:
            self.load[record.state, record.queue, Scope.PARTITION, record.spec.partition] -= by


class DeafEdges(Edges):
    def moved(self, old: TaskRecord | None, new: TaskRecord) -> None:
        """Nobody learns of an end or of another urgency."""


class DeafStore(Store):
    """A task that waits for another waits for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.edges = DeafEdges()


class LenientEdges(Edges):
    def rule(self, link: Link) -> Rule:
        return Rule.RUN


class LenientStore(Store):
    """Whatever its edges say, a task runs after the end of what it waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.edges = LenientEdges()


def on(store: type[Store]) -> Callable[[], MemoryEngine]:
    """An engine on a damaged store."""
    return lambda: MemoryEngine(store())


class GreedyEngine(MemoryEngine):
    """A repeated claim takes more tasks instead of answering what was taken before."""

    async def claim(self, request: ClaimRequest, *, now: Instant | None = None) -> Claimed:
        return await super().claim(structs.replace(request, repeat=False), now=now)


STORES = [FifoStore, ForgetfulStore, UnfairStore, CrowdedStore, DeafStore, LenientStore]
ENGINES = [FencelessEngine, ZombieEngine, GreedyEngine]
DAMAGED = {store.__name__: on(store) for store in STORES} | {engine.__name__: engine for engine in ENGINES}


@pytest.mark.parametrize("damaged", DAMAGED)
def test_planted_bug_is_found(damaged: str) -> None:
    with pytest.raises(AssertionError):
        check_engine(DAMAGED[damaged], QUICK)


# What engines share, they get wrong together. The oracle decides for itself.


def settle_with_any_lease(transaction: Transaction, records: Ledger, settlement: Settlement) -> SettleAnswer:
    """The number of the lease is not compared."""
    record = records.get(settlement.lease.id)
    if record is not None:
        settlement = structs.replace(settlement, lease=Lease(record.id, record.lease))
    return settle_one(transaction, records, settlement)


def judge_leniently(steps: list[Step], edges: Iterable[tuple[int, str, int, Rule]]) -> tuple[Ends, list[str]]:
    """Whatever an edge says about the end of its prerequisite, the dependent goes on."""
    ends, goes = judged(steps, edges)
    return {}, [*goes, *ends]


def resume_and_catch_up(old: ScheduleRecord, paused: bool, now: Instant) -> ScheduleRecord:
    """A schedule that goes on fires what it missed while it was paused."""
    return structs.replace(old, paused=paused)


SHARED = [(settle_one, settle_with_any_lease), (judged, judge_leniently)]


def damage(monkeypatch: pytest.MonkeyPatch, sound: Callable[..., object], damaged: Callable[..., object]) -> None:
    """Put a damaged decision in the place of a sound one, wherever that is imported."""
    name = sound.__name__
    for module in [each for key, each in sys.modules.items() if key.startswith("dibs.engines.")]:
        if getattr(module, name, None) is sound:
            monkeypatch.setattr(module, name, damaged)


@pytest.mark.parametrize(("sound", "damaged"), SHARED, ids=lambda decision: decision.__name__)
def test_bug_in_a_shared_decision_is_found(
    sound: Callable[..., object], damaged: Callable[..., object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    damage(monkeypatch, sound, damaged)
    numbers = count(1)
    with pytest.raises(AssertionError):
        check_engine(lambda: SqliteEngine(tmp_path / f"{next(numbers)}.db"), QUICK)


def test_bug_in_what_memory_shares_too_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    damage(monkeypatch, schedule_paused, resume_and_catch_up)
    with pytest.raises(AssertionError):
        check_engine(MemoryEngine, QUICK)
