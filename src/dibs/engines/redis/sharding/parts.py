"""How an engine with `shard=queue` is opened and closed, and how its verbs ask the parts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dibs.engines.base import Joined, MayBlock, Subscription, never
from dibs.engines.redis.connecting import Address
from dibs.engines.redis.engine import FEATURES, RedisEngine, forgotten
from dibs.engines.redis.sharding.shards import Memory, Shard, Shards, answers_of
from dibs.engines.values import Feature, PartlyAnswered
from dibs.errors import Closed, StoreError

__all__ = ["Parts"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Ask = Callable[[RedisEngine], Awaitable[Answer]]


class Parts:
    """The lifecycle of such an engine, and the ways in which its verbs ask parts."""

    def __init__(self, address: Address, memory: Memory | None = None) -> None:
        self.address = address
        self._memory = memory or Memory()
        self._shards: Shards | None = None

    @property
    def features(self) -> frozenset[Feature]:
        return FEATURES - {Feature.CROSS_QUEUE}

    # Lifecycle.

    def _opened(self) -> Shards:
        if self._shards is None:
            raise Closed(f"the engine on {self.address} is not open.")
        return self._shards

    async def open(self, may_block: MayBlock = never, *, create: bool = True) -> None:
        if self._shards is None:
            shards = Shards(self.address, self._memory, may_block)
            try:
                await shards.root.engine.open(may_block, create=create)
            except BaseException:
                await shards.close()
                raise
            self._shards = shards

    async def close(self) -> None:
        shards, self._shards = self._shards, None
        if shards is not None:
            await shards.close()

    def forget(self) -> None:
        if self._shards is not None:
            self._shards.forget()
            forgotten.append(self._shards)
            self._shards = None

    def join(self, connection: Any) -> Joined:
        return self._root().join(connection)

    async def backup(self, target: Path) -> None:
        await self._root().backup(target)

    async def migrations(self, *, sql: bool = False) -> list[str]:
        return await self._root().migrations(sql=sql)

    def _root(self) -> RedisEngine:
        return RedisEngine(self.address) if self._shards is None else self._shards.root.engine

    def subscribe(self, topics: Collection[str]) -> Subscription:
        return self._opened().notifier.subscribe(topics, asyncio.get_running_loop())

    # Asking parts.

    async def _all(
        self, ask: Ask[Answer], queues: Collection[str] = (), *, root: bool = False, some: bool = False
    ) -> list[Answer]:
        """What all parts say, or those of some queues. `some`: those that can't be reached are left out."""
        return [answer for _, answer in await self._each(lambda shard: ask(shard.engine), queues, root=root, some=some)]

    async def _each(
        self,
        ask: Callable[[Shard], Awaitable[Answer]],
        queues: Collection[str] = (),
        *,
        root: bool = False,
        some: bool = False,
    ) -> list[tuple[Shard, Answer]]:
        shards = self._opened()
        asked = [*([shards.root] if root else []), *await shards.all(queues)]
        return answers_of(await shards.ask(asked, ask, patiently=not some), some=some)

    async def _batch(
        self,
        items: Sequence[Item],
        places: Sequence[str],
        ask: Callable[[RedisEngine, list[Item]], Awaitable[Sequence[Answer]]],
        *,
        create: bool = False,
    ) -> list[Answer]:
        """Ask the part of each item; the answers are in the order of the items."""
        shards, positions = self._opened(), defaultdict[str, list[int]](list)
        for position, queue in enumerate(places):
            positions[queue].append(position)
        if len(positions) == 1:
            queue = places[0]
            shard = await (shards.of(queue) if create else shards.find(queue))
            return [*await ask(shard.engine, list(items))]
        parts = {queue: [items[position] for position in found] for queue, found in positions.items()}
        asked = [shards.shard(queue) for queue in parts]
        answers: list[Any] = [None] * len(items)
        errors: list[StoreError] = []
        found = await shards.ask(asked, lambda shard: ask(shard.engine, parts[shard.queue]), create=create)
        for queue in parts.keys() - {shard.queue for shard, _ in found}:  # the store was emptied
            found.append((shards.shard(queue), await ask(shards.root.engine, parts[queue])))
        for shard, answer in found:
            if isinstance(answer, StoreError):
                errors.append(answer)
                continue
            for position, each in zip(positions[shard.queue], answer, strict=True):
                answers[position] = each
        if errors:
            raise errors[0] if len(errors) == len(found) else PartlyAnswered(errors[0], answers)
        return answers

    async def _locate(self, ids: Iterable[str]) -> dict[str, str]:
        """The queue of each task; empty, which stands for the root, if there is no such task."""
        places, asked = self._memory.places, dict.fromkeys(ids)
        missing = [each for each in asked if each not in places]
        if missing:
            await self._find(missing, lambda engine: engine.get(missing))
        return {each: places.get(each, "") for each in asked}

    async def _find(self, ids: Sequence[str], ask: Ask[Sequence[Any]]) -> dict[str, Any]:
        """What any part has of some ids, which are remembered to be there."""
        shards, found = self._opened(), dict[str, Any]()
        errors: list[StoreError] = []
        for shard, answer in await shards.ask(await shards.all(), lambda shard: ask(shard.engine), patiently=True):
            if isinstance(answer, StoreError):
                errors.append(answer)
                continue
            here = {each: there for each, there in zip(ids, answer, strict=True) if there is not None}
            found |= here
            self._memory.put(here, shard.queue)
        if errors and len(found) < len(set(ids)):
            raise errors[0]
        return found

    async def _locate_record(self, record_id: str, ask: Callable[[RedisEngine], Awaitable[Sequence[Any]]]) -> str:
        """Where a workflow or a background step is."""
        if (place := self._memory.places.get(record_id)) is None:
            for shard, found in await self._each(lambda shard: ask(shard.engine), root=True):
                if found:
                    place = shard.queue
                    self._memory.put([record_id], place)
        return place or ""

    async def _lenient(self, ask: Callable[[Shard], Awaitable[Answer]]) -> list[tuple[Shard, Answer]]:
        """What those parts say that can be reached, if any."""
        shards = self._opened()
        asked = await shards.ask(await shards.all(), ask)
        return [(shard, answer) for shard, answer in asked if not isinstance(answer, StoreError)]

    async def _workflow_place(self, workflow_id: str) -> str:
        return await self._locate_record(workflow_id, lambda engine: engine.workflows([workflow_id]))

    async def _of(self, queue: str) -> RedisEngine:
        return (await self._opened().of(queue)).engine

    async def _find_part(self, queue: str) -> RedisEngine:
        return (await self._opened().find(queue)).engine
