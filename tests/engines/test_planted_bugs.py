"""The state machine is worth its time: it finds bugs that are planted in damaged copies of the memory engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify

import pytest
from hypothesis import Phase, settings
from msgspec import structs

from dibs.core.states import State
from dibs.core.task import HistoryEntry, Kind, Lease, Settlement, TaskRecord
from dibs.core.times import Instant
from dibs.engines.base import Claimed, ClaimRequest, ExtendAnswer, Extension, SettleOutcome
from dibs.engines.memory import MemoryEngine
from dibs.engines.memory.store import Store
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
    """extend keeps whatever lease is current, whoever asks; settle is sound."""

    async def settle(self, settlements: Sequence[Settlement], *, now: Instant | None = None) -> list[SettleOutcome]:
        return await MemoryEngine.settle(self, settlements, now=now)

    async def extend(self, extensions: Sequence[Extension], *, now: Instant | None = None) -> list[ExtendAnswer]:
        waved = [structs.replace(each, lease=await self.current(each.lease)) for each in extensions]
        return await super().extend(waved, now=now)


class FifoStore(Store):
    """Hands tasks out in the order of their ids, whatever their rank."""

    def lane_order(self, queue: str, lane: int, kind: Kind) -> Iterator[TaskRecord]:
        yield from sorted(super().lane_order(queue, lane, kind), key=lambda record: record.id)


class FifoEngine(MemoryEngine):
    def __init__(self) -> None:
        super().__init__(FifoStore())


class ForgetfulStore(Store):
    """A task that comes back after a run is in no index: it is pending for ever."""

    def put(self, record: TaskRecord, entry: HistoryEntry | None = None) -> None:
        super().put(record, entry)
        if record.state is State.PENDING and record.lease > 0:
            heap = self.pending[record.queue][record.lane][record.kind]
            heap.remove((record.rank, record.id))
            heapify(heap)


class ForgetfulEngine(MemoryEngine):
    def __init__(self) -> None:
        super().__init__(ForgetfulStore())


class GreedyEngine(MemoryEngine):
    """A repeated claim takes more tasks instead of answering what was taken before."""

    async def claim(self, request: ClaimRequest, *, now: Instant | None = None) -> Claimed:
        return await super().claim(structs.replace(request, repeat=False), now=now)


@pytest.mark.parametrize("damaged", [FencelessEngine, ZombieEngine, FifoEngine, ForgetfulEngine, GreedyEngine])
def test_planted_bug_is_found(damaged: type[MemoryEngine]) -> None:
    with pytest.raises(AssertionError):
        check_engine(damaged, QUICK)
