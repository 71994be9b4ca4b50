"""The pending tasks of a queue, and which starts next: order, shares and limits together."""

from __future__ import annotations

from heapq import heappop, heappush

from dibs.core.limits import Scope, limit_of
from dibs.core.priority import CLIMBING, LEVEL, Ranking, rank
from dibs.core.settings import Policy, QueueSettings
from dibs.core.times import Instant
from dibs.simulation.arrivals import Arrivals
from dibs.simulation.gates import Gate
from dibs.simulation.lanes import Lane, Places, PlainLane
from dibs.simulation.partitions import PartitionedLane, Partitions
from dibs.simulation.sections import Section, foremost, whose_turn
from dibs.simulation.turns import Share, VirtualTimes

__all__ = ["NOT_STARTED", "Pending"]

NOT_STARTED: Instant = -1


class Pending:
    """The pending tasks of one queue, and the slots and tokens that the running ones hold."""

    def __init__(self, arrivals: Arrivals, settings: QueueSettings) -> None:
        self.count = 0
        self.started: list[Instant] = [NOT_STARTED] * len(arrivals)
        self._arrivals = arrivals
        self._ready = arrivals.ready
        self._settings = settings
        self._lanes = (CLIMBING, LEVEL) if has_two_lanes(settings) else (CLIMBING,)
        self._times = VirtualTimes(settings)
        whole = limit_of(settings, Scope.QUEUE, "")
        self._gate = None if whole is None else Gate(whole)
        self._others = Section(None, self._times)
        self._by_name = {name: Section(limit, self._times) for name, limit in settings.per_task.items()}
        self._sections = [self._others, *self._by_name.values()]
        self._partitions = None if settings.per_partition is None else Partitions(settings.per_partition)
        self._places: Places = {}
        self._reranks: list[tuple[Instant, int]] = []
        self._first_rankings: dict[int, Ranking] = {}

    def add(self, task: int) -> None:
        """A task is ready."""
        self.count += 1
        section = self._section(task)
        section.count += 1
        ready_at = self._ready[task]
        ranking = self._first_ranking(task)
        self._put(section, task, ranking.lane, ready_at + ranking.offset)
        if ranking.rerank_in is not None:
            heappush(self._reranks, (ready_at + ranking.rerank_in, task))

    def take(self, now: Instant) -> int | None:
        """Start the task that goes first; None: none may start now."""
        if not self.count or (self._gate is not None and not self._gate.is_open(now)):
            return None
        if self._reranks and self._reranks[0][0] <= now:
            self._rerank(now)
        if self._partitions is not None:
            self._partitions.wake(now)
        found = whose_turn(self._sections, self._times, now)
        if not found:
            return None
        section, lane = foremost(found, self._settings, self._ready, now)
        head = lane.head(now)
        assert head is not None
        lane.pop()
        self._times.serve(found[0][1].tenant)
        self._start(section, head[1], now)
        return head[1]

    def end(self, task: int) -> None:
        """A running task has ended."""
        if self._gate is not None:
            self._gate.leave()
        if self._by_name and (gate := self._section(task).gate) is not None:
            gate.leave()
        if self._partitions is not None and (partition := self._arrivals.partition[task]) is not None:
            self._partitions.leave(partition)

    def refill_at(self, now: Instant) -> Instant | None:
        """When the next task that waits for a token may start. Called when none may start now."""
        if not self.count:
            return None
        if self._gate is not None and not self._gate.is_open(now):
            return self._gate.refill_at(now)
        shut = [each.gate for each in self._by_name.values() if each.count and each.gate and not each.gate.is_open(now)]
        instants = [gate.refill_at(now) for gate in shut]
        if self._partitions is not None:
            instants.append(self._partitions.next_wake())
        return min((at for at in instants if at is not None), default=None)

    def _section(self, task: int) -> Section:
        return self._by_name.get(self._arrivals.name[task], self._others) if self._by_name else self._others

    def _start(self, section: Section, task: int, now: Instant) -> None:
        self.count -= 1
        section.count -= 1
        self.started[task] = now
        if self._gate is not None:
            self._gate.enter(now)
        if section.gate is not None:
            section.gate.enter(now)
        if self._partitions is not None and (partition := self._arrivals.partition[task]) is not None:
            self._partitions.enter(partition, now)

    def _put(self, section: Section, task: int, lane: int, rank_value: int) -> None:
        tenant = self._arrivals.tenant[task] if self._settings.fair else ""
        share = section.shares.get(tenant)
        if share is None:
            share = section.shares[tenant] = Share(tenant)
            share.lanes = [self._new_lane(number, section, share) for number in self._lanes]
        share.lanes[lane].push((rank_value, task), self._arrivals.partition[task])
        if not share.has_turn:
            section.turns.enter(share)

    def _new_lane(self, number: int, section: Section, share: Share) -> Lane:
        if self._partitions is None:
            return PlainLane(number, self._places)
        return PartitionedLane(number, self._places, self._partitions, share, section.turns)

    def _first_ranking(self, task: int) -> Ranking:
        """The ranking of a task that has just become ready; without a deadline it only depends on the priority."""
        if self._arrivals.deadline[task] is not None:
            return self._ranking(task, self._ready[task])
        priority = self._arrivals.priority[task]
        ranking = self._first_rankings.get(priority)
        if ranking is None:
            ranking = self._first_rankings[priority] = self._ranking(task, self._ready[task])
        return ranking

    def _ranking(self, task: int, now: Instant) -> Ranking:
        arrivals = self._arrivals
        return rank(
            self._settings,
            priority=arrivals.priority[task],
            deadline=arrivals.deadline[task],
            ready_at=self._ready[task],
            now=now,
        )

    def _rerank(self, now: Instant) -> None:
        """Rank the tasks that are due again. A rank only depends on now, so steps in between can be skipped."""
        reranks = self._reranks
        while reranks and reranks[0][0] <= now:
            task = heappop(reranks)[1]
            if self.started[task] != NOT_STARTED:
                continue
            ranking, ready_at = self._ranking(task, now), self._ready[task]
            place = (ranking.lane, ready_at + ranking.offset)
            if self._places.get(task) != place:
                self._places[task] = place
                self._put(self._section(task), task, *place)
            if ranking.rerank_in is not None:
                heappush(reranks, (ready_at + ranking.rerank_in, task))


def has_two_lanes(settings: QueueSettings) -> bool:
    return settings.policy is Policy.AGING and settings.max_aging_bonus is not None
