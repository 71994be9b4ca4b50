"""What happens in the store, told to many clients: one reader for all clients of a server.

It reads while somebody listens, and never waits for a client. Each event is encoded once. A client is told of every
event that it wants, or that there is a gap. The reader runs on the app's loop; clients may be on another.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from asyncio import AbstractEventLoop
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from dibs.client.events import APART, DEPTH_INTERVAL, LOOK_AGAIN, PAGE, Figures
from dibs.core.times import EPOCH, SECOND, when
from dibs.engines.events import RENEW_BEFORE, Cursor, EventPage, EventRequest
from dibs.engines.topics import EVENTS
from dibs.errors import Closed, DibsError, StoreBusy, StoreUnavailable
from dibs.observe.events import COMPUTED
from dibs.runtime.hub import Hub
from dibs.server.caller import Caller
from dibs.server.event_messages import Client, Gap, Message, Wanted
from dibs.server.guard import Guard, Owners

__all__ = ["WRITTEN_FOR", "Broadcaster"]

log = logging.getLogger("dibs.server")

FIRST_READ = 10.0
"""Seconds that a client waits until the store has answered for the first time."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two attempts while the store does not answer."""
WRITTEN_FOR = RENEW_BEFORE // SECOND - 15
"""Seconds after a read for which events are certainly written, with a margin for the clocks of other servers."""
RESUMING = 4
"""Clients that read old events at the same time: a thousand that come back at once must not slow down the queue."""
STORED = "stored"


class Audience:
    """The clients on one loop, which alone uses it."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self.clients: set[Client] = set()
        self.position: str | None = None
        """What was delivered here last; None while nothing is read."""

    def deliver(self, messages: Sequence[Message], position: str | None) -> None:
        self.position = position
        chosen: dict[Wanted, list[Message]] = {}
        for client in self.clients if messages else ():
            wanted = client.wanted
            if wanted not in chosen:
                chosen[wanted] = [each for each in messages if wanted.takes(each)]
            if found := chosen[wanted]:
                client.offer(found)

    def end(self, error: BaseException) -> None:
        for client in self.clients:
            client.end(error)


class Broadcaster:
    """Reads the store's events once for all clients. Methods without an underscore are called on a client's loop."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.since = 0
        """The second from which on it has been reading without a break."""
        self._subscriber = hub.new_id()
        self._redactor = Guard(hub, Caller(scopes=frozenset()), Owners())
        self._lock = threading.Lock()
        """Of the audiences and the counts, which several loops may change."""
        self._audiences: dict[AbstractEventLoop, Audience] = {}
        self._wanted: Counter[str] = Counter()
        self._count = 0
        self._position: str | None = None
        self._started: asyncio.Future[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._resuming = asyncio.Semaphore(RESUMING)
        self._has_newcomers = False

    def __len__(self) -> int:
        """How many clients there are."""
        return self._count

    async def join(self, client: Client) -> str | None:
        """Tell a client what happens from now on. Answers from where it may resume, if it wants stored events."""
        with self._lock:
            audience = self._audiences.setdefault(client.loop, Audience(client.loop))
            self._add(client.wanted, 1)
            self._count += 1
        audience.clients.add(client)
        try:
            return await self._begin(client.wanted)
        except BaseException:
            self.leave(client)
            raise

    async def change(self, client: Client, wanted: Wanted) -> str | None:
        """Tell a client of other things from now on."""
        with self._lock:
            self._add(wanted, 1)
            self._add(client.wanted, -1)
        client.wanted = wanted
        return await self._begin(wanted)

    def leave(self, client: Client) -> None:
        audience = self._audiences.get(client.loop)
        if audience is None or client not in audience.clients:
            return
        audience.clients.remove(client)
        with self._lock:
            self._add(client.wanted, -1)
            self._count -= 1
            if not audience.clients:
                del self._audiences[client.loop]
        with suppress(Closed):
            self.hub.runner.call_soon(self._adapt)

    def position(self, client: Client) -> str | None:
        """Everything up to here was offered to a client."""
        audience = self._audiences.get(client.loop)
        return None if audience is None else audience.position

    async def page(self, cursor: str) -> tuple[EventPage, list[Message]]:
        """Events that a client has missed. The subscription is everybody's: reading it writes nothing."""

        async def read() -> tuple[EventPage, list[Message]]:
            async with self._resuming:
                at, page = self._second(), await self._ask(cursor)
                return page, self._messages(page, cursor, at)

        return await self.hub.runner.arun(read())

    def gap(self, reason: str, cursor: str | None) -> Gap:
        return Gap(reason, self.now(), cursor)

    def now(self) -> datetime:
        return when(self.hub.clock.now()) or EPOCH

    def _add(self, wanted: Wanted, number: int) -> None:
        for each in (*([STORED] if wanted.is_stored else ()), *wanted.computed):
            self._wanted[each] += number

    async def _begin(self, wanted: Wanted) -> str | None:
        position = await self.hub.runner.arun(self._begun(wanted))
        audience = self._audiences[asyncio.get_running_loop()]
        if audience.position is None:  # everything that was delivered before that answer has arrived
            audience.position = position
        return audience.position

    # From here on: on the app's loop.

    async def _begun(self, wanted: Wanted) -> str | None:
        self._adapt()
        self._has_newcomers |= bool(wanted.computed)
        if not wanted.is_stored or self._started is None:
            return None
        try:
            async with asyncio.timeout(FIRST_READ):
                await asyncio.shield(self._started)
        except TimeoutError:
            raise StoreUnavailable("the store does not answer: try again later.") from None
        return self._position

    def _adapt(self) -> None:
        """Read and measure exactly while somebody wants it."""
        if self._wanted[STORED] and self._reading is None:
            self._started = asyncio.get_running_loop().create_future()
            self._reading = self._run(self._read())
        elif not self._wanted[STORED] and self._reading is not None:
            reading, self._reading, self._position = self._reading, None, None
            reading.cancel()
            self._deliver([])
        if any(self._wanted[each] for each in COMPUTED) and self._measuring is None:
            self._measuring = self._run(self._measure())
        elif not any(self._wanted[each] for each in COMPUTED) and self._measuring is not None:
            measuring, self._measuring = self._measuring, None
            measuring.cancel()

    def _run(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Tell the clients if it did not end because they left."""
        error = Closed("the app was closed.") if task.cancelled() else task.exception()
        if error is None or task not in (self._reading, self._measuring):
            return
        if not isinstance(error, DibsError):
            log.error("Events can't be read any more.", exc_info=error)
        if task is self._measuring:
            self._measuring = None
        else:
            self._reading = self._position = None
            if self._started is not None and not self._started.done():
                self._started.set_exception(error)
                self._started.exception()  # it was retrieved, even if nobody waits for it
        self._everywhere(lambda audience: audience.end(error))

    async def _read(self) -> None:
        subscription = self.hub.engine.subscribe([EVENTS])  # before the first read, so that nothing comes between
        cursor: str | None = None
        last, pause = time.monotonic(), FIRST_PAUSE
        try:
            while True:
                at, began = self._second(), time.monotonic()
                try:
                    page = await self._ask(cursor)
                except (StoreBusy, StoreUnavailable):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
                    continue
                is_lapsed = began - last > WRITTEN_FOR
                messages = [] if cursor is None else self._news(page, cursor, at, is_lapsed)
                if cursor is None or is_lapsed:
                    self.since = at
                cursor, last, pause = page.cursor, began, FIRST_PAUSE
                self._position = f"{at}-{cursor}"
                self._deliver(messages)
                if self._started is not None and not self._started.done():
                    self._started.set_result(None)
                if len(page.events) < PAGE:
                    await asyncio.sleep(APART if messages else 0)
                    await subscription.wait(LOOK_AGAIN)
        finally:
            subscription.close()

    async def _ask(self, cursor: str | None) -> EventPage:
        request = EventRequest(subscriber=self._subscriber, cursor=cursor, limit=PAGE)
        return await self.hub.engine.events(request, now=self.hub.clock.store_now())

    def _news(self, page: EventPage, begun: str, at: int, is_lapsed: bool) -> list[Message]:
        """A page, after a gap if there is one. `is_lapsed`: the last read is so long ago that nothing was written."""
        found = self._messages(page, begun, at)
        if not page.missed and not is_lapsed:
            return found
        return [self.gap("deleted" if page.missed else "unwatched", f"{at}-{begun}"), *found]

    def _messages(self, page: EventPage, begun: str, at: int) -> list[Message]:
        cursor, made = Cursor.parse(begun), list[Message]()
        for event in page.events:
            cursor = cursor.after([event.n], page.settled, all_read=False)
            made.append(Message.of(event, f"{at}-{cursor}", self._redactor.shown_event))
        return made

    async def _measure(self) -> None:
        figures = Figures(self.hub, ())
        while True:
            if self._has_newcomers:  # they are told everything, not only what has changed
                self._has_newcomers, figures = False, Figures(self.hub, ())
            wanted = [each for each in COMPUTED if self._wanted[each]]
            with suppress(StoreBusy, StoreUnavailable):
                found = await figures.due(wanted)
                self._deliver([Message(each.type, each.at, each.data, self._position) for each in found])
            await asyncio.sleep(min(DEPTH_INTERVAL, max(APART, figures.next_in(wanted))))

    def _second(self) -> int:
        return self.hub.clock.now() // SECOND

    def _deliver(self, messages: Sequence[Message]) -> None:
        position = self._position
        self._everywhere(lambda audience: audience.deliver(messages, position))

    def _everywhere(self, act: Callable[[Audience], None]) -> None:
        with self._lock:
            audiences = list(self._audiences.values())
        for audience in audiences:
            if audience.loop is asyncio.get_running_loop():
                act(audience)
            else:
                with suppress(RuntimeError):  # its loop is closed
                    audience.loop.call_soon_threadsafe(act, audience)
