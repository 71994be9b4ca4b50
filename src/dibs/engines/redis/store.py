"""One engine's access to the store: its connection, its copy of the catalog, running and repeating transactions."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from dibs.core.times import SECOND, Instant
from dibs.engines.base import MayBlock, never
from dibs.engines.catalog import Catalog
from dibs.engines.redis import layout
from dibs.engines.redis.client import Client
from dibs.engines.redis.connecting import Address
from dibs.engines.redis.connection import Argument
from dibs.engines.redis.draft import pairs
from dibs.engines.redis.errors import ConnectionLost
from dibs.engines.redis.keys import Keys
from dibs.engines.redis.notifier import Notifier
from dibs.engines.redis.presence import Presence
from dibs.engines.redis.snapshot import CatalogChanged, Snapshot
from dibs.engines.redis.tables import Row, row_of
from dibs.engines.redis.transaction import Transaction
from dibs.engines.store_transaction import TaskMoved
from dibs.engines.topics import TopicKind, parse_topic
from dibs.engines.unreadable import UnreadableRows
from dibs.engines.verbs.steps import conclude
from dibs.engines.wake import LocalNotifier
from dibs.errors import DibsError, StoreBusy

__all__ = ["Store", "read_catalog"]

log = logging.getLogger("dibs.engines.redis")

Answer = TypeVar("Answer")
Write = Callable[..., Awaitable[Answer]]

TRIES = 50
PATIENT_TRIES = 3
"""After so many conflicts, wait a little: others go first."""
PAUSE_SECONDS = 0.002
TURN_SECONDS = 0.5
"""How long one waits for its turn at most, and how long one has it."""


class Store:
    """An open store, on the loop that opened it."""

    def __init__(
        self,
        address: Address,
        aside: UnreadableRows,
        may_block: MayBlock = never,
        local: LocalNotifier | None = None,
    ) -> None:
        self.address = address
        self.aside = aside
        self.keys = Keys(address.prefix)
        self.client = Client(address, self.keys.tag)
        self.catalog = Catalog(aside)
        self.notifier = Notifier(address, self.keys, asyncio.get_running_loop(), may_block, local)
        self.presence = Presence(self.client, self.notifier, self.keys, may_block)
        self.opened_at = time.monotonic()
        self.server = layout.Server()
        self.identity: bytes | None = None

    async def open(self, create: bool) -> None:
        self.server = await self.client.persist(lambda: layout.prepare(self.client, self.keys, self.address, create))

    async def close(self) -> None:
        await self.notifier.close()
        self.client.close()
        await asyncio.sleep(0)  # sockets are closed in the next turn of the loop

    # The catalog.

    async def begin(self, now: Instant | None) -> tuple[Instant, Catalog]:
        """The time, and the catalog as of now."""
        (seconds, micros), generation = await self.client.pipeline(
            [("TIME",), ("HGET", self.keys("store"), "generation")]
        )
        instant = int(seconds) * SECOND + int(micros) if now is None else now
        if generation is None or not self.catalog.is_current(int(generation)):
            await self.refresh(instant)
        return instant, self.catalog

    async def refresh(self, now: Instant | None = None) -> None:
        """Read the catalog again. A store that was emptied is created again: nothing is known of it."""
        identity = await self.client.call("HGET", self.keys("store"), "identity")
        if identity is None:
            await layout.prepare(self.client, self.keys, self.address, create=True)
            identity = await self.client.call("HGET", self.keys("store"), "identity")
        found = await read_catalog(self.client, self.keys, self.aside, now)
        if identity == self.identity:
            found.known_blocks = self.catalog.known_blocks
        elif self.identity is not None:
            log.warning("The store in %s was emptied by somebody else. It goes on as a new one.", self.address)
        self.identity, self.catalog = identity, found

    # Verbs.

    async def read(self, verb: Write[Answer], now: Instant | None, *arguments: Any) -> Answer:
        async def attempt() -> Answer:
            instant, catalog = await self.begin(now)
            return await verb(Snapshot(self.client, self.keys, catalog, instant), *arguments)

        while True:
            try:
                return await self.client.persist(attempt)
            except CatalogChanged as changed:
                await self.learn(changed)

    async def learn(self, changed: CatalogChanged) -> None:
        """Read the catalog again. A track that is not in it even so does not exist."""
        await self.client.persist(self.refresh)
        if changed.track is not None and changed.track not in self.catalog.tracks:
            self.aside.tracks.add(changed.track)

    async def write(
        self,
        verb: Write[Answer],
        now: Instant | None,
        *arguments: Any,
        repeats: bool = True,
        when_full: bool = False,
    ) -> Answer:
        """Run a verb, and write what it decided if what it has read is still so; otherwise run it again.

        `when_full`: also to a server that has no memory left, if it allows that.
        """
        for number in range(TRIES):
            try:
                return await self.client.persist(lambda: self.attempt(verb, now, arguments, when_full), repeats=repeats)
            except TaskMoved:
                pass
            except CatalogChanged as changed:
                await self.learn(changed)
            if number >= PATIENT_TRIES:
                await asyncio.sleep(PAUSE_SECONDS * (number - PATIENT_TRIES + 1) * random.uniform(0.5, 1.0))
        raise StoreBusy(f"{self.address}: tasks change faster than this can be done. Nothing was written; try again.")

    async def attempt(
        self, verb: Write[Answer], now: Instant | None, arguments: tuple[Any, ...], when_full: bool
    ) -> Answer:
        instant, catalog = await self.begin(now)
        transaction = Transaction(self.client, self.keys, catalog, instant, now is None)
        transaction.when_full = when_full
        answer = await verb(transaction, *arguments)
        await conclude(transaction)
        await self.commit(transaction, catalog.generation)
        return answer

    async def commit(self, transaction: Transaction, generation: int) -> None:
        draft = transaction.draft
        if not draft.is_empty or draft.checks or transaction.changes or transaction.topics:
            sent = transaction.arguments(generation, self.topic_arguments(transaction.topics))
            status = await self.client.run("save", self.keys("store"), *sent, when_full=transaction.when_full)
            if status == b"stale":
                raise CatalogChanged
            if status != b"done":
                raise TaskMoved
        if transaction.added_blocks:
            self.catalog.known_blocks.learn(transaction.added_blocks)
        self.notifier.local.notify(transaction.topics)

    @asynccontextmanager
    async def in_turn(self, queues: Collection[str]) -> AsyncIterator[None]:
        """Let others go first who are about to write what this concerns too, for a while.

        Only a courtesy, which saves work: what is written is compared anyway, so nothing depends on it.
        """
        if not queues:
            yield
            return
        key, until = self.keys(f"turn:{min(queues)}"), time.monotonic() + TURN_SECONDS
        while not (is_ours := await self.take_turn(key)) and time.monotonic() < until:  # noqa: ASYNC110  # in any process
            await asyncio.sleep(PAUSE_SECONDS * random.uniform(0.5, 1.5))
        try:
            yield
        finally:
            if is_ours:
                with suppress(ConnectionLost, DibsError):
                    await self.client.call("DEL", key)

    async def take_turn(self, key: str) -> bool:
        """Whether it is ours now. A process that dies holds it for a moment."""
        try:
            return await self.client.call("SET", key, "1", "NX", "PX", round(1000 * TURN_SECONDS)) is not None
        except (ConnectionLost, DibsError):  # what follows meets the same, and says so
            return True

    def topic_arguments(self, topics: Iterable[str]) -> list[Argument]:
        """The channel of each topic, and for work the key that says whether somebody has found none."""
        found: list[Argument] = []
        for topic in sorted(topics):
            kind, queue = parse_topic(topic)
            found += [self.keys.channel(topic), self.keys.idle(queue) if kind == TopicKind.WORK else ""]
        return found

    async def tell(self, topics: Collection[str]) -> None:
        """Wake the listeners of some topics, here and elsewhere. Nothing waits for the answers."""
        if topics:
            self.notifier.local.notify(topics)
            line = await self.client.connection()
            for answer in line.send([("PUBLISH", self.keys.channel(each), "") for each in sorted(topics)]):
                answer.add_done_callback(ignore)

    # What was set aside.

    async def look_again(self) -> None:
        """Read again what was set aside."""
        if self.aside.start_recheck(is_needed=bool(self.catalog.unreadable)):

            async def recheck(snapshot: Snapshot) -> None:
                await snapshot.look_again()

            await self.read(recheck, None)


async def read_catalog(client: Client, keys: Keys, aside: UnreadableRows, now: Instant | None) -> Catalog:
    """The generation is read first: what changes after that is read again."""
    names = ("queues", "tracks", "watches")
    (seconds, _), generation, *tables = await client.pipeline(
        [("TIME",), ("HGET", keys("store"), "generation"), *(("HGETALL", keys(each)) for each in names)]
    )
    found = Catalog(aside, int(generation or 0))
    queues, tracks, watches = (
        [row_of(field.decode(errors="replace"), value) for field, value in pairs(each)] for each in tables
    )
    for row in queues:
        found.know_queue(*padded(row, 4))
    for row in sorted(tracks, key=lambda row: str(row[0]).zfill(12)):
        found.know_track(*padded(row, 8))
    for row in watches:
        found.know_watch(int(seconds) * SECOND if now is None else now, *padded(row, 3))
    return found


def padded(row: Row, width: int) -> tuple[Any, ...]:
    """A row that may be damaged, with as many columns as it should have."""
    return (*row, *(None,) * width)[:width]


def ignore(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()
