"""Whose turn it is: the share with the lowest (start tag, tenant) goes first."""

from __future__ import annotations

from heapq import heappop, heappush

from dibs.core.fairness import next_virtual_time, start_virtual_time
from dibs.core.settings import QueueSettings
from dibs.core.times import Instant
from dibs.simulation.lanes import Lane

__all__ = ["Share", "Tags", "TurnOrder"]


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


class Tags:
    """The queue's virtual clock and the tag of each tenant; without fairness all stay at 0."""

    def __init__(self, settings: QueueSettings) -> None:
        self.clock = 0
        self._settings = settings
        self._tags: dict[str, int] = {}

    def of(self, tenant: str) -> int:
        return self._tags.get(tenant, 0)

    def start(self, tenant: str) -> int:
        """When the tenant's next task starts in virtual time."""
        return start_virtual_time(self.clock, self._tags.get(tenant, 0))

    def serve(self, tenant: str) -> None:
        """A task of this tenant starts."""
        if self._settings.fair:
            self.clock = self.start(tenant)
            self._tags[tenant] = next_virtual_time(self._settings, tenant, self.clock)


class TurnOrder:
    """Shares that may have something to give, in the order of their turns.

    Tags at or below the clock count as equal, so these shares stand in one heap by name, the others in one by tag and
    name. Tags and clock only ever grow: a share whose tag has changed is moved when it comes up.
    """

    def __init__(self, virtual_times: Tags) -> None:
        self._tags = virtual_times
        self._level: list[tuple[str, Share]] = []
        self._ahead: list[tuple[int, str, Share]] = []

    def enter(self, share: Share) -> None:
        """The share may have something to give."""
        if not share.has_turn:
            share.has_turn = True
            self._place(share)

    def _place(self, share: Share) -> None:
        virtual_time = self._tags.of(share.tenant)
        if virtual_time <= self._tags.clock:
            heappush(self._level, (share.tenant, share))
        else:
            heappush(self._ahead, (virtual_time, share.tenant, share))

    def first(self) -> Share | None:
        """Whose turn it is now."""
        virtual_times, level, ahead = self._tags, self._level, self._ahead
        while ahead and (ahead[0][0] <= virtual_times.clock or ahead[0][0] != virtual_times.of(ahead[0][1])):
            self._place(heappop(ahead)[2])
        while level and virtual_times.of(level[0][0]) > virtual_times.clock:
            self._place(heappop(level)[1])
        if level:
            return level[0][1]
        return ahead[0][2] if ahead else None

    def leave(self) -> None:
        """The one whose turn it is has nothing to give until it enters again."""
        share = heappop(self._level)[1] if self._level else heappop(self._ahead)[2]
        share.has_turn = False
