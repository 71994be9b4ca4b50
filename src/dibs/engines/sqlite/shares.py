"""Fair shares: whose turn it is in a queue, and what a turn costs.

`dibs_shares` has the tag of each share. For claims there is a copy in `dibs_turns`, by stream, in the order in which
turns come; a tag that the queue's clock has passed is 0 there, because shares that the clock has passed go by name.
Each turn sets that back at most once, so a claim does not pay for it more often than for turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, merge
from itertools import islice

from msgspec import Struct

from dibs.core.fairness import LATEST, next_tag, start_tag
from dibs.engines.deciding.encoding import to_json
from dibs.engines.sqlite.catalog import Queue, Stream
from dibs.engines.sqlite.shapes import RowDecoder
from dibs.engines.sqlite.statements import statement
from dibs.engines.sqlite.transaction import Snapshot, Transaction
from dibs.engines.values import TenantRecord

__all__ = ["Turns", "all_shares", "clock_of", "save_turns", "tenants"]

CHUNK = 100


class Turns:
    """The shares of one queue in the order of their turns, from a source that has them in the order of their tags.

    What is ahead of the clock is in that order already; what is not comes first, by name.
    """

    def __init__(self, queue: Queue, clock: int = 0, stored: Iterable[tuple[int, str]] = ((0, ""),)) -> None:
        self.settings = queue.settings
        self.clock = clock
        self.stored = iter(stored)
        self.next_stored = next(self.stored, None)
        self.waiting: list[tuple[int, str]] = []
        self.tags: dict[str, int] = {}
        """The tags of those that have been served."""
        self.tag = 0
        self.share: str | None = None
        self.end()

    def end(self) -> None:
        """Nothing more from the share whose turn it is: on to the next."""
        stored = self.next_stored
        if self.waiting and (stored is None or self.key(self.waiting[0]) < self.key(stored)):
            self.tag, self.share = heappop(self.waiting)
        elif stored is not None:
            self.tag, self.share = stored
            self.next_stored = next(self.stored, None)
        else:
            self.share = None

    def key(self, turn: tuple[int, str]) -> tuple[int, str]:
        return (start_tag(self.clock, turn[0]), turn[1])

    def served(self) -> None:
        """The share whose turn it is has got it. Where the queue is not fair, it keeps it."""
        if self.settings.fair and self.share is not None:
            self.clock = start_tag(self.clock, self.tag)
            tag = next_tag(self.settings, self.share, self.clock)
            self.tags[self.share] = tag
            heappush(self.waiting, (tag, self.share))
            self.end()


class StoredShare(Struct, array_like=True, frozen=True):
    """A row of dibs_shares."""

    tag: int
    share: str
    pending: int


SHARES = RowDecoder(StoredShare, "share", 1)


def clock_of(snapshot: Snapshot, queue: str) -> tuple[int, int]:
    """The virtual time of a queue, and the tag of the share without a name.

    A clock that can't be read is taken to be at the highest tag: all tenants begin anew from there, and are equal.
    At 0, those without a tag would go before all others until they had caught up. The next turn writes it.
    """
    stored = snapshot.each(statement("clock"), (queue,))
    clock, tag = stored[0] if stored else (0, 0)
    if not is_tag(tag):
        snapshot.aside.log_once("share", f"{queue} ''", f"its tag is {tag!r}")
        tag = 0
    if not is_tag(clock):
        snapshot.aside.log_once("clock of queue", queue, f"it is {clock!r}")
        clock = snapshot.value("highest_tag", queue, LATEST)
    return clock, tag


def is_tag(stored: object) -> bool:
    return isinstance(stored, int) and -1 <= stored <= LATEST


def save_turns(transaction: Transaction, queue: str, turns: Turns, streams: list[int]) -> None:
    """Write the tags that have moved, and the clock."""
    if turns.tags:
        for share, tag in turns.tags.items():
            transaction.tags[queue, share] = tag
        copies = [(stream, share, tag) for share, tag in turns.tags.items() for stream in streams]
        transaction.write("save_turns", to_json(copies))
        transaction.write("save_clock", turns.clock, queue)


def stored_shares(snapshot: Snapshot, queue: str, clock: int) -> Iterator[StoredShare]:
    """Shares with pending tasks: first by name those that the clock has passed, then the others by their tags."""
    after = ""
    first = True
    while True:
        found, last = snapshot.page(SHARES, "shares_behind", queue, clock, after, int(first), CHUNK)
        yield from found
        if last is None:
            break
        after, first = last[1], False
    tag, share = clock, "\U0010ffff"
    while True:
        found, last = snapshot.page(SHARES, "shares_ahead", queue, tag, share, CHUNK)
        yield from found
        if last is None:
            return
        tag, share = last[:2]


def all_shares(snapshot: Snapshot, queue: Queue, streams: list[Stream]) -> Turns:
    """The shares of a queue in order, whatever keeps their tasks from being claimed."""
    clock, unnamed = clock_of(snapshot, queue.name)
    shares = ((start_tag(clock, each.tag), each.share) for each in stored_shares(snapshot, queue.name, clock))
    if all(stream.fair for stream in streams):
        return Turns(queue, clock, shares)
    own = [(start_tag(clock, unnamed), "")]  # of tasks that are still ranked without shares
    return Turns(queue, clock, merge(own, (each for each in shares if each[1])))


def tenants(snapshot: Snapshot, name: str, limit: int) -> list[TenantRecord]:
    """Tenants of a fair queue that have pending tasks, in the order of their turns."""
    snapshot.refresh()
    queue = snapshot.catalog.queues.get(name)
    if queue is None or not queue.settings.fair:
        return []
    clock, unnamed = clock_of(snapshot, name)
    pending = snapshot.pending_by_stream()
    plain = sum(pending.get(stream.number, 0) for stream in snapshot.catalog.by_queue[name] if not stream.fair)
    found = {"": StoredShare(unnamed, "", plain)} if plain else {}
    for each in islice(stored_shares(snapshot, name, clock), limit):
        more = plain if each.share == "" else 0  # tasks that are still ranked without shares
        found[each.share] = StoredShare(each.tag, each.share, each.pending + more)
    order = sorted(found.values(), key=lambda each: (start_tag(clock, each.tag), each.share))
    return [
        TenantRecord(tenant=each.share, pending=each.pending, tag=start_tag(clock, each.tag)) for each in order[:limit]
    ]
