"""The turns of the shares of a fair queue, in the order that claims read: by (virtual start, share)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

from dibs.core.fairness import start_virtual_time
from dibs.engines.decisions.choosing import TurnOrder
from dibs.engines.decisions.facts import Track
from dibs.simulation.heaps import Heaps

__all__ = ["TurnOrders"]


class VirtualTimes:
    """The virtual clock of a fair queue, and the virtual time of each share."""

    def __init__(self) -> None:
        self.clock = 0
        self.of: dict[str, int] = {}

    def start(self, share: str) -> int:
        """When the next task of a share starts in virtual time."""
        return start_virtual_time(self.clock, self.of.get(share, 0))


class ShareOrder:
    """Shares that may have a task in one track, in the order of their turns.

    Virtual times at or below the clock count as equal, so these shares are in one heap by name, the others in one by
    virtual time and name. Both only ever grow: a share whose virtual time has changed is moved when it becomes a head.
    """

    def __init__(self, times: VirtualTimes) -> None:
        self._times = times
        self._shares: set[str] = set()
        self._level: list[str] = []
        self._ahead: list[tuple[int, str]] = []

    def enter(self, share: str) -> None:
        """The share may have a task."""
        if share not in self._shares:
            self._shares.add(share)
            self._place(share)

    def _place(self, share: str) -> None:
        virtual_time = self._times.of.get(share, 0)
        if virtual_time <= self._times.clock:
            heappush(self._level, share)
        else:
            heappush(self._ahead, (virtual_time, share))

    def first(self) -> str | None:
        """Whose turn it is now."""
        times, level, ahead = self._times, self._level, self._ahead
        while ahead and (ahead[0][0] <= times.clock or ahead[0][0] != times.of[ahead[0][1]]):
            self._place(heappop(ahead)[1])
        while level and times.of.get(level[0], 0) > times.clock:
            self._place(heappop(level))
        if level:
            return level[0]
        return ahead[0][1] if ahead else None

    def leave(self) -> None:
        """The share whose turn it is has none until it enters again."""
        self._shares.remove(heappop(self._level) if self._level else heappop(self._ahead)[1])


class TurnOrders:
    """The turn orders of all tracks. A turn that a claim reads is out of them until the claim ends."""

    def __init__(self, tracks: int) -> None:
        self._times = VirtualTimes()
        self._orders = [ShareOrder(self._times) for _ in range(tracks)]

    def enter(self, track: int, share: str) -> None:
        """The share may have a task in this track."""
        self._orders[track].enter(share)

    def open(self, tracks: Sequence[Track]) -> TurnOrder:
        """A claim begins: read the first turn in these tracks."""
        turns = TurnOrder(self._times.clock)
        self.read_more(turns, tracks)
        return turns

    def read_more(self, turns: TurnOrder, tracks: Sequence[Track]) -> None:
        """Read one more turn, and as many as were read before."""
        for _ in range(len(turns.virtual_times) + 1):
            firsts = [
                (self._times.start(share), share, track.number)
                for track in tracks
                if (share := self._orders[track.number].first()) is not None
            ]
            if not firsts:
                turns.edge = None
                return
            start, share, _ = min(firsts)
            turns.edge = (start, share)
            turns.virtual_times[share] = self._times.of.get(share, 0)
            turns.tracks[share] = [track for _, each, track in firsts if each == share]
            for track in turns.tracks[share]:
                self._orders[track].leave()

    def close(self, turns: TurnOrder, clock: int, served: Mapping[str, int], heaps: Heaps) -> None:
        """A claim has ended, and has served these shares."""
        self._times.clock = clock
        self._times.of |= served
        for share, tracks in turns.tracks.items():
            for track in tracks:
                if heaps.has_any(track, share):
                    self.enter(track, share)
