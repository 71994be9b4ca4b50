"""Workers that are gone are missed, and nobody else: by a lock in a session that ends with its process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest
from postgres_help import claim, connection, engines, new, run, settle, sound

from dibs.core.policy import ABSENT_SECONDS, RESCUE_BATCH
from dibs.core.states import State
from dibs.core.task import HistoryEvent, WorkerState
from dibs.core.times import HOUR
from dibs.engines.figures import Counter
from dibs.engines.postgres import PostgresEngine, from_url, notifier, presence, settling
from dibs.engines.postgres.index_bloat import START
from dibs.engines.postgres.store import TASKS
from dibs.engines.values import Beat, Feature, Rescued
from dibs.errors import StoreUnavailable
from servers.cluster import Cluster
from servers.postgres import new_schema, server, server_url

PATIENCE = 30.0
ROW = 'SELECT state, presence FROM "{}".workers WHERE id = $1'
SINCE = "SELECT greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time())"
SESSIONS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted AND pid <> 0"


def beat(worker: str, **facts: Any) -> Beat:
    facts = {"pid": os.getpid(), **facts}
    return Beat(id=worker, host="here", version="1", queues=("default",), names=None, **{"lives_for": HOUR, **facts})


async def until(holds: Callable[[], Awaitable[Any]], said: str = "it did not happen") -> Any:
    """Until something holds, looked at often."""
    deadline = time.monotonic() + PATIENCE
    while not (found := await holds()):
        assert time.monotonic() < deadline, said
        await asyncio.sleep(0.01)
    return found


async def rescue_until(engine: PostgresEngine, enough: Callable[[Rescued], bool]) -> list[Rescued]:
    """Look until something is found."""
    found = []

    async def look() -> bool:
        found.append(await engine.rescue())
        return enough(found[-1])

    await until(look)
    return [each for each in found if each.ids or each.workers]


def found_nothing(rescued: Rescued) -> bool:
    return rescued == Rescued(at=rescued.at)


async def sessions_of(own: Any, engine: PostgresEngine, worker: str) -> list[int]:
    """The server's processes that hold a worker's lock."""
    rows = await own.fetch(
        f"{SESSIONS} AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "AND (classid::bigint << 32) | objid::bigint = hashtextextended($1, 0)",
        f'"{engine.address.schema}".workers {worker}',
    )
    return [row["pid"] for row in rows]


@asynccontextmanager
async def workers(number: int = 2, **options: str) -> AsyncIterator[tuple[list[PostgresEngine], Any]]:
    async with engines(number, **options) as opened, connection() as own:
        yield opened, own


async def kill(engine: PostgresEngine) -> None:
    """What the server sees of a killed process: its sessions are closed, and nothing else is said."""
    store = engine._store
    assert store is not None
    await store.presence.close()


def test_it_is_declared() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            assert Feature.PRESENCE in engine.features
            assert Feature.PRESENCE in engine.sibling().features

    run(test)


def test_a_sign_of_life_takes_the_lock_and_leaving_gives_it_back() -> None:
    async def test() -> None:
        async with workers(1) as ((engine,), own):
            schema = engine.address.schema
            await engine.beat(beat("w"))
            assert len(await sessions_of(own, engine, "w")) == 1
            row = await own.fetchrow(ROW.format(schema), "w")
            assert row["presence"] == await own.fetchval(SINCE)
            await engine.beat(beat("w"))
            assert len(await sessions_of(own, engine, "w")) == 1
            await engine.leave("w")

            async def gone() -> bool:
                return not await sessions_of(own, engine, "w")

            await until(gone)

    run(test)


def test_signs_of_life_for_other_processes_hold_nothing() -> None:
    async def test() -> None:
        async with workers(1) as ((engine,), own):
            await engine.beat(beat("w", pid=os.getpid() + 1))
            assert await sessions_of(own, engine, "w") == []
            assert (await own.fetchrow(ROW.format(engine.address.schema), "w"))["presence"] is None

    run(test)


def test_the_tasks_of_a_lost_worker_are_taken_back_once_and_its_term_ends() -> None:
    async def test() -> None:
        async with workers(3) as ((worker, other, third), _):
            await worker.enqueue([new() for _ in range(5)])
            await worker.beat(beat("w"))
            await other.beat(beat("other"))
            held = await claim(worker, 3, "w")
            theirs = await claim(other, 1, "other")
            term = await worker.lead("w")
            assert term is not None
            assert found_nothing(await other.rescue())
            assert await other.lead("other") is None
            began = time.monotonic()
            await kill(worker)
            found = await rescue_until(other, lambda rescued: bool(rescued.workers))
            assert time.monotonic() - began >= ABSENT_SECONDS
            (rescued,) = found
            assert sorted(rescued.ids) == sorted(task.id for task in held)
            assert rescued.workers == ["w"]
            assert {record.id: record.state for record in await other.workers()} == {
                "w": WorkerState.DEAD,
                "other": WorkerState.ACTIVE,
            }
            for record in await third.get(rescued.ids):
                assert record is not None
                assert (record.losses, record.attempts) == (1, 0)
                assert [entry.event for entry in await third.history(record.id)] == [HistoryEvent.LOST]
            successor = await third.lead("third")
            assert successor is not None
            assert successor.number > term.number
            assert (await worker.chore("fold_counts", term)).refused
            (record,) = await other.get([theirs[0].id])
            assert record is not None
            assert record.state is State.RUNNING
            await settle(worker, held)  # too late: refused
            assert (await other.counts()).counters["default"][Counter.REFUSED] == len(held)
            await sound(other)

    run(test)


def test_many_tasks_of_a_lost_worker_are_taken_back_in_steps() -> None:
    async def test() -> None:
        number = RESCUE_BATCH + 7
        async with workers(2) as ((worker, other), _):
            await worker.enqueue([new() for _ in range(number)])
            await worker.beat(beat("w"))
            assert len(await claim(worker, number, "w")) == number
            await kill(worker)
            found = await rescue_until(other, lambda rescued: bool(rescued.workers))
            assert [len(each.ids) for each in found] == [RESCUE_BATCH, 7]
            assert [(each.more, each.workers) for each in found] == [(True, []), (False, ["w"])]
            await sound(other)

    run(test)


def test_rescuers_at_the_same_time_take_each_task_back_once() -> None:
    async def test() -> None:
        number = 120
        async with workers(5) as ((worker, *others), _):
            await worker.enqueue([new() for _ in range(number)])
            await worker.beat(beat("w"))
            await claim(worker, number, "w")
            await kill(worker)
            found = await asyncio.gather(*(rescue_some(other) for other in others))
            lost = [task_id for each in found for rescued in each for task_id in rescued.ids]
            assert len(lost) == len(set(lost)) == number
            assert [name for each in found for rescued in each for name in rescued.workers] == ["w"]
            assert (await worker.counts()).counters["default"][Counter.LOSSES] == number
            await sound(worker)

    async def rescue_some(engine: PostgresEngine) -> list[Rescued]:
        """Look until any of them has found that the worker is dead."""
        found = []

        async def look() -> bool:
            found.append(await engine.rescue())
            return all(record.state is WorkerState.DEAD for record in await engine.workers())

        await until(look)
        return found

    run(test)


def test_a_task_that_somebody_is_at_keeps_its_worker_on_the_list() -> None:
    """Its row is locked, say by a settlement that is not through yet: it is seen to when it is free again."""

    async def test() -> None:
        async with workers(2) as ((worker, other), own):
            await worker.enqueue([new(), new()])
            await worker.beat(beat("w"))
            one, two = await claim(worker, 2, "w")
            transaction = own.transaction()
            await transaction.start()
            await own.execute(f'SELECT 1 FROM "{worker.address.schema}".tasks WHERE id = $1 FOR UPDATE', one.id)
            await kill(worker)
            (first,) = await rescue_until(other, lambda rescued: bool(rescued.ids))
            assert (first.ids, first.workers) == ([two.id], [])
            await transaction.rollback()
            (second,) = await rescue_until(other, lambda rescued: bool(rescued.ids))
            assert (second.ids, second.workers) == ([one.id], ["w"])

    run(test)


def test_a_worker_whose_session_is_cut_takes_another_and_is_not_missed() -> None:
    async def test() -> None:
        async with workers(2) as ((worker, other), own):
            await worker.enqueue([new()])
            await worker.beat(beat("w"))
            await claim(worker, 1, "w")
            for _ in range(3):
                (session,) = await until(lambda: sessions_of(own, worker, "w"))
                await own.fetchval("SELECT pg_terminate_backend($1)", session)

                async def back(old: int = session) -> bool:
                    assert (await other.rescue()).ids == []
                    return (await sessions_of(own, worker, "w")) not in ([], [old])

                await until(back)
            for _ in range(3):
                assert found_nothing(await other.rescue())

    run(test)


def test_a_worker_that_can_have_no_session_says_so_and_is_not_missed() -> None:
    """The way to a session of its own is closed, but not the way to the store."""

    async def test() -> None:
        async with workers(2) as ((worker, other), own):
            await worker.enqueue([new()])
            await worker.beat(beat("w"))
            await claim(worker, 1, "w")
            store = worker._store
            assert store is not None
            keeper = store.presence.keepers["w"]
            closed, way = asyncio.Event(), keeper.lines.connect

            async def no_way() -> Any:
                closed.set()
                raise ConnectionRefusedError("no room for sessions")

            keeper.lines.connect = no_way  # type: ignore[method-assign]
            (session,) = await sessions_of(own, worker, "w")
            await own.fetchval("SELECT pg_terminate_backend($1)", session)
            await asyncio.wait_for(closed.wait(), PATIENCE)

            async def says_no() -> bool:
                return (await own.fetchrow(ROW.format(worker.address.schema), "w"))["presence"] is None

            await until(says_no)
            await worker.beat(beat("w"))
            assert await says_no()
            began = time.monotonic()
            while time.monotonic() - began < 2 * ABSENT_SECONDS:
                assert found_nothing(await other.rescue())
            keeper.lines.connect = way  # type: ignore[method-assign]
            await until(lambda: sessions_of(own, worker, "w"))

            async def says_yes() -> bool:
                return not await says_no()

            await until(says_yes)

    run(test)


def test_who_has_not_come_back_to_a_restarted_server_is_not_missed() -> None:
    """As its row says, it holds its lock at a server that is no more."""

    async def test() -> None:
        async with workers(2) as ((worker, other), own):
            await worker.enqueue([new()])
            await worker.beat(beat("w"))
            await claim(worker, 1, "w")
            await kill(worker)
            await own.execute(f"UPDATE \"{worker.address.schema}\".workers SET presence = presence - interval '1 day'")
            began = time.monotonic()
            while time.monotonic() - began < 2 * ABSENT_SECONDS:
                assert found_nothing(await other.rescue())

    run(test)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_workers_come_back_to_a_restarted_server_and_are_missed_there(mode: str) -> None:
    cluster = Cluster.new()
    url = cluster.url()

    async def test() -> None:
        worker, other = from_url(url), from_url(url)
        await worker.open()
        await other.open()
        await worker.enqueue([new()])
        await worker.beat(beat("w"))
        (held,) = await claim(worker, 1, "w")
        await asyncio.to_thread(cluster.restart, mode)
        since = await value(cluster, SINCE)

        async def back() -> bool:
            try:
                assert found_nothing(await other.rescue())
            except StoreUnavailable:
                return False
            return bool(await value(cluster, ROW.format(worker.address.schema), "w", column=1) == since)

        await until(back)
        await kill(worker)
        (found,) = await rescue_until(other, lambda rescued: bool(rescued.workers))
        assert (found.ids, found.workers) == ([held.id], ["w"])
        await worker.close()
        await other.close()

    try:
        run(test)
    finally:
        cluster.remove()


def test_after_a_crash_a_newcomer_misses_nobody_who_has_not_come_back() -> None:
    """All sessions end, but the server's start stays the same."""
    cluster = Cluster.new()
    url = cluster.url()

    async def test() -> None:
        worker, newcomer = from_url(url), from_url(url)
        await worker.open()
        await worker.enqueue([new()])
        await worker.beat(beat("w"))
        (held,) = await claim(worker, 1, "w")
        store = worker._store
        assert store is not None
        lines, knocks, may_enter = store.presence.keepers["w"].lines, asyncio.Event(), asyncio.Event()
        way = lines.connect

        async def wait_outside() -> Any:
            knocks.set()
            await may_enter.wait()
            return await way()

        lines.connect = wait_outside  # type: ignore[method-assign]
        before = await value(cluster, SINCE)
        await crash(cluster)
        await asyncio.wait_for(knocks.wait(), PATIENCE)
        await asyncio.to_thread(cluster.until_ready)
        await newcomer.open()
        since = await value(cluster, SINCE)
        assert since > before
        began = time.monotonic()
        while time.monotonic() - began < 2 * ABSENT_SECONDS:
            assert found_nothing(await newcomer.rescue())
        may_enter.set()

        async def back() -> bool:
            return bool(await value(cluster, ROW.format(worker.address.schema), "w", column=1) == since)

        await until(back)
        await kill(worker)
        (found,) = await rescue_until(newcomer, lambda rescued: bool(rescued.workers))
        assert (found.ids, found.workers) == ([held.id], ["w"])
        await worker.close()
        await newcomer.close()

    try:
        run(test)
    finally:
        cluster.remove()


async def crash(cluster: Cluster) -> None:
    """Kill one of the server's processes: it ends all others, and restarts."""
    own = await asyncpg.connect(cluster.dsn)
    os.kill(own.get_server_pid(), signal.SIGKILL)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await own.fetchval("SELECT pg_sleep(60)")


def test_a_worker_is_missed_though_somebody_has_reset_the_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes its lock once more, and its row says so."""
    monkeypatch.setattr(notifier, "PING_SECONDS", 0.01)

    async def test() -> None:
        async with workers(2) as ((worker, other), own):
            await worker.beat(beat("w"))
            await own.execute("SELECT pg_stat_reset_shared('bgwriter')")
            since = await own.fetchval(SINCE)

            async def renewed() -> bool:
                return bool((await own.fetchrow(ROW.format(worker.address.schema), "w"))["presence"] == since)

            await until(renewed)
            assert len(await sessions_of(own, worker, "w")) == 1
            await kill(worker)
            assert [each.workers for each in await rescue_until(other, lambda found: bool(found.workers))] == [["w"]]

    run(test)


async def value(cluster: Cluster, query: str, *parameters: object, column: int = 0) -> Any:
    own = await asyncpg.connect(cluster.dsn)
    try:
        return await own.fetchval(query, *parameters, column=column)
    finally:
        await own.close()


def test_looks_that_are_far_apart_do_not_count_together() -> None:
    async def test() -> None:
        async with workers(2) as ((worker, other), _):
            await worker.beat(beat("w"))
            store = other._store
            assert store is not None
            await kill(worker)

            async def seen() -> bool:
                await other.rescue()
                return "w" in store.presence.first_absent

            await until(seen)
            away = presence.GAP_SECONDS + 1
            store.presence.checked_at -= away
            store.presence.first_absent["w"] -= away
            assert found_nothing(await other.rescue()), "we were away: what we saw before is old"
            assert [each.workers for each in await rescue_until(other, lambda found: bool(found.workers))] == [["w"]]

    run(test)


def test_a_worker_that_was_taken_for_dead_is_missed_again_after_its_next_sign() -> None:
    async def test() -> None:
        async with workers(2) as ((worker, other), own):
            schema = worker.address.schema
            await worker.beat(beat("w"))
            await own.execute(f"UPDATE \"{schema}\".workers SET state = 'dead', presence = NULL")
            assert await worker.beat(beat("w")) is WorkerState.ACTIVE
            assert (await own.fetchrow(ROW.format(schema), "w"))["presence"] is not None
            await kill(worker)
            assert [each.workers for each in await rescue_until(other, lambda found: bool(found.workers))] == [["w"]]

    run(test)


def test_equal_names_in_other_schemas_are_others() -> None:
    async def test() -> None:
        async with workers(2) as ((worker, other), own), engines() as (stranger,):
            await worker.beat(beat("w"))
            await stranger.beat(beat("w"))
            await kill(worker)
            assert [each.workers for each in await rescue_until(other, lambda found: bool(found.workers))] == [["w"]]
            assert found_nothing(await stranger.rescue())
            assert len(await sessions_of(own, stranger, "w")) == 1

    run(test)


def test_the_server_watches_over_sessions_from_afar() -> None:
    async def test() -> None:
        engine = from_url(f"{server().tcp_url}&schema={new_schema()}")
        await engine.open()
        try:
            await engine.beat(beat("w"))
            store = engine._store
            assert store is not None
            line = await store.presence.keepers["w"].lines.connect()
            names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
            assert [await line.fetchval(f"SHOW {name}") for name in names] == ["10", "5", "3", "25000"]
            line.terminate()
        finally:
            await engine.close()

    run(test)


WORKER = """
import asyncio, os, sys
from test_postgres_presence import beat
from dibs.engines.postgres import from_url

async def main():
    engine = from_url(sys.argv[1])
    await engine.open()
    await engine.beat(beat("w"))
    child = os.fork() if sys.argv[2] == "fork" else 0
    if child == 0 and sys.argv[2] == "fork":
        sys.stdin.buffer.read()  # until the test is over
        os._exit(0)
    print(child, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def process(engine: PostgresEngine, what: str = "") -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process of the worker "w", and its child if it is told to fork."""
    here = Path(__file__).parent
    worker = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", WORKER, f"{server_url()}&schema={engine.address.schema}", what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(here), str(here.parent)])},
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        yield worker, int(worker.stdout.readline())
    finally:
        worker.kill()
        worker.stdin.close()
        worker.stdout.close()
        worker.wait(PATIENCE)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_keep_the_session() -> None:
    """A process that is forked from a worker, and outlives it, must not look like the worker."""

    async def test() -> None:
        async with workers(1) as ((other,), own):
            with process(other, "fork") as (worker, child):
                assert len(await sessions_of(own, other, "w")) == 1
                worker.kill()
                worker.wait(PATIENCE)

                async def gone() -> bool:
                    return not await sessions_of(own, other, "w")

                await until(gone, "the child keeps the session")
                found = await rescue_until(other, lambda rescued: bool(rescued.workers))
                assert [each.workers for each in found] == [["w"]]
                assert psutil.pid_exists(child)

    run(test)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_a_process_that_is_stopped_is_not_missed_and_one_that_is_killed_is() -> None:
    async def test() -> None:
        async with workers(1) as ((other,), _):
            await other.enqueue([new()])
            with process(other) as (worker, _child):
                (task,) = await claim(other, 1, "w")
                worker.send_signal(signal.SIGSTOP)
                began = time.monotonic()
                while time.monotonic() - began < 3 * ABSENT_SECONDS:
                    assert found_nothing(await other.rescue())
                worker.kill()
                (found,) = await rescue_until(other, lambda rescued: bool(rescued.workers))
                assert (found.ids, found.workers) == ([task.id], ["w"])

    run(test)


def test_who_comes_back_after_the_second_look_loses_nothing() -> None:
    async def test() -> None:
        async with workers(2) as ((worker, other), _):
            await worker.enqueue([new()])
            await worker.beat(beat("w"))
            await claim(worker, 1, "w")
            await kill(worker)
            store = other._store
            assert store is not None
            assert await until(store.presence.absent) == ["w"]
            await worker.beat(beat("w"))
            rescued = await store.write(settling.rescue_batch, None, TASKS, START, ["w"], None, None)
            assert found_nothing(rescued)

    run(test)


def test_a_look_is_cheap_and_finds_nobody_while_all_are_there() -> None:
    async def test() -> None:
        async with workers(2) as ((worker, other), own):
            for number in range(20):
                await worker.beat(beat(f"w{number}"))
            for _ in range(5):
                assert found_nothing(await other.rescue())
            locks = await own.fetchval(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"
            )
            assert locks == 0, "a look keeps no lock"

    run(test)
