"""Group commit, written once for every engine.

Items that arrive during a flush go as one batch when it is done: no timer, no added latency when idle. Each caller
waits for its own answer, on its own thread or loop; a loop is woken once for all the answers that a flush has for it.
Cancelling a caller never cancels the flush. A flush that fails because of its data is retried item by item, so that one
bad item does not affect the others.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from dibs.engines.values import PartlyAnswered
from dibs.errors import Closed, StoreError
from dibs.runtime.loop import LoopRunner

__all__ = ["Coalescer"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Flush = Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]]

MOST = 1000
"""The most items in one flush."""


class Ticket:
    """One item. Its owner sleeps on `gate` and wakes with the answer, or (if not `done`) with the request to flush."""

    __slots__ = ("answer", "done", "error", "gate", "item")

    def __init__(self, item: Any) -> None:
        self.item = item
        self.answer: Any = None
        self.error: BaseException | None = None
        self.done = False
        # A bare lock is the cheapest thing to sleep on: an Event or a Future costs several times as much.
        self.gate = threading.Lock()
        self.gate.acquire()

    def settle(self, answer: Any, error: BaseException | None) -> None:
        if not self.done:
            self.answer, self.error, self.done = answer, error, True
            self.gate.release()

    def lead(self) -> None:
        self.gate.release()


class AsyncTicket:
    """The same for a coroutine, which never flushes. It is settled on its own loop only."""

    __slots__ = ("future", "item")

    def __init__(self, item: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.item = item
        self.future: asyncio.Future[Any] = loop.create_future()

    def settle(self, answer: Any, error: BaseException | None) -> None:
        if self.future.done():  # its caller was cancelled
            return
        if error is None:
            self.future.set_result(answer)
        else:
            self.future.set_exception(error)


Tickets = Sequence[Ticket | AsyncTicket]


class Coalescer(Generic[Item, Answer]):
    """Gathers items from any number of threads and coroutines."""

    def __init__(self, runner: LoopRunner, flush: Flush[Item, Answer]) -> None:
        self._runner = runner
        self._flush = flush
        self.forget()

    def forget(self) -> None:
        """Reset, in a forked child."""
        self._lock = threading.Lock()
        self._waiting: deque[Ticket | AsyncTicket] = deque()
        self._flushing = False

    async def submit(self, item: Item) -> Answer:
        """On any loop: join the next batch and await the answer."""
        loop = asyncio.get_running_loop()
        foreign = loop is not self._runner.loop  # raises in a closed app, and resets in a forked child
        if foreign:
            self._runner.serve()
        elif not self._runner.is_serving:  # a blocked caller drives the loop: the flushing thread would wait for it
            await self._runner.opened()
            return (await self._flush([item]))[0]
        ticket = AsyncTicket(item, loop)
        if self._join(ticket):
            if foreign:
                self._drain_soon()
            else:
                self._start_drain()
        return cast(Answer, await ticket.future)

    def submit_blocking(self, item: Item) -> Answer:
        """From any thread. Unless a thread serves the loop, the first caller flushes and the others join."""
        _ = self._runner.loop  # raises in a closed app; in a forked child resets, before any lock is touched
        ticket = Ticket(item)
        if not self._join(ticket):
            ticket.gate.acquire()
        elif self._runner.is_serving:
            self._drain_soon()
            ticket.gate.acquire()
        if not ticket.done:
            self._flush_here()
        if ticket.error is not None:
            raise ticket.error
        return cast(Answer, ticket.answer)

    def _flush_here(self) -> None:
        """On the thread of a caller that was asked to."""
        batch = self._take()
        try:
            self._runner.run(self._send(batch))
        except Exception as error:  # the flush could not be run: nothing else would wake the waiting callers
            settle_all(batch, error)
        finally:
            self._hand_over()

    def _drain_soon(self) -> None:
        """Have the thread that drives the loop flush."""
        try:
            self._runner.call_soon(self._start_drain)
        except Closed as error:
            with self._lock:
                batch, self._waiting, self._flushing = [*self._waiting], deque(), False
            settle_all(batch, error)

    def _join(self, ticket: Ticket | AsyncTicket) -> bool:
        """Queue a ticket; True if its owner has to flush."""
        with self._lock:
            self._waiting.append(ticket)
            leads = not self._flushing
            self._flushing = True
            return leads

    def _take(self) -> list[Ticket | AsyncTicket]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]

    def _hand_over(self) -> None:
        """Let the next waiting owner flush, if there is one."""
        with self._lock:
            if not self._waiting:
                self._flushing = False
                return
            heir = self._waiting[0]
        if isinstance(heir, Ticket) and not self._runner.is_serving:
            heir.lead()
        else:
            self._drain_soon()

    def _start_drain(self) -> None:
        self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        """Flush what has gathered, then hand over what arrived during the flush."""
        try:
            await self._send(self._take())
        finally:
            self._hand_over()

    async def _send(self, batch: Tickets) -> None:
        """Flush a batch and answer its tickets."""
        try:
            await self._runner.opened()
            answers = await self._flush([ticket.item for ticket in batch])
        except PartlyAnswered as error:
            for ticket, answer in zip(batch, error.answers, strict=True):
                settle([ticket], [answer], error if answer is None else None)
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, StoreError | Closed):
                for ticket in batch:
                    await self._send([ticket])
                return
            settle_all(batch, error)
        except asyncio.CancelledError:
            settle_all(batch, Closed("the app was closed while this call was under way."))
            raise
        except BaseException as error:
            settle_all(batch, error)
            raise
        else:
            settle(batch, answers, None)


def settle_all(batch: Tickets, error: BaseException) -> None:
    settle(batch, [None] * len(batch), error)


def settle(batch: Tickets, answers: Sequence[Any], error: BaseException | None) -> None:
    """Give each ticket its answer, from any thread; the tickets of another loop by one call into that loop."""
    here = asyncio._get_running_loop()
    elsewhere: dict[asyncio.AbstractEventLoop, list[tuple[AsyncTicket, Any]]] = defaultdict(list)
    for ticket, answer in zip(batch, answers, strict=True):
        if isinstance(ticket, AsyncTicket) and (loop := ticket.future.get_loop()) is not here:
            elsewhere[loop].append((ticket, answer))
        else:
            ticket.settle(answer, error)
    for loop, settled in elsewhere.items():
        with suppress(RuntimeError):  # that loop has been closed: nothing waits there
            loop.call_soon_threadsafe(settle_here, settled, error)


def settle_here(settled: list[tuple[AsyncTicket, Any]], error: BaseException | None) -> None:
    for ticket, answer in settled:
        ticket.settle(answer, error)
