"""The pending tasks of a queue, and which of them start next: the choice is the engines' own."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from dibs.core.limits import Scope
from dibs.core.priority import CLIMBING, LEVEL, rank
from dibs.core.settings import Policy, QueueSettings
from dibs.core.times import Instant
from dibs.engines.decisions.choosing import Choice, Chosen, Head, NeedMore, QueueCursor, startable
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.transaction import FIRST_EPOCH, Queue
from dibs.engines.values import ClaimRequest
from dibs.simulation.arrivals import Arrivals
from dibs.simulation.heaps import Heaps
from dibs.simulation.limits import Limits
from dibs.simulation.turns import TurnOrders

__all__ = ["NOT_STARTED", "Pending"]

NOT_STARTED: Instant = -1
QUEUE = "queue"
OTHER = ""
"""The name of the tracks of all tasks whose names have no limit."""


class Pending:
    """The pending tasks of one queue, and the slots and tokens that the running ones hold."""

    def __init__(self, arrivals: Arrivals, settings: QueueSettings) -> None:
        self.started: list[Instant] = [NOT_STARTED] * len(arrivals)
        self._arrivals = arrivals
        self._settings = settings
        self._queue = Queue(QUEUE, settings=settings)
        names, lanes = [OTHER, *settings.per_task], (CLIMBING, LEVEL) if has_two_lanes(settings) else (CLIMBING,)
        kinds = [(name, lane) for name in names for lane in lanes]
        self._numbers = {kind: number for number, kind in enumerate(kinds)}
        self._tracks = [
            Track(number, QUEUE, name, (), lane, FIRST_EPOCH, settings.fair)
            for (name, lane), number in self._numbers.items()
        ]
        self._heaps = Heaps()
        self._limits = Limits(self._queue)
        self._turn_orders = TurnOrders(len(self._tracks))
        self._reranks: list[tuple[Instant, int]] = []
        self._changed: set[str] = set()
        """Partitions that may have headroom for gated tasks."""
        self._refills: list[tuple[Instant, str]] = []
        """When partitions with gated tasks have a token again."""

    @property
    def count(self) -> int:
        return len(self._heaps.pending)

    def add(self, task: int) -> None:
        """A task is ready."""
        self._put(task, self._arrivals.ready[task])

    def claim(self, free: int, now: Instant) -> list[int]:
        """Start as many tasks as there are free slots, if limits allow."""
        self._rerank(now)
        started: list[int] = []
        more = True
        while more and self.count and len(started) < free:
            self._ungate(now)
            self._limits.open(now)
            tracks = startable(self._limits, self._queue, self._tracks)
            if not tracks:
                break
            if self._settings.fair:
                self._heaps.turns[QUEUE] = self._turn_orders.open(tracks)
            cursor = QueueCursor(self._heaps, self._queue, 0, tracks, self._limits)
            for chosen in self._choose(cursor, free - len(started), now):
                started.append(int(chosen.head.id))
                self.started[started[-1]] = now
                del self._heaps.pending[chosen.head.id]
                self._limits.start(chosen.counted)
            if self._settings.per_partition is not None:
                self._gate(cursor.blocked, now)
            if cursor.turns is not None:
                self._turn_orders.close(cursor.turns, cursor.clock, cursor.served, self._heaps)
            more = cursor.is_truncated
        return started

    def _choose(self, cursor: QueueCursor, wanted: int, now: Instant) -> list[Chosen]:
        """What starts. Only turns are read on the way, and none of names that are at their limits by then."""
        whole = self._limits.of(self._queue, Scope.QUEUE, "")
        left = wanted if whole is None or whole.left is None else min(wanted, whole.left)
        choice = Choice([cursor], ClaimRequest(worker="", queues=(QUEUE,), limit=left, sequence=0), now)
        while isinstance(chosen := choice.go_on(), NeedMore):
            tracks = startable(self._limits, self._queue, self._tracks)
            self._turn_orders.read_more(self._heaps.turns[QUEUE], tracks)
        return chosen

    def _gate(self, blocked: Iterable[str], now: Instant) -> None:
        """Gate the tasks that may not start because their partitions are full. In others, more may start."""
        for task_id in blocked:
            self._heaps.gate(self._heaps.pending[task_id], self._share(int(task_id)))
        for (_, scope, name), headroom in self._limits.known.items():
            if scope is Scope.PARTITION:
                if (refills_in := headroom.refills_in) is not None:
                    heappush(self._refills, (now + refills_in, name))
                elif not headroom.is_full:
                    self._changed.add(name)

    def _ungate(self, now: Instant) -> None:
        """Where a partition may have headroom, claims see the first gated tasks again."""
        while self._refills and self._refills[0][0] <= now:
            self._changed.add(heappop(self._refills)[1])
        while self._changed:
            for track, share in self._heaps.ungate(Partition(QUEUE, self._changed.pop()).key):
                if self._settings.fair:
                    self._turn_orders.enter(track, share)

    def end(self, task: int) -> None:
        """A running task has ended."""
        if self._settings.limits_starts:
            partition = self._arrivals.partition[task]
            self._limits.end(self._arrivals.name[task], partition)
            if partition is not None and self._settings.per_partition is not None:
                self._changed.add(partition)

    def refill_at(self, now: Instant) -> Instant | None:
        """When the next task that waits for a token may start. Called when none may start now."""
        if not self.count or not self._settings.limits_starts:
            return None
        waits = [each.refills_in for (_, scope, _), each in self._limits.known.items() if scope is not Scope.PARTITION]
        instants = [now + wait for wait in waits if wait is not None]
        return min([*instants, *(at for at, _ in self._refills[:1])], default=None)

    def _share(self, task: int) -> str:
        return self._arrivals.tenant[task] if self._settings.fair else ""

    def _put(self, task: int, now: Instant) -> None:
        """Put a task where it ranks now, and note when it is to be ranked again."""
        settings, arrivals, ready_at = self._settings, self._arrivals, self._arrivals.ready[task]
        priority, deadline = arrivals.priority[task], arrivals.deadline[task]
        ranking = rank(settings, priority=priority, deadline=deadline, ready_at=ready_at, now=now)
        name = arrivals.name[task] if arrivals.name[task] in settings.per_task else OTHER
        track, share = self._numbers[name, ranking.lane], self._share(task)
        partition = arrivals.partition[task] if settings.per_partition is not None else None
        partition_key = None if partition is None else Partition(QUEUE, partition).key
        self._heaps.put(Head(ready_at + ranking.offset, f"{task:08d}", ready_at, track, partition_key), share)
        if settings.fair:
            self._turn_orders.enter(track, share)
        if ranking.rerank_in is not None:
            heappush(self._reranks, (ready_at + ranking.rerank_in, task))

    def _rerank(self, now: Instant) -> None:
        """Rank the tasks that are due again. A rank only depends on now, so steps in between can be skipped."""
        while self._reranks and self._reranks[0][0] <= now:
            task = heappop(self._reranks)[1]
            if self.started[task] == NOT_STARTED:
                self._put(task, now)


def has_two_lanes(settings: QueueSettings) -> bool:
    return settings.policy is Policy.AGING and settings.max_aging_bonus is not None
