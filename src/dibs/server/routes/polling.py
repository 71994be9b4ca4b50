"""How a worker in another language waits for work: by a request that is answered when there is some."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from msgspec import structs

from dibs.client.consumer import Claim, Consumer, pause
from dibs.core.options import check_reference
from dibs.core.task import WorkerState
from dibs.engines.topics import work_topic, worker_topic
from dibs.engines.values import ClaimRequest
from dibs.errors import StoreUnavailable, UnknownWorker
from dibs.server.guard import Guard
from dibs.server.http import Exchange
from dibs.server.registrations import Registration

__all__ = ["claim", "end", "guard_of", "registered"]


def guard_of(exchange: Exchange) -> Guard:
    return cast(Guard, exchange.app.hub.engine)


async def registered(exchange: Exchange, *, again: bool = False) -> Registration:
    """What a worker said when it registered, here or with another server."""
    worker = exchange.caller.worker(check_reference(exchange.path("worker"), "a worker's id"))
    found: Registration | None = await exchange.server.registrations.find(worker, again=again)
    if found is None:
        raise UnknownWorker(f"no worker is registered as {exchange.path('worker')!r}: register it first.")
    return found


class Polling:
    """One request that waits for work, until there is some, the time is up, its client goes, or the server stops."""

    def __init__(self, exchange: Exchange, request: ClaimRequest, wait: float) -> None:
        self.exchange = exchange
        self.guard = guard_of(exchange)
        self.consumer = Consumer(exchange.app.hub)
        self.request = request
        self.until = time.monotonic() + wait
        self.gone = asyncio.ensure_future(exchange.request.receive())
        self.stops = asyncio.ensure_future(exchange.server.stopping.wait())
        self.next_look = 1.0

    async def claim(self) -> list[Claim]:
        try:
            return await self.look() or await self.wait_for_turn()
        finally:
            await end(self.gone, self.stops)

    @property
    def left(self) -> float:
        return self.until - time.monotonic()

    async def look(self, *, again: bool = False) -> list[Claim]:
        """Claim once. `again`: something has changed, perhaps the worker's state."""
        if (await registered(self.exchange, again=again)).state is not WorkerState.ACTIVE:
            return []
        while True:
            claimed = await self.guard.call("claim", self.request)
            claims = await self.exchange.app.hub.runner.arun(self.consumer.prepare(claimed.tasks))
            if claims or not claimed.tasks:
                break
            self.request = structs.replace(self.request, repeat=False)  # none can be run as it is, and all are settled
        self.next_look = pause(claimed)
        await asyncio.sleep(0)  # it may have gone in that time
        if claims and self.gone.done():
            await self.guard.release([each.lease for each in claims])
            return []
        return claims

    async def wait_for_turn(self) -> list[Claim]:
        """Of all that wait for the same work, one at a time asks."""
        request = self.request
        kind = (request.queues, request.names, request.capabilities)
        lock = self.exchange.server.poll_queue.lock(kind)
        turn = asyncio.ensure_future(lock.acquire())
        try:
            await self.first_of(turn)
            return await self.wait_for_work() if turn.done() else []
        finally:
            if turn.done() and not turn.cancelled():
                lock.release()
            await end(turn)

    async def wait_for_work(self) -> list[Claim]:
        topics = [*map(work_topic, self.request.queues), worker_topic(self.request.worker)]
        subscription = await self.guard.listen(topics)
        woken = False
        try:
            while not self.is_over:
                if claims := await self.look(again=woken):
                    return claims
                news = asyncio.ensure_future(subscription.wait(max(0.0, min(self.left, self.next_look))))
                try:
                    await self.first_of(news)
                    woken = news.done() and news.result()
                finally:
                    await end(news)
            return []
        finally:
            subscription.close()

    @property
    def is_over(self) -> bool:
        if self.stops.done():
            raise StoreUnavailable("the server stops: ask again, of another one or in a moment.")
        return self.gone.done() or self.left <= 0

    async def first_of(self, *others: asyncio.Future[Any]) -> None:
        """Wait for one of these, or for an end."""
        timeout = max(0.0, self.left)
        await asyncio.wait([self.gone, self.stops, *others], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


async def end(*futures: asyncio.Future[Any]) -> None:
    for each in futures:
        each.cancel()
    await asyncio.gather(*futures, return_exceptions=True)


async def claim(exchange: Exchange, request: ClaimRequest, wait: float) -> list[Claim]:
    """Tasks for a worker, and none if its client has gone."""
    return await Polling(exchange, request, wait).claim()
