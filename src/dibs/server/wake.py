"""`/api/v1/engine/wake`: a WebSocket that tells other processes what their subscriptions are woken by.

A client sends the topics that it listens to, as a JSON list, each time that they change; the server answers with lists
of topics that were notified, beginning with those that are new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from dibs.engines.base import Subscription
from dibs.engines.http.protocol import WAKE as PATH
from dibs.errors import DibsError, NotAllowed
from dibs.server.guard import Guard
from dibs.server.http import HttpError

__all__ = ["PATH", "endpoint"]

MOST_TOPICS = 2000
LOOK_AGAIN = 30.0
NOT_ALLOWED = 1008
GOING_AWAY = 1012


class Listener:
    """One client: a subscription for each topic, so that it is told which one was notified."""

    def __init__(self, socket: WebSocket, guard: Guard) -> None:
        self.socket = socket
        self.guard = guard
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.woken: set[str] = set()
        self.news = asyncio.Event()

    async def listen(self, topics: set[str]) -> None:
        for topic in set(self.tasks) - topics:
            self.tasks.pop(topic).cancel()
            self.subscriptions.pop(topic).close()
        for topic in topics - set(self.tasks):
            try:
                self.subscriptions[topic] = await self.guard.listen([topic])
            except NotAllowed:
                continue  # it is never woken by that
            self.tasks[topic] = asyncio.get_running_loop().create_task(self.pass_on(topic))
            self.tell(topic)  # something may have happened before

    async def pass_on(self, topic: str) -> None:
        subscription = self.subscriptions[topic]
        while True:
            if await subscription.wait(LOOK_AGAIN):
                self.tell(topic)

    def tell(self, topic: str) -> None:
        self.woken.add(topic)
        self.news.set()

    async def send(self) -> None:
        while True:
            await self.news.wait()
            self.news.clear()
            woken, self.woken = self.woken, set()
            await self.socket.send_text(msgspec.json.encode(sorted(woken)).decode())

    async def close(self) -> None:
        await self.listen(set())


def endpoint(server: Any) -> Callable[[WebSocket], Awaitable[None]]:
    async def wake(socket: WebSocket) -> None:
        try:
            caller = server.caller(socket)
        except HttpError as error:
            await socket.close(NOT_ALLOWED, error.problem.title)
            return
        await socket.accept()
        listener = Listener(socket, cast(Guard, server.view(caller).hub.engine))
        sending = asyncio.get_running_loop().create_task(listener.send())
        stopping = asyncio.get_running_loop().create_task(server.stopping.wait())
        receiving = asyncio.get_running_loop().create_task(receive(socket, listener))
        try:
            while not (sending.done() or stopping.done() or receiving.done()):
                server.caller(socket)  # its token may have been revoked
                waits = [sending, stopping, receiving]
                await asyncio.wait(waits, timeout=LOOK_AGAIN, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                await socket.close(GOING_AWAY)
            elif receiving.done():
                await refuse(socket, receiving.exception())
        except HttpError as error:
            await socket.close(NOT_ALLOWED, error.problem.title)
        finally:
            for task in (sending, stopping, receiving):
                task.cancel()
            with suppress(Exception):
                await asyncio.gather(sending, stopping, receiving, return_exceptions=True)
            await listener.close()

    return wake


async def refuse(socket: WebSocket, error: BaseException | None) -> None:
    """Close a connection that sent something wrong."""
    if isinstance(error, DibsError | HttpError | msgspec.DecodeError):
        await socket.close(NOT_ALLOWED, str(error)[:120])
    elif error is not None and not isinstance(error, WebSocketDisconnect):
        raise error


async def receive(socket: WebSocket, listener: Listener) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        topics = msgspec.json.decode(message.get("text") or message.get("bytes") or b"", type=list[str])
        if len(topics) > MOST_TOPICS:
            raise HttpError(400, "too-many-topics", f"At most {MOST_TOPICS:,} topics can be listened to")
        await listener.listen(set(topics))
