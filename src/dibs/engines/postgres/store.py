"""One engine's access to the store: its connections, its copy of the catalog, running and repeating transactions."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter as Totals
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec import Struct

from dibs.core.settings import QueueSettings
from dibs.core.times import Instant
from dibs.engines.accelerator import MakeAccelerator
from dibs.engines.base import MayBlock, never
from dibs.engines.decisions.encoding import encode
from dibs.engines.port import Stored
from dibs.engines.postgres.catalog import Catalog, Missing, Stale
from dibs.engines.postgres.errors import DRIVER_ERRORS, LOST, OCCUPIED, READ_ONLY, REPEATABLE, translation
from dibs.engines.postgres.index_bloat import FloorProbe, RescueFloor
from dibs.engines.postgres.layout import prepare
from dibs.engines.postgres.notifier import Notifier
from dibs.engines.postgres.pgbouncer import check_direct_way, check_way
from dibs.engines.postgres.pool import LONGEST_SILENCE, READ, WRITE, Address, Connection, Pool, transaction
from dibs.engines.postgres.presence import Presence
from dibs.engines.postgres.replica import Readiness, lag_finding, out_of_reach
from dibs.engines.postgres.rows import columns
from dibs.engines.postgres.session_log import SessionLog
from dibs.engines.postgres.statements import statement
from dibs.engines.postgres.transaction import Snapshot, Transaction
from dibs.engines.store_transaction import TaskMoved
from dibs.engines.unreadable import UnreadableRows
from dibs.engines.values import Finding, Level
from dibs.engines.verbs import reading
from dibs.engines.verbs.steps import conclude
from dibs.errors import Closed, StoreBusy, StoreError, StoreMismatch

__all__ = ["NOTHING", "ONCE", "SETTINGS", "TASKS", "Reach", "Store"]

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")
Write = Callable[Concatenate[Transaction, Arguments], Awaitable[Answer]]
Read = Callable[Concatenate[Snapshot, Arguments], Awaitable[Answer]]

TRIES = 20
PAUSE_SECONDS = 0.005
LONG_PAUSE_SECONDS = 0.1
"""The pause after a lock timeout: the transactions that queued behind this one go first."""


class Reach(Struct, frozen=True):
    """What a write may touch. `queues`: those whose tasks it may move, None for any. `exclusive`: queues themselves.

    `repeats`: it may be tried again after a lost connection, when its result is unknown.
    """

    queues: tuple[str, ...] | None = ()
    exclusive: bool = False
    repeats: bool = True


NOTHING = Reach()
"""No tasks of guarded queues."""
TASKS = Reach(queues=None)
SETTINGS = Reach(queues=None, exclusive=True)
ONCE = Reach(repeats=False)
"""For a claim. The caller repeats it, with `ClaimRequest.repeat`, and then gets the same leases."""


class ConnectionLost(Exception):
    """The connection broke; `cause` is the driver's error. `unwritten`: it is known that nothing was written.

    An exception, because the transaction on that connection is over. `Store.persist` repeats it where that is safe.
    """

    def __init__(self, cause: Exception, *, unwritten: bool = False) -> None:
        super().__init__(cause)
        self.cause = cause
        self.unwritten = unwritten


class Store:
    """An open store, on the loop that opened it."""

    def __init__(
        self,
        address: Address,
        aside: UnreadableRows,
        may_block: MayBlock = never,
        session_log: SessionLog | None = None,
    ) -> None:
        session_log = session_log or SessionLog()
        self.address = address
        self.aside = aside
        self.schema = address.schema
        self.opened_at = time.monotonic()
        self.pool = Pool(address)
        self.catalog = Catalog(aside)
        self.rescue_floor = RescueFloor()
        self.by_verbs: Totals[str] = Totals()
        """How many claims from a queue are still to be made by the verbs, because one statement could not say what its
        limits allow."""
        self.notifier = Notifier(self.pool, asyncio.get_running_loop(), may_block, session_log)
        self.floor_probe = FloorProbe(self.rows, self.notifier.local_notifier.notify_all)
        self.presence = Presence(address, self.rows, may_block, session_log)
        reading = address.reading()
        self.reader = None if reading is None else Store(reading, aside, may_block)
        self.readiness = Readiness(address if reading is None else reading)

    async def open(self, create: bool, accelerate: MakeAccelerator | None = None) -> None:
        async def attempt() -> None:
            async with self.lend() as connection:
                await check_way(connection, self.address)
                await prepare(connection, self.address, create)
                await check_direct_way(connection, self.address)

        await self.persist(attempt)
        if accelerate is not None:
            ((identity,),) = await self.rows("identity")
            self.notifier.accelerator = accelerate(
                identity, self.notifier.hear, self.notifier.local_notifier.notify_all
            )

    async def close(self) -> None:
        await self.floor_probe.close()
        await self.presence.close()
        await self.notifier.close()
        await self.pool.close()
        if self.reader is not None:
            await self.reader.close()

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Connection]:
        """A connection; driver errors become ours, except those that only ask for another try."""
        async with self.pool.lend() as connection:
            try:
                yield connection
            except REPEATABLE:
                raise
            except READ_ONLY as error:  # a former primary or a standby: another connection may lead to the primary
                connection.terminate()
                raise ConnectionLost(error, unwritten=True) from error
            except TimeoutError as error:  # the server would have ended a slow statement: the connection stalls
                connection.terminate()
                self.pool.drop_idle()
                raise translation(error, str(self.address)) from error
            except DRIVER_ERRORS as error:
                if isinstance(error, LOST) or (connection.is_closed() and not self.pool.is_closed):
                    connection.terminate()
                    raise ConnectionLost(error) from error
                raise translation(error, str(self.address)) from error
            except AttributeError as error:  # the driver's, if its connection is dropped between two steps of a call
                if not self.pool.is_closed:
                    raise
                raise Closed(f"the engine on {self.address} has been closed.") from error

    # Single statements.

    async def rows(self, name: str, *parameters: Any) -> list[Any]:
        """The rows of one statement in its own transaction."""
        return await self.persist(lambda: self.rows_once(name, *parameters))

    async def rows_once(self, name: str, *parameters: Any) -> list[Any]:
        async with self.lend() as connection:
            found: list[Any] = await connection.fetch(statement(name, self.schema), *parameters)
            return found

    async def get(self, ids: Sequence[str]) -> list[Stored | None]:
        """One statement. Tracks never change, so any copy of the catalog that has them will do."""

        async def attempt() -> list[Stored | None]:
            async with self.lend() as connection:
                return await reading.get(Snapshot(connection, self.schema, self.catalog, 0), ids)

        return await self.persist(attempt)

    async def refresh(self) -> Catalog:
        """Read the catalog again."""

        async def attempt() -> Catalog:
            async with self.lend() as connection:
                return await self.read_catalog(connection)

        return await self.persist(attempt)

    async def catch_up(self, stale: Stale) -> None:
        """Read the catalog again; tracks that it still lacks will never exist."""
        await self.refresh()
        self.aside.tracks.update(track for track in stale.tracks if track not in self.catalog.tracks)

    async def read_catalog(self, connection: Connection) -> Catalog:
        found = await Catalog.read(connection, statement("catalog", self.schema), self.aside)
        found.known_blocks = self.catalog.known_blocks
        if found.generation >= self.catalog.generation:
            self.catalog = found
        return found

    # Transactions.

    async def persist(self, act: Callable[[], Awaitable[Answer]], reach: Reach = NOTHING) -> Answer:
        """Repeat what met a conflict with other transactions, or was decided with an old copy of the catalog.

        A lost connection is replaced once: most likely it had been dead for a while, and nothing was done.
        """
        may_reconnect = True
        for attempt in range(TRIES):
            try:
                return await act()
            except TaskMoved:
                continue
            except Missing as missing:
                await self.add(missing)
            except Stale as stale:
                await self.catch_up(stale)
            except ConnectionLost as error:
                self.pool.drop_idle()
                if not may_reconnect or not (reach.repeats or error.unwritten):
                    raise translation(error.cause, str(self.address)) from error.cause
                may_reconnect = False
            except REPEATABLE as error:
                if attempt == TRIES - 1:
                    raise translation(error, str(self.address)) from error
                pause = LONG_PAUSE_SECONDS if isinstance(error, OCCUPIED) else PAUSE_SECONDS
                await asyncio.sleep(random.random() * pause * (attempt + 1))
        raise StoreBusy(f"{self.address}: tasks change faster than this can be done. Nothing was written; try again.")

    async def write(
        self,
        verb: Write[Arguments, Answer],
        now: Instant | None,
        reach: Reach,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Answer:
        """Run a verb in a transaction, and notify after the commit."""

        async def attempt() -> tuple[Answer, set[str]]:
            async with self.lend() as connection, transaction(connection, WRITE):
                begun = await self.begin(connection, now, reach)
                answer = await verb(begun, *arguments, **named)
                await conclude(begun)
            self.catalog.known_blocks.learn(begun.added_blocks)
            return answer, begun.topics

        answer, topics = await self.persist(attempt, reach)
        await self.notifier.notify(topics)
        return answer

    async def begin(self, connection: Connection, now: Instant | None, reach: Reach) -> Transaction:
        silence = LONGEST_SILENCE if self.address.pooled else None  # otherwise the session has it
        begin = statement("begin", self.schema)
        generation, instant = await connection.fetchrow(begin, now, reach.exclusive, silence)
        catalog = self.catalog if self.catalog.generation == generation else await self.read_catalog(connection)
        locked = catalog.guarded if reach.queues is None else sorted({*reach.queues} & {*catalog.guarded})
        if locked:
            await connection.execute(statement("lock_queues", self.schema), locked)
        return Transaction(connection, self.schema, catalog, instant)

    async def read(
        self,
        verb: Read[Arguments, Answer],
        now: Instant | None,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Answer:
        """Run a verb that only reads, on one snapshot of the store."""

        async def attempt() -> Answer:
            async with self.lend() as connection, transaction(connection, READ):
                generation, instant = await connection.fetchrow(statement("begin_read", self.schema), now)
                catalog = self.catalog if self.catalog.generation == generation else await self.read_catalog(connection)
                return await verb(Snapshot(connection, self.schema, catalog, instant), *arguments, **named)

        return await self.persist(attempt)

    async def consult(
        self,
        verb: Read[Arguments, Answer],
        now: Instant | None,
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Answer:
        """Like `read`, but the answer may be a little behind: from the reader, if there is one and it answers."""
        if self.reader is not None and self.readiness.is_worth_a_try():
            try:
                is_ours = await self.recognises(self.reader)
                if is_ours:
                    answer = await self.reader.read(verb, now, *arguments, **named)
                    self.readiness.work()
                    return answer
            except StoreError as error:
                self.readiness.fail(error)
            else:
                raise StoreMismatch(f"read_url leads to another store than the URL ({self.reader.address}).")
        return await self.read(verb, now, *arguments, **named)

    async def recognises(self, reader: Store) -> bool:
        """Whether the reader holds the same store; checked once."""
        if not self.readiness.is_recognised:
            theirs = await reader.rows("identity")
            self.readiness.is_recognised = theirs == await self.rows("identity")
        return self.readiness.is_recognised

    async def look_at_reader(self) -> list[Finding]:
        """What the doctor says of the reader."""
        if self.reader is None:
            return []
        ((place,),) = await self.rows("log_position")
        try:
            if not await self.recognises(self.reader):
                return [Finding(Level.ERROR, "read_url", "leads to another store than the URL")]
            (row,) = await self.reader.rows("replay", place)
        except StoreError as error:
            return [out_of_reach(error)]
        return [lag_finding(self.reader.address, row["standby"], row["behind"], row["seconds"])]

    async def look_again(self) -> None:
        """Read again what this process could not read: it may have been repaired or deleted."""
        if self.aside.start_recheck(bool(self.catalog.unreadable)):
            await self.refresh()
            if self.aside.tasks:
                await self.read(Snapshot.look_again, None)

    async def add(self, missing: Missing) -> None:
        """Create queues and tracks, in a transaction of their own, which waits for no other lock."""
        tracks = [(*key[:2], " ".join(key[2]), *key[3:]) for key in missing.tracks]
        parameters = (sorted(missing.queues), encode(QueueSettings()), *columns(tracks, 7))
        await self.rows("add_tracks", *parameters)
        await self.refresh()
