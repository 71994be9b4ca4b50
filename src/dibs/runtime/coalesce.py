"""Group commit, written once for every engine.

While one flush is under way further items gather, and go as one batch when it is done: no timer, no added latency when
idle. Each caller waits for its own answer. Cancelling a caller never cancels the flush. A flush that fails is retried
item by item, so that one bad item costs nobody else.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from dibs.errors import StoreError
from dibs.runtime.loop import LoopRunner

__all__ = ["Coalescer"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Flush = Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]]

MOST = 1000
"""Items in one flush."""


class Ticket(Generic[Item, Answer]):
    """One item on its way, and the answer to come. `lead` asks a blocked owner to flush; a coroutine has none."""

    __slots__ = ("future", "item", "lead")

    def __init__(self, item: Item, lead: threading.Event | None) -> None:
        self.item = item
        self.future: Future[Answer] = Future()
        self.lead = lead


class Coalescer(Generic[Item, Answer]):
    """Gathers items from any number of threads and coroutines."""

    def __init__(self, runner: LoopRunner, flush: Flush[Item, Answer]) -> None:
        self._runner = runner
        self._flush = flush
        self.forget()

    def forget(self) -> None:
        """Start anew, in a forked child."""
        self._lock = threading.Lock()
        self._waiting: deque[Ticket[Item, Answer]] = deque()
        self._flushing = False

    async def submit(self, item: Item) -> Answer:
        """On the runner's loop: join the next batch and await the answer."""
        ticket: Ticket[Item, Answer] = Ticket(item, None)
        if self._join(ticket):
            self._start_drain()
        return await asyncio.wrap_future(ticket.future)

    def submit_blocking(self, item: Item) -> Answer:
        """From a thread that may drive the loop: whoever comes first flushes, the others join."""
        lead = threading.Event()
        ticket: Ticket[Item, Answer] = Ticket(item, lead)
        if not self._join(ticket):
            ticket.future.add_done_callback(lambda _: lead.set())
            lead.wait()
            if ticket.future.done():
                return ticket.future.result()
        try:
            self._runner.run(self._send(self._take()))
        finally:
            self._hand_over()
        return ticket.future.result()

    def _join(self, ticket: Ticket[Item, Answer]) -> bool:
        """Queue a ticket; True if its owner has to flush."""
        with self._lock:
            self._waiting.append(ticket)
            leads = not self._flushing
            self._flushing = True
            return leads

    def _take(self) -> list[Ticket[Item, Answer]]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]

    def _hand_over(self) -> None:
        """Let the next waiting owner flush, if there is one."""
        with self._lock:
            if not self._waiting:
                self._flushing = False
            elif (lead := self._waiting[0].lead) is not None:
                lead.set()
            else:
                self._runner.loop.call_soon_threadsafe(self._start_drain)

    def _start_drain(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        while batch := self._take_or_stop():
            await self._send(batch)

    def _take_or_stop(self) -> list[Ticket[Item, Answer]]:
        with self._lock:
            if not self._waiting:
                self._flushing = False
                return []
            return [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]

    async def _send(self, batch: list[Ticket[Item, Answer]]) -> None:
        """Flush a batch and answer its tickets."""
        try:
            answers = await self._flush([ticket.item for ticket in batch])
        except BaseException as error:
            alone = len(batch) == 1 or isinstance(error, StoreError) or not isinstance(error, Exception)
            if not alone:
                for ticket in batch:
                    await self._send([ticket])
                return
            for ticket in batch:
                ticket.future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            for ticket, answer in zip(batch, answers, strict=True):
                ticket.future.set_result(answer)
