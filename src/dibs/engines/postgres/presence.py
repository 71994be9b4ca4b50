"""Which workers are alive: each worker's process holds a lock in a session of its own, which ends when it dies.

The lock's number comes from the schema and the worker's id, so no other worker has it. A worker's row says whether its
process holds the lock, and at which server: only a worker that should hold it can be absent. A process that is stopped
or slow keeps its session. One whose session broke takes a new one at once, well before it is absent in two checks. All
sessions end with their server, so after a restart, a crash or a failover no worker counts as absent until it has come
back.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any

from dibs.core.policy import ABSENT_SECONDS
from dibs.engines.base import MayBlock
from dibs.engines.postgres.driver_internals import closed_in_children
from dibs.engines.postgres.errors import DRIVER_ERRORS
from dibs.engines.postgres.notifier import ANSWER_SECONDS, until_closed
from dibs.engines.postgres.pool import Address, Connection, Pool
from dibs.engines.postgres.session_log import SessionLog
from dibs.engines.postgres.statements import statement
from dibs.engines.values import Beat
from dibs.errors import DibsError, StoreError, StoreMismatch

__all__ = ["GAP_SECONDS", "Presence"]

GAP_SECONDS = 3.0
"""Checks further apart than this do not count together: this process itself was stopped."""

FIRST_SECONDS = 2.0
"""How long a first heartbeat waits for the lock. Without the lock, a worker's death is noticed only by its lease."""

SHORTEST_WAIT, LONGEST_WAIT = 0.05, 1.0
PATIENCE = 4
"""If there was no session for a while, the next try comes after this fraction of that while."""

MOMENT_SECONDS = 2.0

Rows = Callable[..., Awaitable[list[Any]]]


class Keeper:
    """Holds the lock of one worker, and its session, until it is closed."""

    def __init__(self, worker: str, lines: Pool, rows: Rows, session_log: SessionLog) -> None:
        self.worker = worker
        self.session_log = session_log
        self.lines = lines
        self.rows = rows
        self.held_at: datetime | None = None
        """Since when sessions last at the server where the lock is held; None while it is not held."""
        self.settled = asyncio.Event()
        """The first try has ended."""
        self.missing_since: float | None = None
        self.has_told = False
        self.task = asyncio.get_running_loop().create_task(self.keep(), name="dibs-presence")

    async def keep(self) -> None:
        """Keep a session. The first try after a loss comes at once: it most likely succeeds."""
        while True:
            try:
                async with self.session() as connection:
                    self.found()
                    await until_closed(connection, partial(self.hold, connection))
                wait = SHORTEST_WAIT
            except (*DRIVER_ERRORS, DibsError) as error:
                self.settled.set()
                await self.say(None)
                wait = self.missed(str(error) or "no answer in time")
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))

    def found(self) -> None:
        if self.has_told:
            self.session_log.back(self)
        self.missing_since, self.has_told = None, False

    def missed(self, why: str) -> float:
        """How long to wait for the next try. Logs once, unless the loss lasted only moments."""
        now = time.monotonic()
        self.missing_since = self.missing_since or now
        gone_for = now - self.missing_since
        if gone_for > MOMENT_SECONDS and not self.has_told:
            self.has_told = True
            who = f"Worker {self.worker} has"
            line = f"{who} no session with {self.lines.address} ({why}): until then its leases show if it dies."
            self.session_log.missing(self, line, f"{who} a session with {self.lines.address} again.")
        return min(max(gone_for / PATIENCE, SHORTEST_WAIT), LONGEST_WAIT)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Connection]:
        """A session that holds the lock, as recorded in the worker's row."""
        connection = await self.lines.connect()
        try:
            with closed_in_children(connection):
                await self.hold(connection)
                self.settled.set()
                yield connection
        finally:
            self.held_at = None
            connection.terminate()

    async def hold(self, connection: Connection) -> None:
        """Take the lock, and record in the worker's row at which server, if that changed (see the statement `hold`)."""
        hold = statement("hold", self.lines.address.schema)
        found = await connection.fetchrow(hold, self.worker, connection.get_server_pid(), timeout=ANSWER_SECONDS)
        if not found["is_ours"]:
            raise StoreMismatch(f"there is a pooler before {self.lines.address}, which shares sessions")
        if found["since"] != self.held_at:
            self.held_at = found["since"]
            await self.say(self.held_at)

    async def say(self, held_at: datetime | None) -> None:
        """Record that in the worker's row; if the store can't be reached, the next heartbeat does it."""
        with suppress(StoreError):
            await self.rows("save_presence", self.worker, held_at)

    async def close(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task
        self.session_log.forget(self)


class Presence:
    """The locks of this engine's own workers, and its checks of those of all workers."""

    def __init__(self, address: Address, rows: Rows, may_block: MayBlock, session_log: SessionLog) -> None:
        direct = address.direct()
        self.lines = None if direct is None else Pool(direct)
        self.rows = rows
        self.may_block = may_block
        self.session_log = session_log
        self.keepers: dict[str, Keeper] = {}
        self.first_absent: dict[str, float] = {}
        self.checked_at = 0.0

    # The workers of this process.

    async def show(self, sign: Beat) -> datetime | None:
        """Hold the lock of a worker of this process from its first heartbeat on. Returns at which server it is held.

        Not on a loop that runs only during calls: it would not notice a lost session.
        """
        if self.lines is None or sign.pid != os.getpid() or self.may_block():
            return None
        keeper = self.keepers.get(sign.id)
        if keeper is None:
            keeper = self.keepers[sign.id] = Keeper(sign.id, self.lines, self.rows, self.session_log)
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_SECONDS):
                    await keeper.settled.wait()
        return keeper.held_at

    async def leave(self, worker: str) -> None:
        keeper = self.keepers.pop(worker, None)
        if keeper is not None:
            await keeper.close()

    async def close(self) -> None:
        for worker in [*self.keepers]:
            await self.leave(worker)

    # Checking all workers.

    async def absent(self) -> list[str]:
        """The workers that were absent in two checks, the second of which is this one."""
        found = {row["id"] for row in await self.rows("absent")}
        now = time.monotonic()
        before = self.first_absent if now - self.checked_at <= GAP_SECONDS else {}
        self.checked_at = now
        self.first_absent = {worker: before.get(worker, now) for worker in found}
        return sorted(worker for worker, since in self.first_absent.items() if now - since >= ABSENT_SECONDS)
