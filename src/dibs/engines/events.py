"""Events as engines take and give them: what is subscribed to, and what has happened.

The words are those of `dibs.observe.events`. A cursor is opaque to callers: up to which number everything has been
read, and which later events have been read too, because they were committed before earlier ones.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dibs.core.times import SECOND, Duration, Instant
from dibs.errors import InvalidOption
from dibs.observe.events import EventType, family_of

__all__ = ["KEEP_WATCHING", "LONGEST_NUMBER", "RENEW_BEFORE", "Cursor", "Event", "EventPage", "EventRequest", "Watch"]

KEEP_WATCHING: Duration = 90 * SECOND
"""How long events are written after a subscriber's last sign."""
RENEW_BEFORE: Duration = 60 * SECOND
"""A sign is written when less than this is left: so events are written for at least so long after the last read."""


LONGEST_NUMBER = 18
"""Digits; no store ever gives so high a number to an event."""


class Watch(Struct, frozen=True, array_like=True):
    """What one subscriber wants to be written, and until when. No topics or queues: all of them."""

    topics: tuple[str, ...]
    queues: tuple[str, ...]
    until: Instant = 0

    def wants(self, event: EventType, queue: str | None) -> bool:
        """Whether an event is wanted. One of a worker belongs to no queue, and is wanted whatever the queues are."""
        return self.wants_type(event) and (not self.queues or queue is None or queue in self.queues)

    def wants_type(self, event: EventType) -> bool:
        return not self.topics or event in self.topics or family_of(event) in self.topics


class EventRequest(Struct, frozen=True, kw_only=True):
    """A read by one subscriber, which also keeps its subscription alive. No cursor: from now on."""

    subscriber: str
    topics: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    cursor: str | None = None
    limit: int = 1000

    @property
    def watch(self) -> Watch:
        return Watch(self.topics, self.queues)


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened. `took` is the duration of a run."""

    n: int
    at: Instant
    type: EventType
    queue: str | None = None
    task: str | None = None
    name: str | None = None
    worker: str | None = None
    took: Duration | None = None
    details: dict[str, Any] = {}


class EventPage(Struct, frozen=True):
    """Events in the order of their numbers, and the cursor to go on from. `missed`: some were deleted before.

    Up to `settled` no event can appear any more: with it, a caller knows the cursor after each event.
    """

    events: list[Event]
    cursor: str
    missed: bool = False
    settled: int = 0


class Cursor(Struct, frozen=True):
    """Everything up to `base` has been read, and the events `seen` beyond it."""

    base: int = 0
    seen: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Cursor:
        base, colon, seen = text.partition(":")
        numbers = [base, *seen.split(",")] if colon else [base]
        if not all(each.isascii() and each.isdigit() and len(each) <= LONGEST_NUMBER for each in numbers):
            raise InvalidOption("cursor must be one that an earlier event gave.")
        return cls(int(base), tuple(map(int, numbers[1:])))

    def __str__(self) -> str:
        return f"{self.base}:{','.join(map(str, self.seen))}" if self.seen else str(self.base)

    def after(self, read: list[int], horizon: int, *, all_read: bool) -> Cursor:
        """The cursor after these events, in order. Up to `horizon` no event can appear any more.

        `all_read`: there were no others to read.
        """
        if not all_read and not self.seen and self.base <= read[-1] <= horizon:  # nearly always
            return Cursor(read[-1])
        base = max(self.base, horizon if all_read else min(horizon, read[-1]))
        return Cursor(base, tuple(sorted(n for n in (*self.seen, *read) if n > base)))
