"""What does a Redis beside PostgreSQL give? Each part compares both in alternating rounds of one run.

- `wake`: from an enqueue until an idle worker has claimed the task, by NOTIFY and by Redis.
- `callers`: 64 callers that enqueue, with a worker that listens.
- `limited`: the same, with `enqueue_rate` on the queue, which is never reached: the row in PostgreSQL, tokens in Redis.
- `starts`: claims from a queue with a start rate, with its bucket and as if reading and writing that cost nothing.
- `ready`: claims by PostgreSQL's own order, and of ids that Redis names (only here: it is not part of Dibs).
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from statistics import median
from typing import Any

import asyncpg

from dibs import Dibs
from dibs.core.settings import QueueSettings
from dibs.core.task import Lease, NewTask, Outcome, Settlement
from dibs.core.times import SECOND
from dibs.engines.open import open_engine, with_accelerator
from dibs.engines.postgres import PostgresEngine
from dibs.engines.postgres.statements import function_sources, render, statement
from dibs.engines.postgres.transaction import Snapshot, Transaction
from dibs.engines.redis.client import Client
from dibs.engines.redis.url import address_of
from dibs.engines.topics import work_topic
from dibs.engines.values import ClaimRequest
from dibs.runtime.ids import IdMaker
from dibs.testing.tasks import new_task
from postgres_server import serving, with_option
from redis_server import Server as RedisServer
from redis_server import find_server

QUEUE = "default"
WAYS = ("PostgreSQL alone", "with Redis")
PARTS = ("wake", "callers", "limited", "starts", "ready")
CALLERS = 64
SETTLED = 0.06
"""Seconds after which no wake-up is repeated."""
BATCH = 10
new_id = IdMaker()
schemas = count(1)
sequences = count(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--url", help="the PostgreSQL server to measure on; else one is started")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--wakes", type=int, default=300)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--arrived", type=float, default=100.0, help="over how many seconds they came, for `ready`")
    parser.add_argument("--lag", type=float, default=2.0, help="seconds of ranks below the last one that claims read")
    options = parser.parse_args()
    redis = RedisServer(find_server(None), "off")
    with serving(options.url) as server, server.database() as url, redis.database() as beside:
        for part in options.parts:
            print(f"\n{part}", flush=True)
            asyncio.run(globals()[part](options, url, beside))


def url_of(way: str, url: str, beside: str) -> str:
    """A new store."""
    own = with_option(url, "schema", f"bench_{next(schemas)}")
    return with_accelerator(own, beside) if way == WAYS[1] else own


@asynccontextmanager
async def opened(*urls: str) -> AsyncIterator[list[PostgresEngine]]:
    found = [open_engine(url) for url in urls]
    for engine in found:
        await engine.open()
    yield found  # type: ignore[misc]
    for engine in found:
        await engine.close()


def tasks(number: int) -> list[NewTask]:
    return [new_task(new_id(), queue=QUEUE, name="work", client="a") for _ in range(number)]


def tell(name: str, figures: Sequence[float], unit: str) -> None:
    print(f"  {name:45} {median(figures):12,.2f} {unit}   {min(figures):,.2f} to {max(figures):,.2f}", flush=True)


# Waking.


async def wake(options: argparse.Namespace, url: str, beside: str) -> None:
    stores = [url_of(way, url, beside) for way in WAYS]
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    async with opened(*stores, *stores) as (*workers, plain, fast):
        waiting = [engine.subscribe([work_topic(QUEUE)]) for engine in workers]
        for number in range(options.wakes + 10):
            for way, worker, producer, each in zip(WAYS, workers, (plain, fast), waiting, strict=True):
                while await each.wait(SETTLED):
                    pass
                span = await woken(worker, producer, each)
                if number >= 10:
                    took[way].append(span * 1000)
        for each in waiting:
            each.close()
    for way in WAYS:
        ordered = sorted(took[way])
        p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
        print(f"  {way:45} P50 {p50:.2f} ms   P99 {p99:.2f} ms")


async def woken(worker: PostgresEngine, producer: PostgresEngine, waiting: Any) -> float:
    began = time.perf_counter()

    async def work() -> float:
        while True:
            await waiting.wait(5)
            given = (await worker.claim(request(1))).tasks
            if given:
                ended = time.perf_counter() - began
                await worker.settle([Settlement(lease=Lease(given[0].id, given[0].lease), outcome=Outcome.COMPLETED)])
                return ended

    working = asyncio.create_task(work())
    await producer.enqueue(tasks(1))
    return await working


def request(limit: int) -> ClaimRequest:
    return ClaimRequest(worker="w", sequence=next(sequences), queues=(QUEUE,), limit=limit)


# Enqueueing.


async def callers(options: argparse.Namespace, url: str, beside: str) -> None:
    await enqueue_rates(options, url, beside, QueueSettings())


async def limited(options: argparse.Namespace, url: str, beside: str) -> None:
    await enqueue_rates(options, url, beside, QueueSettings(enqueue_rate=1e6, enqueue_burst=1_000_000))


async def enqueue_rates(options: argparse.Namespace, url: str, beside: str, settings: QueueSettings) -> None:
    stores = [url_of(way, url, beside) for way in WAYS]
    apps: dict[str, list[float]] = {way: [] for way in WAYS}
    calls: dict[str, list[float]] = {way: [] for way in WAYS}
    async with opened(*stores, *stores) as (*workers, plain, fast):
        for worker in workers:
            await worker.set_queue(QUEUE, settings, expected=0)
        waiting = [engine.subscribe([work_topic(QUEUE)]) for engine in workers]
        for _ in range(options.rounds):
            for way, store, producer in zip(WAYS, stores, (plain, fast), strict=True):
                async with Dibs(store) as app:
                    task = app.task(nothing)
                    await task.aenqueue()
                    apps[way].append(await rate(options.seconds, task.aenqueue))
                calls[way].append(await rate(options.seconds, lambda each=producer: each.enqueue(tasks(1))))
        for each in waiting:
            each.close()
    for way in WAYS:
        tell(f"{CALLERS} callers of one app, {way}", apps[way], "/s")
        tell(f"{CALLERS} calls of one engine, {way}", calls[way], "/s")


def nothing() -> None:
    pass


async def rate(seconds: float, act: Callable[[], Awaitable[Any]], callers: int = CALLERS) -> float:
    """How often it is done in a second, by so many at once."""
    until = time.perf_counter() + seconds

    async def repeat() -> int:
        done = 0
        while time.perf_counter() < until:
            await act()
            done += 1
        return done

    return sum(await asyncio.gather(*(repeat() for _ in range(callers)))) / seconds


# Start rates.


async def starts(options: argparse.Namespace, url: str, beside: str) -> None:
    """With 8 workers, each an engine of its own."""
    stores = {"no limit": QueueSettings(), "start rate": QueueSettings(rate=1e6, burst=1_000_000)}
    figures: dict[str, list[float]] = {name: [] for name in (*stores, "start rate, free buckets")}
    for name, settings in stores.items():
        store = url_of(WAYS[0], url, beside)
        async with opened(*[store] * 8) as workers:
            await workers[0].set_queue(QUEUE, settings, expected=0)
            for _ in range(options.rounds):
                await claim_all(options, workers, figures[name])
                if name == "start rate":
                    with_buckets = Snapshot.rows, Transaction.write
                    Snapshot.rows, Transaction.write = free_rows, free_write  # type: ignore[method-assign]
                    await claim_all(options, workers, figures["start rate, free buckets"])
                    Snapshot.rows, Transaction.write = with_buckets  # type: ignore[method-assign]
    for name, found in figures.items():
        tell(name, found, "claims/s")


async def claim_all(options: argparse.Namespace, workers: Sequence[PostgresEngine], figures: list[float]) -> None:
    for _ in range(10):
        await workers[0].enqueue(tasks(1000))
    turns = count()
    figures.append(
        await rate(options.seconds, lambda: workers[next(turns) % len(workers)].claim(request(1)), len(workers))
    )


read_rows, write_rows = Snapshot.rows, Transaction.write


async def free_rows(self: Snapshot, name: str, *parameters: Any) -> list[Any]:
    return [] if name == "buckets" else await read_rows(self, name, *parameters)


async def free_write(self: Transaction, name: str, *parameters: Any) -> int:
    return 0 if name == "save_buckets" else await write_rows(self, name, *parameters)


# A ready index.


async def ready(options: argparse.Namespace, url: str, beside: str) -> None:
    client = Client(address_of(beside), "bench")
    figures: dict[tuple[int, bool, str], list[float]] = {}
    for _ in range(max(1, options.rounds // 2)):
        for number in (8, 32):
            for held in (False, True):
                for way in ("claim function", "ids from Redis"):
                    found = await claims(options, url, client, number, held, way)
                    figures.setdefault((number, held, way), []).append(found)
    for (number, held, way), found in figures.items():
        tell(f"{number} claimers{', a held transaction' if held else ''}, {way}", found, "tasks/s")
    client.close()


async def claims(options: argparse.Namespace, url: str, client: Client, number: int, held: bool, way: str) -> float:
    """Tasks that are claimed in a second, ten at a time: the first half of `waiting`."""
    own = url_of(WAYS[0], url, "")
    async with opened(own) as (engine,):
        schema = engine.address.schema
        ids: list[str] = []
        batches = options.waiting // 1000
        for number_of in range(batches):
            batch = tasks(1000)
            ids += [each.id for each in batch]
            ago = options.arrived * (batches - number_of) / batches
            await engine.enqueue(batch, now=time.time_ns() // 1000 - round(ago * SECOND))
        await client.call("DEL", "ready")
        for first in range(0, len(ids), 1000):
            scored = [each for place, task in enumerate(ids[first : first + 1000], first) for each in (place, task)]
            await client.call("ZADD", "ready", *scored)
        catalog = engine._opened().catalog
        track = next(iter(catalog.of_queue(QUEUE))).number
        connections = [await asyncpg.connect(url) for _ in range(number + 2)]
        *claimers, holder, keeper = connections
        await keeper.execute(by_ids(schema))
        await keeper.execute(f'VACUUM ANALYZE "{schema}".tasks')
        if held:
            await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
            await holder.fetchval(f'SELECT count(*) FROM "{schema}".store')
        fixed = (catalog.generation, "w", 1, 30 * SECOND, BATCH, [track], [0], [50], [SECOND])
        rest = (False, False, 0, None, "{}", [], None, None)
        lows = dict.fromkeys(claimers, -(2**62))
        free = list(claimers)
        given = 0

        async def by_order() -> None:
            nonlocal given
            own = free.pop()
            *rows, _ = await own.fetch(statement("claim", schema), None, *fixed, [lows[own]], *rest)
            given += len(rows)
            if rows:  # as claims do when dead entries make them slow
                lows[own] = rows[-1]["rank"] - round(options.lag * SECOND)
            free.append(own)

        async def by_hints() -> None:
            nonlocal given
            own = free.pop()
            found = (await client.call("ZPOPMIN", "ready", BATCH))[::2]
            *rows, _ = await own.fetch(
                f'SELECT * FROM "{schema}".claim_ids($1::bigint, $2::bigint, $3::text, $4::bigint, $5::bigint, '
                "$6::int, $7::int[], $8::int[], $9::int[], $10::bigint[], $11::bigint[], $12::boolean, $13::boolean, "
                "$14::bigint, $15::bigint, $16::jsonb, $17::bigint[], $18::int[], $19::int[], $20::uuid[])",
                None, *fixed, [lows[own]], *rest, [each.decode() for each in found],
            )  # fmt: skip
            given += len(rows)
            free.append(own)

        began = time.perf_counter()

        async def repeat(act: Callable[[], Awaitable[None]]) -> None:
            while given < options.waiting // 2:
                await act()

        await asyncio.gather(*(repeat(by_order if way == "claim function" else by_hints) for _ in claimers))
        took = time.perf_counter() - began
        for each in connections:
            await each.close()
        return given / took


def by_ids(schema: str) -> str:
    """The function `claim`, which takes ids instead of searching for them. All else is the same."""
    text = function_sources()["claim"]
    before, _, rest = text.partition("    IF cardinality(tracks) = 0 OR wanted <= 0 THEN")
    _, _, after = rest.partition("    found_at := clock_timestamp();")
    chosen = """    chosen := ARRAY(
        SELECT t.id FROM {schema}.tasks AS t
        WHERE t.id = ANY (hints) AND t.state = 'pending' AND t.gate < 2
          AND (t.expires_at IS NULL OR t.expires_at > instant) AND NOT passed ? t.id::text
        FOR UPDATE SKIP LOCKED
    );
    found_at := clock_timestamp();"""
    text = before + chosen + after
    text = text.replace("claim_{version}(", "claim_ids(", 1).replace(
        "watched int[], watched_due int[]\n", "watched int[], watched_due int[], hints uuid[]\n", 1
    )
    return render(text, schema)


if __name__ == "__main__":
    main()
