"""Whatever a database or role has as its defaults, statements do the same."""

from __future__ import annotations

import asyncio
import os
from collections import Counter as Tally
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from postgres_help import claim, connection, new, run, set_queue, settle, sound

from dibs.core.states import State
from dibs.engines.postgres import from_url
from servers.postgres import new_schema, server

DEFAULTS = {
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "search_path": "nowhere",
    "statement_timeout": "1ms",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "1ms",
    "datestyle": "German, DMY",
    "intervalstyle": "sql_standard",
    "bytea_output": "escape",
    "timezone": "Pacific/Kiritimati",
    "extra_float_digits": "-15",
    "standard_conforming_strings": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "on",
    "enable_seqscan": "on",
    "client_min_messages": "debug1",
    "synchronous_commit": "local",
}

KEPT_RIGHT = {"default_transaction_isolation": "read committed", "lock_timeout": "0", "enable_seqscan": "off"}


@asynccontextmanager
async def role(defaults: dict[str, str]) -> AsyncIterator[str]:
    """The URL of a role with some defaults."""
    name = f"odd_{os.getpid()}_{new_schema()}"
    async with connection() as own:
        await own.execute(f"CREATE ROLE {name} LOGIN SUPERUSER")
        for setting, value in defaults.items():
            quoted = ", ".join(f"'{part.strip()}'" for part in value.split(","))
            await own.execute(f"ALTER ROLE {name} SET {setting} = {quoted}")
    yield server().url.replace("postgres@", f"{name}@")


@pytest.mark.skipif("DIBS_TEST_POSTGRES" in os.environ, reason="needs a server of its own")
def test_odd_defaults_change_nothing() -> None:
    async def test() -> None:
        async with role(DEFAULTS) as url:
            schema = new_schema()
            workers = [from_url(f"{url}&schema={schema}") for _ in range(3)]
            for engine in workers:
                await engine.open()
            await set_queue(workers[0], max_concurrent=50)
            batches = [[new(key=f"k{i}", queue=("default", "limited")[i % 2]) for i in range(20)] for _ in workers]
            answers = await asyncio.gather(
                *(engine.enqueue(batch) for engine, batch in zip(workers, batches, strict=True))
            )
            assert Tally(answer.outcome for each in answers for answer in each) == {"enqueued": 20, "duplicate": 40}
            await workers[0].enqueue([new() for _ in range(200)])

            async def work(worker: int) -> int:
                done = 0
                while found := await claim(workers[worker % 3], 4, f"w{worker}"):
                    await settle(workers[worker % 3], found)
                    done += len(found)
                return done

            assert sum(await asyncio.gather(*(work(i) for i in range(6)))) == 210
            assert (await workers[1].counts()).tasks["default"][State.COMPLETED] == 210
            await sound(workers[2])
            store = workers[0]._store
            assert store is not None
            session = await store.pool.connect()
            shown = {name: await session.fetchval("SELECT current_setting($1)", name) for name in KEPT_RIGHT}
            assert shown == KEPT_RIGHT
            session.terminate()
            for engine in workers:
                await engine.close()

    run(test)
