"""events: what has happened, for subscribers.

A read also keeps the subscription alive: it is written again when too little is left of it. Every process learns of it
with the next generation of the catalog, so writers look up nothing while nobody subscribes. The cursor never skips an
event: how far no event can appear any more, the store says (`events_horizon`).
"""

from __future__ import annotations

from msgspec import Struct, json

from dibs.core.policy import EVENT_BATCH, KEEP_EVENTS, MOST_EVENTS
from dibs.core.times import Duration, Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.steps import Done, Step
from dibs.engines.events import KEEP_WATCHING, RENEW_BEFORE, Cursor, Event, EventPage, EventRequest, Watch
from dibs.engines.port import Port, Read, View
from dibs.observe.events import EventType

__all__ = ["horizon", "prune_events", "read_events", "watch"]


class StoredEvent(Struct, array_like=True, frozen=True):
    """An event as it is stored."""

    n: int
    at: Instant
    type: EventType
    track: int | None
    queue: str | None
    task: str | None
    worker: str | None
    took: Duration | None
    data: str | None


HORIZON = Read("events_horizon", int, "event")
"""Takes nothing: up to which number no event can appear any more."""
EVENTS_AFTER = Read("events_after", StoredEvent, "event")
"""Takes the number to begin after, numbers to skip, and how many: events in order."""
EVENTS_TRIMMED = Read("events_trimmed", int, "event")
"""Takes nothing: the number of the last event that was deleted."""
EVENTS_TO_TRIM = Read("events_to_trim", int, "event")
"""Takes the instant before which events are old, how many to keep, and how many to visit: the last one to delete."""
WATCH = Read("watch", tuple[str, Instant, object], "subscriber")
"""Takes a subscriber: (subscriber, until, what it wants), if there is such a one."""


async def horizon(view: View) -> int:
    return (await view.read(HORIZON))[0]


async def read_events(view: View, request: EventRequest, settled: int) -> tuple[EventPage, bool]:
    """A page of events, and whether the subscription must be written. Up to `settled` no event can appear any more."""
    known = [until for _, until, wanted in await view.read(WATCH, request.subscriber) if wanted == text_of(request)]
    must_renew = not known or known[0] < view.now + RENEW_BEFORE
    if request.cursor is None:
        return EventPage([], str(Cursor(settled)), settled=settled), must_renew
    cursor = Cursor.parse(request.cursor)
    if cursor.base > settled:  # of another store, or of this one before it was restored
        return EventPage([], str(Cursor(settled)), missed=True, settled=settled), must_renew
    found = await view.fetch(EVENTS_AFTER, cursor.base, list(cursor.seen), request.limit)
    events = [each for row in found.rows if is_for(request.watch, each := event_from(view, row))]
    numbers = sorted([row.n for row in found.rows] + [row[0] for row in found.unread if isinstance(row[0], int)])
    after = cursor.after(numbers, settled, all_read=found.number < request.limit)
    (trimmed,) = await view.read(EVENTS_TRIMMED)
    return EventPage(events, str(after), cursor.base < trimmed, settled), must_renew


def is_for(wanted: Watch, event: Event) -> bool:
    """Whether a subscriber wants an event; it may have been written for others."""
    return wanted.wants(event.type, event.queue)


def event_from(view: View, row: StoredEvent) -> Event:
    track = None if row.track is None else view.tracks.get(row.track)
    return Event(
        n=row.n,
        at=row.at,
        type=row.type,
        queue=row.queue if track is None else track.queue,
        task=row.task,
        name=None if track is None else track.name,
        worker=row.worker,
        took=row.took,
        details=json.decode(row.data) if row.data else {},
    )


def text_of(request: EventRequest) -> str:
    """What a subscriber wants, as it is stored."""
    return to_json(request.watch)


async def watch(port: Port, request: EventRequest) -> None:
    """Write a subscription, for a while; and delete what is old, in case nobody leads."""
    await port.write("save_watch", request.subscriber, port.now + KEEP_WATCHING, text_of(request))
    await port.write("next_generation")
    await prune_events(port, [], EVENT_BATCH)


async def prune_events(port: Port, steps: list[Step], most: int) -> Done:
    """Delete subscriptions that are over, and events that are old or too many."""
    await port.write("forget_watches", port.now)
    last = await port.read(EVENTS_TO_TRIM, port.now - KEEP_EVENTS, MOST_EVENTS, EVENT_BATCH)
    if not last:
        return 0, []
    deleted = await port.write("delete_events", last[0])
    await port.write("mark_trimmed", last[0])
    return deleted, steps if deleted >= EVENT_BATCH else []
