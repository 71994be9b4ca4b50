"""Whose turn it is: the share with the lowest (virtual start, tenant) goes first."""

from __future__ import annotations

from heapq import heappop, heappush

from dibs.core.fairness import next_virtual_time, start_virtual_time
from dibs.core.settings import QueueSettings
from dibs.core.times import Instant
from dibs.simulation.lanes import Lane

__all__ = ["Share", "TurnOrder", "VirtualTimes"]


class Share:
    """One tenant's waiting tasks in a section; in a queue that is not fair, all of them."""

    __slots__ = ("has_turn", "lanes", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.lanes: list[Lane] = []
        self.has_turn = False

    def has_something(self, now: Instant) -> bool:
        """Whether one of its tasks may start."""
        return any(lane.head(now) is not None for lane in self.lanes)


class VirtualTimes:
    """The queue's virtual clock and the virtual time of each tenant; without fairness all stay at 0."""

    def __init__(self, settings: QueueSettings) -> None:
        self.clock = 0
        self._settings = settings
        self._times: dict[str, int] = {}

    def of(self, tenant: str) -> int:
        return self._times.get(tenant, 0)

    def start(self, tenant: str) -> int:
        """When the tenant's next task starts in virtual time."""
        return start_virtual_time(self.clock, self._times.get(tenant, 0))

    def serve(self, tenant: str) -> None:
        """A task of this tenant starts."""
        if self._settings.fair:
            self.clock = self.start(tenant)
            self._times[tenant] = next_virtual_time(self._settings, tenant, self.clock)


class TurnOrder:
    """Shares that may have a task to start, in the order of their turns.

    Virtual times at or below the clock count as equal, so these shares are in one heap by name, the others in one by
    virtual time and name. Both only ever grow: a share whose virtual time has changed is moved when it becomes a head.
    """

    def __init__(self, times: VirtualTimes) -> None:
        self._times = times
        self._level: list[tuple[str, Share]] = []
        self._ahead: list[tuple[int, str, Share]] = []

    def enter(self, share: Share) -> None:
        """The share may have a task to start."""
        if not share.has_turn:
            share.has_turn = True
            self._place(share)

    def _place(self, share: Share) -> None:
        virtual_time = self._times.of(share.tenant)
        if virtual_time <= self._times.clock:
            heappush(self._level, (share.tenant, share))
        else:
            heappush(self._ahead, (virtual_time, share.tenant, share))

    def first(self) -> Share | None:
        """Whose turn it is now."""
        times, level, ahead = self._times, self._level, self._ahead
        while ahead and (ahead[0][0] <= times.clock or ahead[0][0] != times.of(ahead[0][1])):
            self._place(heappop(ahead)[2])
        while level and times.of(level[0][0]) > times.clock:
            self._place(heappop(level)[1])
        if level:
            return level[0][1]
        return ahead[0][2] if ahead else None

    def leave(self) -> None:
        """The share whose turn it is has no task to start until it enters again."""
        share = heappop(self._level)[1] if self._level else heappop(self._ahead)[2]
        share.has_turn = False
