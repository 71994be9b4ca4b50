"""Claims that wait for a queue that another session has locked: what they count, and what they give until then."""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from postgres_help import NOW, connection, engines, new, run

from dibs.core.settings import QueueSettings, change_settings
from dibs.core.times import SECOND
from dibs.engines.postgres import PostgresEngine, from_url
from dibs.engines.postgres.pool import LONGEST_SILENCE
from dibs.engines.postgres.statements import quoted
from dibs.engines.postgres.store import NOTHING
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.values import Claimed, ClaimRequest
from servers.postgres import new_url

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
numbers = count(1)
WAITS = """
SELECT count(*) FROM pg_locks AS mine JOIN pg_locks AS theirs USING (locktype, database, classid, objid, objsubid)
WHERE mine.pid = $1 AND mine.granted AND NOT theirs.granted AND mine.locktype = 'advisory'
"""


@asynccontextmanager
async def holding(engine: PostgresEngine, queue: str) -> AsyncIterator[Any]:
    """Another session that has a queue until it is told to let go."""
    async with connection() as other:
        await other.execute("BEGIN")
        await other.execute(LOCK, f"{quoted(engine._opened().schema)}.queue {queue}")
        yield other


async def limit(engine: PostgresEngine, queue: str, **settings: object) -> None:
    await engine.set_queue(queue, change_settings(QueueSettings(), settings), expected=0)


async def claim(engine: PostgresEngine, *queues: str, now: int | None = None) -> Claimed:
    return await engine.claim(ClaimRequest(worker="w", sequence=next(numbers), queues=queues, limit=100), now=now)


async def until_waited_for(looker: Any, holder: Any) -> None:
    pid = await holder.fetchval("SELECT pg_backend_pid()")
    async with asyncio.timeout(20):
        while not await looker.fetchval(WAITS, pid):
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("settings", [{"rate": 1.0, "burst": 5}, {"max_concurrent": 5}, {"per_partition": 1}], ids=str)
def test_a_claim_that_waited_is_made_when_it_gets_the_queue(settings: dict[str, Any]) -> None:
    """Not when it began to wait: tokens of that time would be given again."""

    async def test() -> None:
        async with engines() as (engine,), connection() as looker:
            await limit(engine, "limited", **settings)
            await engine.enqueue([new(queue="limited", partition="p")])
            async with holding(engine, "limited") as holder:
                waiting = asyncio.create_task(claim(engine, "limited"))
                await until_waited_for(looker, holder)
                let_go: int = await holder.fetchval(CLOCK)
                await holder.execute("COMMIT")
                (task,) = (await waiting).tasks
            assert task.claimed_at >= let_go
            assert task.lease_expires_at - task.claimed_at == 30 * SECOND

    run(test)


def test_a_given_instant_rules_whoever_waits() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as looker:
            await limit(engine, "limited", rate=1.0, burst=5)
            await engine.enqueue([new(queue="limited")], now=NOW)
            async with holding(engine, "limited") as holder:
                waiting = asyncio.create_task(claim(engine, "limited", now=NOW))
                await until_waited_for(looker, holder)
                await holder.execute("COMMIT")
                assert [task.claimed_at for task in (await waiting).tasks] == [NOW]

    run(test)


def test_what_somebody_else_has_is_left_out_of_claims_from_several_queues() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            await limit(engine, "rated", rate=1.0, burst=5)
            await limit(engine, "slots", max_concurrent=50)
            await engine.enqueue([new(queue=queue) for queue in ("rated", "slots", "plain") for _ in range(7)])
            async with holding(engine, "rated") as holder:
                found = await claim(engine, "rated", "slots", "plain")
                assert Tally(task.queue for task in found.tasks) == {"slots": 7, "plain": 7}
                assert found.next_due_in is not None
                assert found.next_due_in <= SECOND // 10, "it will look again soon"
                await holder.execute("COMMIT")
            found = await claim(engine, "rated", "slots", "plain")
            assert [task.queue for task in found.tasks] == ["rated"] * 5

    run(test)


def test_who_waits_for_a_queue_keeps_no_other_for_long() -> None:
    """Whatever moves tasks of all queues takes them in order; what it has is free again while it waits for the next."""

    async def test() -> None:
        async with engines(2) as (engine, other), connection() as looker:
            for queue in ("a", "b"):
                await limit(engine, queue, fair=True)
                await engine.enqueue([new(queue=queue, tenant="t") for _ in range(3)])
            async with holding(engine, "b") as holder:
                cancelling = asyncio.create_task(engine.act([]))
                await until_waited_for(looker, holder)
                async with asyncio.timeout(20):
                    assert len((await claim(other, "a")).tasks) == 3
                assert not cancelling.done()
                await holder.execute("COMMIT")
                await cancelling

    run(test)


def test_a_session_behind_a_pooler_does_not_keep_its_locks_either() -> None:
    """A pooler's sessions have their own settings, so each transaction brings this one along."""

    async def silence(transaction: Transaction) -> str:
        found: str = await transaction.connection.fetchval("SHOW idle_in_transaction_session_timeout")
        return found

    async def test() -> None:
        for extra in ("", "&pgbouncer=yes"):
            engine = from_url(new_url() + extra)
            await engine.open()
            try:
                assert await engine._opened().write(silence, None, NOTHING) == f"{LONGEST_SILENCE // 1000}s"
            finally:
                await engine.close()

    run(test)
