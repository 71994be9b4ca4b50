"""`app.events`: what happens to tasks, workers and queues, as it happens."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from typing import Any, Self

from msgspec import Struct

from dibs.core.options import QUEUES, check_names, check_text, is_several, nearest, shown
from dibs.core.states import State
from dibs.core.task import WorkerState
from dibs.core.times import EPOCH, MS, when
from dibs.engines.base import Subscription
from dibs.engines.events import Cursor, Event, EventRequest
from dibs.engines.topics import EVENTS
from dibs.errors import InvalidOption, StoreBusy, StoreUnavailable
from dibs.observe.events import COMPUTED, FAMILIES, EventType, family_of
from dibs.runtime.hub import Hub

__all__ = [
    "APART",
    "DEPTH_INTERVAL",
    "LONGEST_CURSOR",
    "LOOK_AGAIN",
    "PAGE",
    "EventFeed",
    "EventInfo",
    "Figures",
    "check_topics",
    "event_info",
]


PAGE = 1000
APART = 0.02
"""Seconds between two reads while events keep coming: a batch costs little more than a single event."""
LOOK_AGAIN = 5.0
"""Seconds without a wake-up after which the store is read anyway: that keeps the subscription alive, too."""
DEPTH_INTERVAL = 1.0
METRICS_INTERVAL = 5.0
OUTAGE = 30.0
"""Seconds for which a store that does not answer is asked again."""
LONGEST_CURSOR = 200_000


class EventInfo(Struct, frozen=True, kw_only=True):
    """One event: what happened, when, and to whom. `missed`: events before it were deleted unread."""

    type: EventType
    """Its type."""
    at: datetime
    """When."""
    data: dict[str, Any] = {}
    """What else is known of it."""
    cursor: str = ""
    """Where to go on after this event: give it to `app.events(cursor=…)`. Computed events have none."""
    missed: bool = False
    """Whether events before it were deleted unread."""


def check_topics(topics: object) -> tuple[str, ...]:
    """Families (task, worker, queue, system) or single types such as task.failed."""
    given = tuple(topics) if is_several(topics) else (topics,)
    known = (*FAMILIES, *EventType)
    for topic in given:
        if not isinstance(topic, str) or topic not in known:
            hint = nearest(topic, known) if isinstance(topic, str) else ""
            raise InvalidOption(
                f"no event is called {shown(topic)}.{hint} Topics: {', '.join(FAMILIES)}, or one type, such as "
                f"{EventType.TASK_FAILED}."
            )
    return tuple(map(str, given))


class EventFeed:
    """An endless iterator of events, for ``for`` and for ``async for``. Leaving the loop ends it.

    It begins with the first read, or when it is entered: ``with app.events() as events:`` misses nothing from there on.
    While it is read, the store writes the events that it asks for. If the store does not answer, it is asked again for
    a while.
    """

    def __init__(
        self, hub: Hub, topics: str | Sequence[str] = (), queues: Sequence[str] = (), cursor: str | None = None
    ) -> None:
        self._hub = hub
        self._topics = check_topics(topics)
        self._queues = check_names(queues, "queues", QUEUES)
        self.cursor = None if cursor is None else str(Cursor.parse(check_text(cursor, "cursor", LONGEST_CURSOR)))
        self._subscriber = hub.new_id()
        self._figures = Figures(hub, self._queues)
        self._subscription: Subscription | None = None
        self._ready: deque[EventInfo] = deque()
        """Read, and not yet given: a loop may have ended in the middle of a page."""
        self._missed = False
        """Events were deleted unread; the next one says so."""
        self._closed = False
        self._entered = False
        """Then it is closed where it was entered, not at the end of a loop."""

    # What is asked for.

    @property
    def _computed(self) -> list[EventType]:
        """Computed only if named: a caller that asks for nothing in particular wants what happens, not figures."""
        return [each for each in COMPUTED if each in self._topics or family_of(each) in self._topics]

    @property
    def _stored(self) -> tuple[str, ...] | None:
        """The topics that are stored; None if there are none."""
        stored = tuple(each for each in self._topics if each not in COMPUTED and each != "system")
        return stored if stored or not self._topics else None

    # Reading.

    def __enter__(self) -> Self:
        self._entered = True
        self._hub.runner.serve()
        self._hub.runner.run(self._begin())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._entered = True
        await self._hub.runner.arun(self._begin())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _begin(self) -> None:
        """Subscribe."""
        if self._stored is not None:
            await self._read(self._stored)

    def __iter__(self) -> Iterator[EventInfo]:
        self._hub.runner.serve()
        try:
            while self._ready or not self._closed:
                while self._ready:
                    yield self._ready.popleft()
                self._hub.runner.run(self._read_on())
        finally:
            if not self._entered:
                self.close()

    async def __aiter__(self) -> AsyncIterator[EventInfo]:
        try:
            while self._ready or not self._closed:
                while self._ready:
                    yield self._ready.popleft()
                await self._hub.runner.arun(self._read_on())
        finally:
            if not self._entered:
                self.close()

    def close(self) -> None:
        """Stop reading. The store goes on writing for about a minute, so that a later feed can resume."""
        self._closed = True
        self._ready.clear()
        subscription, self._subscription = self._subscription, None
        if subscription is not None and not self._hub.runner.is_closed:
            self._hub.runner.call_soon(subscription.close)

    async def _read_on(self) -> None:
        """Read until there is an event to give, or the feed is closed; on the app's loop.

        What is read goes to `_ready` together with the cursor: a caller that gives up loses nothing.
        """
        stored, answered = self._stored, time.monotonic()
        while not self._closed and not self._ready:
            try:
                if stored is not None:
                    await self._read(stored)
                self._ready.extend(await self._figures.due(self._computed))
                answered = time.monotonic()
            except (StoreBusy, StoreUnavailable):
                if time.monotonic() > answered + OUTAGE:
                    raise
            if self._ready:
                await asyncio.sleep(APART)
            else:
                await self._wait(stored is not None)

    async def _read(self, topics: tuple[str, ...]) -> None:
        if self._subscription is None:  # before the read, so that nothing comes between
            self._subscription = self._hub.engine.subscribe([EVENTS])
        begun = self.cursor
        request = EventRequest(
            subscriber=self._subscriber, topics=topics, queues=self._queues, cursor=begun, limit=PAGE
        )
        page = await self._hub.engine.events(request, now=self._hub.clock.store_now())
        if self.cursor != begun:  # a read that its caller had given up has come to its end all the same
            return
        cursor, self._missed = Cursor() if begun is None else Cursor.parse(begun), self._missed or page.missed
        for event in page.events:
            cursor = cursor.after([event.n], page.settled, all_read=False)
            self._ready.append(event_info(event, str(cursor), self._missed))
            self._missed = False
        self.cursor = page.cursor

    async def _wait(self, is_stored: bool) -> None:
        """Until something was written, or a figure is due."""
        longest = min(LOOK_AGAIN, self._figures.next_in(self._computed))
        if is_stored and self._subscription is not None:
            await self._subscription.wait(longest)
        else:
            await asyncio.sleep(longest)


def event_info(event: Event, cursor: str, missed: bool) -> EventInfo:
    """The public form of an event: instants as texts, durations in milliseconds."""
    known = {"task_id": event.task, "name": event.name, "queue": event.queue, "worker": event.worker}
    data: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
    if event.took is not None:
        data["duration_ms"] = event.took / MS
    data.update((name, public(name, value)) for name, value in event.details.items())
    return EventInfo(type=event.type, at=when(event.at) or EPOCH, data=data, cursor=cursor, missed=missed)


def public(name: str, value: Any) -> Any:
    return when(value).isoformat() if name == "due_at" and isinstance(value, int) else value  # type: ignore[union-attr]


class Figures:
    """Computed events: `queue.depth` when a queue's counts have changed, `system.metrics` every few seconds."""

    def __init__(self, hub: Hub, queues: tuple[str, ...]) -> None:
        self._hub = hub
        self._queues = queues
        self._known: dict[str, dict[State, int]] = {}
        self._next = dict.fromkeys(COMPUTED, 0.0)

    def next_in(self, wanted: Sequence[EventType]) -> float:
        return min((max(0.0, self._next[each] - time.monotonic()) for each in wanted), default=LOOK_AGAIN)

    async def due(self, wanted: Sequence[EventType]) -> list[EventInfo]:
        now, found = time.monotonic(), list[EventInfo]()
        if EventType.QUEUE_DEPTH in wanted and now >= self._next[EventType.QUEUE_DEPTH]:
            self._next[EventType.QUEUE_DEPTH] = now + DEPTH_INTERVAL
            found += await self._depths()
        if EventType.SYSTEM_METRICS in wanted and now >= self._next[EventType.SYSTEM_METRICS]:
            self._next[EventType.SYSTEM_METRICS] = now + METRICS_INTERVAL
            found.append(await self._metrics())
        return found

    def _event(self, event: EventType, data: dict[str, Any]) -> EventInfo:
        return EventInfo(type=event, at=when(self._hub.clock.now()) or EPOCH, data=data)

    async def _depths(self) -> list[EventInfo]:
        counts = (await self._hub.engine.counts()).tasks
        chosen = {name: each for name, each in counts.items() if not self._queues or name in self._queues}
        changed = {name: each for name, each in chosen.items() if self._known.get(name) != each}
        self._known = chosen
        return [
            self._event(EventType.QUEUE_DEPTH, {"queue": name, "tasks": {str(state): n for state, n in each.items()}})
            for name, each in changed.items()
        ]

    async def _metrics(self) -> EventInfo:
        engine = self._hub.engine
        counts = (await engine.counts()).tasks
        workers = [each for each in await engine.workers() if each.state is not WorkerState.DEAD]
        data = {
            "tasks": {str(state): sum(each[state] for each in counts.values()) for state in State},
            "workers": len(workers),
            "slots": sum(each.concurrency for each in workers),
            "busy": sum(each.running for each in workers),
        }
        return self._event(EventType.SYSTEM_METRICS, data)
