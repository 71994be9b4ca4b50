"""Waking waiters, here and in other processes, by LISTEN and NOTIFY on one channel for each schema.

A notification takes a lock on the whole database when it is committed, so none is sent inside the transactions that do
the work, and at most two per topic and interval: one at once, and one at the interval's end if the topic was rung again
meanwhile. Nothing depends on a notification arriving: workers look by themselves now and then.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from dibs.engines.bell import Bell, Listener
from dibs.engines.postgres.faults import DRIVER_ERRORS
from dibs.engines.postgres.pool import Connection, Pool
from dibs.errors import DibsError

__all__ = ["Bells"]

log = logging.getLogger("dibs.engines.postgres")

QUIET_SECONDS = 0.02
RETRY_SECONDS = 1.0
LONGEST_PAYLOAD = 7000
NOTIFY = (
    # What is lost with a crash of the server are notifications to those who lose their connection anyway.
    "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"
)


def channel_of(schema: str) -> str:
    """A channel's name may have 63 bytes."""
    return f"dibs_{hashlib.sha256(schema.encode()).hexdigest()[:16]}"


class Subscriber:
    """A subscription that keeps the engine listening until it is closed."""

    def __init__(self, bells: Bells, listener: Listener) -> None:
        self._bells = bells
        self._listener = listener
        self._closed = False

    async def wait(self, timeout: float) -> bool:
        """Until rung, at most `timeout` seconds; a ring since the last wait counts."""
        return await self._listener.wait(timeout)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._listener.close()
            self._bells.unsubscribe()


class Bells:
    """The bells of one engine: its own listeners, and a way to those of others."""

    def __init__(self, pool: Pool, loop: asyncio.AbstractEventLoop) -> None:
        self.bell = Bell()
        self.pool = pool
        self.loop = loop
        self.channel = channel_of(pool.address.schema)
        self.subscribers = 0
        self.ear: asyncio.Task[None] | None = None
        self.quiet: dict[str, bool] = {}
        """Topics that were sent just now, and whether they have been rung since."""
        self.sending: set[asyncio.Task[None]] = set()

    def subscribe(self, topics: Collection[str], loop: asyncio.AbstractEventLoop) -> Subscriber:
        listener = self.bell.subscribe(topics, loop)
        self.subscribers += 1
        if self.ear is None:
            self.ear = self.loop.create_task(self.listen(), name="dibs-listen")
        return Subscriber(self, listener)

    def unsubscribe(self) -> None:
        self.subscribers -= 1
        if self.subscribers == 0 and self.ear is not None:
            self.ear.cancel()
            self.ear = None

    # Hearing.

    async def listen(self) -> None:
        """Keep a connection that hears."""
        while True:
            try:
                await self.listen_once(await self.pool.connect())
                log.warning("lost the connection that listens to %s; making a new one", self.pool.address)
            except (*DRIVER_ERRORS, DibsError) as error:
                log.warning("can't listen to %s (%s); trying again", self.pool.address, error)
                await asyncio.sleep(RETRY_SECONDS)

    async def listen_once(self, connection: Connection) -> None:
        """Hear until the connection breaks. What was rung before may have been missed: everybody looks once."""
        gone = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: gone.set())
            await connection.add_listener(self.channel, self.hear)
            self.bell.ring_all()
            await gone.wait()
        finally:
            connection.terminate()

    def hear(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        self.bell.ring(str(payload).split("\n"))

    # Ringing.

    async def ring(self, topics: Collection[str]) -> None:
        """Wake whoever listens to any of these. Never fails: who does not hear it looks by himself."""
        if not topics:
            return
        self.bell.ring(topics)
        if getattr(self.loop, "dibs_private", False):  # nobody drives the loop once the caller has his answer
            await self.send(topics)
            return
        fresh = [topic for topic in topics if topic not in self.quiet]
        self.quiet.update(dict.fromkeys(topics, True))
        if fresh:
            self.quiet.update(dict.fromkeys(fresh, False))
            self.send_soon(fresh)
            self.loop.call_later(QUIET_SECONDS, self.end_quiet, fresh)

    def end_quiet(self, topics: list[str]) -> None:
        """Send again what was rung in the meantime."""
        again = [topic for topic in topics if self.quiet.pop(topic, False)]
        if again and not self.pool.is_closed:
            self.quiet.update(dict.fromkeys(again, False))
            self.send_soon(again)
            self.loop.call_later(QUIET_SECONDS, self.end_quiet, again)

    def send_soon(self, topics: list[str]) -> None:
        task = self.loop.create_task(self.send(topics), name="dibs-notify")
        self.sending.add(task)
        task.add_done_callback(self.sending.discard)

    async def send(self, topics: Collection[str]) -> None:
        try:
            async with self.pool.lend() as connection:
                for payload in payloads(sorted(topics)):
                    await connection.fetchrow(NOTIFY, self.channel, payload)
        except (*DRIVER_ERRORS, DibsError) as error:
            log.info("could not ring %s: %s", ", ".join(sorted(topics)), error)

    async def close(self) -> None:
        """Send what is on its way, then be silent."""
        ear, self.ear = self.ear, None
        if ear is not None:
            ear.cancel()
            with suppress(asyncio.CancelledError):
                await ear
        if self.sending:
            await asyncio.wait(self.sending, timeout=self.pool.address.timeout)


def payloads(topics: list[str]) -> list[str]:
    """Topics in messages that are not too long. No topic has a line break."""
    found: list[str] = []
    for topic in topics:
        if found and len(found[-1]) + len(topic) < LONGEST_PAYLOAD // 4:
            found[-1] += f"\n{topic}"
        else:
            found.append(topic)
    return found
