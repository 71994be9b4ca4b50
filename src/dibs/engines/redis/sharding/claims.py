"""claim over several parts: each is asked for its share, and those that gave it are asked for what is left."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct, structs

from dibs.core.task import LeasedTask
from dibs.core.times import Duration, Instant
from dibs.engines.redis.sharding.shards import AWAY, Shard, Shards
from dibs.engines.values import Claimed, ClaimRequest
from dibs.errors import StoreError, UsageError

__all__ = ["claim"]


async def claim(shards: Shards, request: ClaimRequest, now: Instant | None) -> Claimed:
    queues = list(dict.fromkeys(request.queues))
    if len(queues) < 2:
        return await claim_from(shards, await shards.of(queues[0]) if queues else shards.root, request, now)
    if request.floors:
        raise UsageError(
            "with shard=queue, slots can be reserved only in a worker of one queue: serve each queue with a worker of "
            "its own, leave the reserved slots out, or leave shard=queue out of the URL."
        )
    parts = [shards.shard(queue) for queue in queues]
    there = [shard for shard in parts if shard.away is None]
    claims = Claims(shards, request, now, patiently=not there)
    parts = there or parts
    if request.repeat:
        await claims.ask([(shard, 0, 0) for shard in parts])
        if claims.given:
            return claims.answer()
    if not request.in_order:
        shards.turn += 1
        first = shards.turn % len(parts)
        parts = parts[first:] + parts[:first]
    await claims.gather(parts)
    return claims.answer()


class Share(Struct, frozen=True):
    """What one part was asked for, and how much it gave."""

    shard: Shard
    limit: int
    prefetch: int
    given: int


class Claims:
    """One claim while it is put together."""

    def __init__(self, shards: Shards, request: ClaimRequest, now: Instant | None, *, patiently: bool) -> None:
        self.shards = shards
        self.request = request
        self.now = now
        self.patiently = patiently
        self.tasks: dict[str, deque[LeasedTask]] = {}
        self.due: dict[str, Duration | None] = {}
        self.given = 0
        self.errors: list[StoreError] = []

    @property
    def limit(self) -> int:
        """What is still wanted."""
        return max(0, self.request.limit - self.given)

    @property
    def prefetch(self) -> int:
        return max(0, self.request.prefetch - max(0, self.given - self.request.limit))

    async def gather(self, parts: list[Shard]) -> None:
        """Ask until enough is given, or none has more. In order, one after the other; otherwise all at a time."""
        is_first = True
        while parts and (is_first or self.limit + self.prefetch > 0):
            is_first = False
            asked, parts = (parts[:1], parts[1:]) if self.request.in_order else (parts, [])
            shares = await self.ask(split(asked, self.limit, self.prefetch))
            if not self.request.in_order:
                parts = [each.shard for each in shares if self.may_have_more(each)]

    def may_have_more(self, share: Share) -> bool:
        """A queue with limits gives nothing in advance, and may still give more when it is asked for more."""
        if share.given >= share.limit + share.prefetch:
            return True
        return self.limit > 0 and share.given == share.limit and (share.given > 0 or share.limit == 0)

    async def ask(self, parts: Sequence[tuple[Shard, int, int]]) -> list[Share]:
        wanted = {shard.queue: (limit, prefetch) for shard, limit, prefetch in parts}

        async def one(shard: Shard) -> Claimed:
            limit, prefetch = wanted[shard.queue]
            part = structs.replace(self.request, queues=(shard.queue,), limit=limit, prefetch=prefetch)
            return await claim_from(self.shards, shard, part, self.now)

        found = []
        for shard, answer in await self.shards.ask(
            [each[0] for each in parts], one, patiently=self.patiently, create=True
        ):
            if isinstance(answer, StoreError):
                self.errors.append(answer)
                continue
            self.due[shard.queue] = answer.next_due_in
            self.tasks.setdefault(shard.queue, deque()).extend(answer.tasks)
            self.given += len(answer.tasks)
            found.append(Share(shard, *wanted[shard.queue], len(answer.tasks)))
        return found

    def answer(self) -> Claimed:
        """What was given, merged by the first of each queue. A part that failed is asked again in the next claim."""
        if self.errors and not self.due:
            raise self.errors[0]
        tasks: list[LeasedTask] = []
        if self.request.in_order:
            tasks = [task for given in self.tasks.values() for task in given]
        else:
            order = [*dict.fromkeys(self.request.queues)]
            while lines := [self.tasks[queue] for queue in order if self.tasks.get(queue)]:
                tasks.append(min(lines, key=lambda line: (-min(line[0].effective, 100), line[0].ready_at)).popleft())
        return Claimed(tasks, min((due for due in self.due.values() if due is not None), default=None))


def split(shards: Sequence[Shard], limit: int, prefetch: int) -> list[tuple[Shard, int, int]]:
    """Even shares; what is left over goes to the first of them."""
    n = len(shards)
    return [
        (shard, limit // n + (place < limit % n), prefetch // n + (place < prefetch % n))
        for place, shard in enumerate(shards)
    ]


async def claim_from(shards: Shards, shard: Shard, request: ClaimRequest, now: Instant | None) -> Claimed:
    """Claim from one part. If an earlier claim there had no answer, it is repeated in place of this one."""
    sequence = shard.unsure.get(request.worker)
    if sequence is not None:
        request = structs.replace(request, sequence=sequence, repeat=True)
    try:
        answer = await shard.engine.claim(request, now=now)
    except AWAY:
        shard.unsure.setdefault(request.worker, request.sequence)
        raise
    shard.unsure.pop(request.worker, None)
    shards.memory.put((task.id for task in answer.tasks), shard.queue)
    return answer
