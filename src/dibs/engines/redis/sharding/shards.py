"""The parts of a store with `shard=queue`: an engine for each queue, and one for what queues have in common.

Each part is a complete store with a hash tag of its own, so a cluster may keep it on any of its servers. The root has
the names of all queues and the leader's term. A part is opened when it is first needed.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar
from weakref import WeakSet

from msgspec import structs

from dibs.core.times import Duration
from dibs.engines.base import MayBlock
from dibs.engines.figures import Minute
from dibs.engines.redis.connecting import Address, Kind, credentials, first_of
from dibs.engines.redis.connection import Connection
from dibs.engines.redis.engine import RedisEngine
from dibs.engines.redis.keys import Keys
from dibs.engines.redis.notifier import Notifier, Subscriber
from dibs.engines.topics import TopicKind, parse_topic, work_topic
from dibs.engines.unreadable import UnreadableRows
from dibs.engines.values import Term
from dibs.engines.wake import LocalNotifier
from dibs.errors import Closed, StoreBusy, StoreError, StoreMissing, StoreUnavailable

__all__ = ["AWAY", "Memory", "Shard", "Shards", "answers_of"]

Answer = TypeVar("Answer")

OF_QUEUES = (TopicKind.WORK, TopicKind.ENDED, TopicKind.ROOM)
"""Kinds of topics that name a queue. The others may be told by any part."""
MOST_PLACES = 100_000
"""Tasks, workflows and steps of which it is remembered where they are."""
REGISTER_SECONDS = 60.0
"""A queue that is in use is registered again so often: its name is removed when nothing is left of it."""
LOOK_SECONDS = 0.25
"""Between two looks whether a part is back."""
AWAY = (StoreUnavailable, StoreBusy)


class Memory:
    """What engines on one store share, from any thread: where tasks are, and what can't be read there.

    A task never moves from one part to another.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.places: dict[str, str] = {}
        self.asides: dict[str, UnreadableRows] = defaultdict(UnreadableRows)

    def put(self, ids: Iterable[str], queue: str) -> None:
        with self.lock:
            self.places.update(dict.fromkeys(ids, queue))
            while len(self.places) > MOST_PLACES:
                del self.places[next(iter(self.places))]


class Shard:
    """One part. The root's queue is empty."""

    def __init__(self, queue: str, engine: RedisEngine) -> None:
        self.queue = queue
        self.engine = engine
        self.opening = asyncio.Lock()
        self.registered_at: float | None = None
        self.away: StoreError | None = None
        """Why it can't be reached just now."""
        self.term: Term | None = None
        self.ahead: Duration = 0
        """How far its server's clock is ahead of the one that callers are told."""
        self.unsure: dict[str, int] = {}
        """By worker, the number of a claim that may have taken effect, though nobody has its answer."""
        self.unsent: list[Minute] = []

    @property
    def is_open(self) -> bool:
        return self.engine._store is not None


class ShardedNotifier(Notifier):
    """Listens to the channels of all queues on one connection: a node of a cluster gets what is told at any of them."""

    def __init__(self, address: Address, may_block: MayBlock, local: LocalNotifier) -> None:
        super().__init__(address, Keys(address.prefix), asyncio.get_running_loop(), may_block, local)
        self.tags = {address.prefix}
        self.subscribers: WeakSet[Subscriber] = WeakSet()

    async def connect(self) -> Connection:
        if self.address.kind is not Kind.CLUSTER:
            return await super().connect()
        places = random.sample(self.address.places, len(self.address.places))
        return await first_of(self.address, places, credentials(self.address), self.receive)

    def subscribe(self, topics: Collection[str], loop: asyncio.AbstractEventLoop) -> Subscriber:
        listener = self.local.subscribe(topics, loop)
        channels = [each for topic in topics for each in self.channels(topic)]
        self.listen_to(channels)
        subscriber = Subscriber(self, listener, channels)
        self.subscribers.add(subscriber)
        return subscriber

    def channels(self, topic: str) -> list[str]:
        kind, queue = parse_topic(topic)
        tags = [f"{self.address.prefix}:{queue}"] if kind in OF_QUEUES else sorted(self.tags)
        return [Keys(tag).channel(topic) for tag in tags]

    def learn(self, tag: str) -> None:
        """There is another part: subscribers to topics of any part listen to this one too."""
        if tag in self.tags:
            return
        self.tags.add(tag)
        for each in self.subscribers:
            if not each.is_closed:
                topics = [topic for topic in each.topics if parse_topic(topic)[0] not in OF_QUEUES]
                channels = [Keys(tag).channel(topic) for topic in topics]
                each.channels.extend(channels)
                self.listen_to(channels)

    def topics(self, channel: bytes) -> list[str]:
        return [channel.decode().partition("}:topic:")[2]]


class Shards:
    """All parts of an open store."""

    def __init__(self, address: Address, memory: Memory, may_block: MayBlock) -> None:
        self.address = address
        self.memory = memory
        self.may_block = may_block
        self.local = LocalNotifier()
        self.notifier = ShardedNotifier(address, may_block, self.local)
        self.root = Shard("", RedisEngine(address, memory.asides[""], self.local))
        self.by_queue: dict[str, Shard] = {}
        self.looking: set[asyncio.Task[None]] = set()
        self.turn = 0
        self.closed = asyncio.Event()

    @property
    def names(self) -> str:
        """The key of a hash whose fields are the queues."""
        return Keys(self.address.prefix)("shards")

    async def close(self) -> None:
        self.closed.set()
        for each in self.looking:
            each.cancel()
        await self.notifier.close()
        for shard in (*self.by_queue.values(), self.root):
            await shard.engine.close()

    def forget(self) -> None:
        for shard in (*self.by_queue.values(), self.root):
            shard.engine.forget()

    # Parts.

    def shard(self, queue: str) -> Shard:
        found = self.by_queue.get(queue) if queue else self.root
        if found is None:
            tag = f"{self.address.prefix}:{queue}"
            address = structs.replace(self.address, prefix=tag, by_queue=False, is_part=True)
            found = Shard(queue, RedisEngine(address, self.memory.asides[queue], self.local))
            self.by_queue[queue] = found
        return found

    async def open(self, shard: Shard, *, create: bool) -> Shard:
        if not shard.is_open:
            async with shard.opening:
                if self.closed.is_set():
                    raise Closed(f"the engine on {self.address} has been closed.")
                await shard.engine.open(self.may_block, create=create)
            if self.closed.is_set():
                await shard.engine.close()
            self.notifier.learn(shard.engine.address.prefix)
        return shard

    async def of(self, queue: str) -> Shard:
        """The part of a queue, to write to it. Its name is known to all before anything is written."""
        shard = self.shard(queue)
        if not queue:
            return shard
        age = None if shard.registered_at is None else time.monotonic() - shard.registered_at
        if age is None or age > REGISTER_SECONDS:
            try:
                await self.call("HSET", self.names, queue, "1")
                shard.registered_at = time.monotonic()
            except AWAY:
                if age is None:
                    raise
        return await self.open(shard, create=True)

    async def find(self, queue: str) -> Shard:
        """The part of a queue, to read it. If there is none, the root, which knows nothing of that queue either."""
        try:
            return await self.open(self.shard(queue), create=False)
        except StoreMissing:
            return self.root

    async def call(self, *command: str) -> list[bytes]:
        """A command about the names of queues."""
        client = self.root.engine._opened().client
        found = await client.persist(lambda: client.call(*command))
        return found if isinstance(found, list) else []

    async def all(self, queues: Collection[str] = ()) -> list[Shard]:
        """The parts of all queues, or of these, by name. If the root is away, those that are known."""
        try:
            names = {name.decode() for name in await self.call("HKEYS", self.names)}
        except AWAY:
            names = {name for name, shard in self.by_queue.items() if shard.registered_at is not None}
            if not names:
                raise
        return [self.shard(name) for name in sorted(names) if not queues or name in queues]

    async def drop(self, shard: Shard) -> None:
        """Remove the name of a queue of which nothing is left, unless something has come in between."""
        if await self.is_empty(shard):
            await self.call("HDEL", self.names, shard.queue)
            shard.registered_at = None
            if not await self.is_empty(shard):
                await self.call("HSET", self.names, shard.queue, "1")

    async def is_empty(self, shard: Shard) -> bool:
        engine = shard.engine
        counts = (await engine.counts()).tasks
        rest = [await engine.queues(), await engine.workers(), await engine.schedules(), await engine.audit(1)]
        return not any(rest) and not any(any(states.values()) for states in counts.values())

    # Asking several.

    async def ask(
        self,
        shards: Iterable[Shard],
        verb: Callable[[Shard], Awaitable[Answer]],
        *,
        patiently: bool = False,
        create: bool = False,
    ) -> list[tuple[Shard, Answer | StoreError]]:
        """Ask these at the same time. Those that don't exist are left out, and those that fail answer their error.

        One that was away at the last look is asked only `patiently`: the others need not wait for it.
        """

        async def one(shard: Shard) -> Answer:
            if shard.away is not None and not patiently:
                raise shard.away
            await (self.of(shard.queue) if create else self.open(shard, create=False))
            return await verb(shard)

        asked = list(shards)
        found = zip(asked, await together(map(one, asked)), strict=True)
        for shard, answer in (answers := [*found]):
            if isinstance(answer, AWAY):
                self.lost(shard, answer)
        return [(shard, answer) for shard, answer in answers if not isinstance(answer, StoreMissing)]

    def lost(self, shard: Shard, error: StoreError) -> None:
        """It can't be reached: it is not asked together with others until it can."""
        if shard.away is None and not self.closed.is_set():
            shard.away = error
            task = asyncio.get_running_loop().create_task(self.until_back(shard), name="dibs-look")
            self.looking.add(task)
            task.add_done_callback(self.looking.discard)

    async def until_back(self, shard: Shard) -> None:
        while shard.away is not None:
            await asyncio.sleep(LOOK_SECONDS * random.uniform(0.8, 1.2))
            with suppress(*AWAY, Closed):
                with suppress(StoreMissing):
                    await self.open(shard, create=False)
                    await shard.engine._view(nothing)
                shard.away = None
        if shard.is_open:  # leases have ended, though their holders may live
            shard.engine._opened().opened_at = time.monotonic()
        self.local.notify([work_topic(shard.queue)])


async def nothing(_: object) -> None:
    """A verb that needs no more than that the part can be read."""


async def together(calls: Iterable[Awaitable[Answer]]) -> list[Answer | StoreError]:
    """What each of these comes to, one way or the other. Errors that are not the store's are raised."""
    answers: list[Answer | StoreError] = []
    for answer in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(answer, BaseException) and not isinstance(answer, StoreError):
            raise answer
        answers.append(answer)
    return answers


def answers_of(asked: Sequence[tuple[Shard, Answer | StoreError]], *, some: bool = False) -> list[tuple[Shard, Answer]]:
    """The answers; the first error is raised, or with `some` only if there is nothing else."""
    errors = [answer for _, answer in asked if isinstance(answer, StoreError)]
    found = [(shard, answer) for shard, answer in asked if not isinstance(answer, StoreError)]
    if errors and not (some and found):
        raise errors[0]
    return found
