"""A queue in sections: one for each task name with a limit of its own, and one for all the others.

The section of a name that is at its limit is skipped. Inside a section shares take turns, and a share has its lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from dibs.core.priority import effective, merge_key
from dibs.core.settings import Limit, QueueSettings
from dibs.core.times import Instant
from dibs.simulation.gates import Gate
from dibs.simulation.lanes import Lane
from dibs.simulation.turns import Share, TurnOrder, VirtualTimes

__all__ = ["Section", "foremost", "whose_turn"]


class Section:
    """The waiting tasks of one limited name, or of all names without a limit."""

    def __init__(self, limit: Limit | None, times: VirtualTimes) -> None:
        self.gate = None if limit is None else Gate(limit)
        self.turns = TurnOrder(times)
        self.shares: dict[str, Share] = {}
        self.count = 0

    def first(self, now: Instant) -> Share | None:
        """The share whose turn it is, among those with a task that may start."""
        if not self.count or (self.gate is not None and not self.gate.is_open(now)):
            return None
        while (share := self.turns.first()) is not None and not share.has_something(now):
            self.turns.leave()
        return share


def whose_turn(sections: Sequence[Section], times: VirtualTimes, now: Instant) -> list[tuple[Section, Share]]:
    """The shares of the tenant whose turn it is, in all sections."""
    found = [(section, share) for section in sections if (share := section.first(now)) is not None]
    if len(found) < 2:
        return found
    tenant = min((times.start(share.tenant), share.tenant) for _, share in found)[1]
    return [each for each in found if each[1].tenant == tenant]


def foremost(
    found: Sequence[tuple[Section, Share]], settings: QueueSettings, ready: Sequence[Instant], now: Instant
) -> tuple[Section, Lane]:
    """Where the next task is: in each lane the best of all sections; then lanes are merged by these heads."""
    if len(found) == len(found[0][1].lanes) == 1:
        return found[0][0], found[0][1].lanes[0]
    best_key, best = (0.0, 0, 0, 0), None
    for number in range(len(found[0][1].lanes)):
        heads = [(head, section, lane) for section, lane in lanes_of(found, number) if (head := lane.head(now))]
        if heads:
            (rank, task), section, lane = min(heads, key=itemgetter(0))
            key = (*merge_key(effective(rank, number, settings, now), ready[task], 0), number)
            if best is None or key < best_key:
                best_key, best = key, (section, lane)
    assert best is not None, "each share that was found has a task that may start"
    return best


def lanes_of(found: Sequence[tuple[Section, Share]], number: int) -> list[tuple[Section, Lane]]:
    return [(section, share.lanes[number]) for section, share in found]
