"""Fair shares: whose turn it is in a queue, and what a turn costs.

`dibs_shares` has the virtual time of each share. Claims read a copy in `dibs_turns`, by track, in the order of turns; a
virtual time that the clock has passed is 0 there, because shares that the clock has passed go by name. Each turn resets
a copy at most once, so that costs a claim no more than its turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, merge
from typing import TYPE_CHECKING

from msgspec import Struct

from dibs.core.fairness import LATEST, next_virtual_time, start_virtual_time
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.transaction import Queue
from dibs.engines.sqlite.row_decoder import RowDecoder
from dibs.engines.sqlite.statements import statement

if TYPE_CHECKING:
    from dibs.engines.sqlite.transaction import Snapshot, Transaction

__all__ = ["TurnOrder", "all_shares", "clock_of", "save_turns"]

CHUNK = 100


class TurnOrder:
    """The shares of one queue in the order of their turns, from a source in the order of virtual times.

    Shares ahead of the clock are in that order already; the others come first, by name.
    """

    def __init__(self, queue: Queue, clock: int = 0, stored: Iterable[tuple[int, str]] = ((0, ""),)) -> None:
        self.settings = queue.settings
        self.clock = clock
        self.stored = iter(stored)
        self.next_stored = next(self.stored, None)
        self.waiting: list[tuple[int, str]] = []
        self.virtual_times: dict[str, int] = {}
        """The virtual times of the shares that were served."""
        self.virtual_time = 0
        self.share: str | None = None
        self.end()

    def end(self) -> None:
        """Skip the share whose turn it is."""
        stored = self.next_stored
        if self.waiting and (stored is None or self.key(self.waiting[0]) < self.key(stored)):
            self.virtual_time, self.share = heappop(self.waiting)
        elif stored is not None:
            self.virtual_time, self.share = stored
            self.next_stored = next(self.stored, None)
        else:
            self.share = None

    def key(self, turn: tuple[int, str]) -> tuple[int, str]:
        return (start_virtual_time(self.clock, turn[0]), turn[1])

    def served(self) -> None:
        """The share whose turn it is was served. If the queue is not fair, it keeps its turn."""
        if self.settings.fair and self.share is not None:
            self.clock = start_virtual_time(self.clock, self.virtual_time)
            virtual_time = next_virtual_time(self.settings, self.share, self.clock)
            self.virtual_times[self.share] = virtual_time
            heappush(self.waiting, (virtual_time, self.share))
            self.end()


class StoredShare(Struct, array_like=True, frozen=True):
    """A row of dibs_shares."""

    virtual_time: int
    share: str
    pending: int


SHARES = RowDecoder(StoredShare, "share", 1)


def clock_of(snapshot: Snapshot, queue: str) -> tuple[int, int]:
    """The virtual time of a queue, and that of the share without a name.

    A clock that can't be read is taken to be at the highest virtual time: all tenants restart equal from there. At 0,
    tenants without a virtual time would go first until they had caught up. The next turn writes it.
    """
    stored = snapshot.each(statement("clock"), (queue,))
    clock, virtual_time = stored[0] if stored else (0, 0)
    if not is_virtual_time(virtual_time):
        snapshot.aside.log_once("share", f"{queue} ''", f"its virtual time is {virtual_time!r}")
        virtual_time = 0
    if not is_virtual_time(clock):
        snapshot.aside.log_once("clock of queue", queue, f"it is {clock!r}")
        clock = snapshot.value("highest_virtual_time", queue, LATEST)
    return clock, virtual_time


def is_virtual_time(stored: object) -> bool:
    return isinstance(stored, int) and -1 <= stored <= LATEST


def save_turns(transaction: Transaction, queue: str, turns: TurnOrder, tracks: list[int]) -> None:
    """Write the virtual times that have changed, and the clock."""
    if turns.virtual_times:
        for share, virtual_time in turns.virtual_times.items():
            transaction.virtual_times[queue, share] = virtual_time
        copies = [
            (track, share, virtual_time) for share, virtual_time in turns.virtual_times.items() for track in tracks
        ]
        transaction.run("save_turns", to_json(copies))
        transaction.run("save_clock", turns.clock, queue)


def stored_shares(snapshot: Snapshot, queue: str, clock: int) -> Iterator[StoredShare]:
    """Shares with pending tasks: first, by name, those that the clock has passed; then the others by virtual time."""
    after = ""
    first = True
    while True:
        found, last = snapshot.page(SHARES, "shares_behind", queue, clock, after, int(first), CHUNK)
        yield from found
        if last is None:
            break
        after, first = last[1], False
    virtual_time, share = clock, "\U0010ffff"
    while True:
        found, last = snapshot.page(SHARES, "shares_ahead", queue, virtual_time, share, CHUNK)
        yield from found
        if last is None:
            return
        virtual_time, share = last[:2]


def all_shares(snapshot: Snapshot, queue: Queue, tracks: list[Track]) -> TurnOrder:
    """The shares of a queue in order, whatever keeps their tasks from being claimed."""
    clock, unnamed = clock_of(snapshot, queue.name)
    shares = (
        (start_virtual_time(clock, each.virtual_time), each.share)
        for each in stored_shares(snapshot, queue.name, clock)
    )
    if all(track.fair for track in tracks):
        return TurnOrder(queue, clock, shares)
    own = [(start_virtual_time(clock, unnamed), "")]  # for tasks that are still ranked without shares
    return TurnOrder(queue, clock, merge(own, (each for each in shares if each[1])))
