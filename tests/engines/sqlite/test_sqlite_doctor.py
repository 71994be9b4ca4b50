"""Keeping a SQLite store well: backups, checks, full disks, busy files, chores."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from sqlite_help import completed, new, opened, request

from dibs.core.settings import QueueSettings
from dibs.core.times import DAY, SECOND
from dibs.engines.sqlite import SqliteEngine
from dibs.engines.values import Cancel, EnqueueOutcome, Level, Purge
from dibs.errors import StoreBusy, StoreUnavailable, UsageError

BIG = b'{"x":"' + b"y" * 3000 + b'"}'
NOW = 1_760_000_000 * SECOND


async def total(engine: SqliteEngine) -> int:
    return sum(sum(states.values()) for states in ((await engine.counts()).tasks).values())


async def is_sound(engine: SqliteEngine) -> bool:
    return all(finding.level is not Level.ERROR for finding in await engine.check(full=True))


def test_backup_while_others_write_and_restore(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine, opened(tmp_path / "x.db") as other:
            await engine.enqueue([new(args=BIG) for _ in range(1000)])
            copying = asyncio.ensure_future(engine.backup(tmp_path / "copy.db"))
            during = 0
            while not copying.done():
                await other.enqueue([new(args=BIG)])
                during += 1
            await copying
            assert await total(engine) == 1000 + during
        async with opened(tmp_path / "copy.db") as restored:
            assert 1000 <= await total(restored) <= 1000 + during
            assert await is_sound(restored)
            (task,) = (await restored.claim(request())).tasks
            await restored.settle([completed(task)])

    asyncio.run(go())


def test_backup_never_overwrites(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            (tmp_path / "letter.txt").write_text("dear")
            with pytest.raises(UsageError, match="exists already"):
                await engine.backup(tmp_path / "letter.txt")
            with pytest.raises(UsageError, match="does not exist"):
                await engine.backup(tmp_path / "nowhere" / "copy.db")
            assert (tmp_path / "letter.txt").read_text() == "dear"

    asyncio.run(go())


def test_full_check_finds_counts_that_are_wrong(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            await engine.enqueue([new(), new()])
            assert await is_sound(engine)
            with sqlite3.connect(tmp_path / "x.db") as connection:
                connection.execute("UPDATE dibs_counts SET n = n + 1 WHERE what = 'pending'")
            found = [finding for finding in await engine.check(full=True) if finding.level is Level.ERROR]
            assert [finding.detail for finding in found] == ["default: 3 pending kept, 2 counted"]

    asyncio.run(go())


async def enqueue_until_full(engine: SqliteEngine) -> int:
    """How many tasks were acknowledged before there was no space left. Each is of a kind that the store must learn."""
    for stored in range(1000):
        try:
            await engine.enqueue([new(args=BIG, name=f"kind-{stored}")])
        except StoreUnavailable:
            return stored
    raise AssertionError("the disk never got full")


def test_a_full_disk_loses_nothing_and_recovers(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            writer = engine._store.writer  # type: ignore[union-attr]
            pages = writer.execute("PRAGMA page_count").fetchone()[0]  # type: ignore[union-attr]
            writer.execute(f"PRAGMA max_page_count = {pages + 50}")  # type: ignore[union-attr]
            stored = await enqueue_until_full(engine)
            assert stored > 10
            assert await total(engine) == stored
            with pytest.raises(StoreUnavailable, match="nothing was lost"):
                await engine.enqueue([new(args=BIG) for _ in range(100)])
            writer.execute("PRAGMA max_page_count = 1000000")  # type: ignore[union-attr]
            await engine.enqueue([new(args=BIG)])
            assert await total(engine) == stored + 1
            assert len((await engine.claim(request(1000))).tasks) == stored + 1
            assert await is_sound(engine)

    asyncio.run(go())


def test_locked_for_too_long_is_busy(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db", busy_timeout=0.05) as engine:
            other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy, match="busy_timeout"):
                await engine.enqueue([new()])
            assert (await engine.counts()).tasks == {}  # reading goes on
            other.execute("ROLLBACK")
            other.close()
            await engine.enqueue([new()])
            assert await total(engine) == 1

    asyncio.run(go())


def test_a_read_only_store_says_so(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            await engine.enqueue([new()])
            engine._store.writer.execute("PRAGMA query_only = 1")  # type: ignore[union-attr]
            with pytest.raises(StoreUnavailable, match="read-only"):
                await engine.enqueue([new()])
            engine._store.writer.execute("PRAGMA query_only = 0")  # type: ignore[union-attr]
            await engine.enqueue([new()])

    asyncio.run(go())


def test_retention_of_queues_that_keep_for_different_times(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            await engine.set_queue("short", QueueSettings(keep=DAY), expected=0, now=NOW)
            for index in range(6):
                queue = "short" if index % 2 else "default"
                await engine.enqueue([new(queue=queue) for _ in range(1000)], now=NOW)
            for _ in range(6):
                tasks = (await engine.claim(request(1000, queues=("default", "short")), now=NOW)).tasks
                await engine.settle([completed(task) for task in tasks], now=NOW)
            later = NOW + 3 * DAY
            term = await engine.lead("leader", now=later)
            assert term is not None
            steps = [await engine.chore("prune_finished", term, now=later) for _ in range(8)]
            assert max(step.done for step in steps) <= 1000
            assert sum(step.done for step in steps) == 3000
            assert [step.more for step in steps][-1] is False
            assert steps[-1].done == 0
            counts = (await engine.counts()).tasks
            assert (counts["short"]["completed"], counts["default"]["completed"]) == (0, 3000)  # type: ignore[index]
            far = NOW + 30 * DAY
            term = await engine.lead("leader", now=far)
            assert term is not None
            for _ in range(5):
                await engine.chore("prune_finished", term, now=far)
            assert await total(engine) == 0
            with sqlite3.connect(tmp_path / "x.db") as connection:
                assert connection.execute("SELECT count(*) FROM dibs_days").fetchone() == (0,)

    asyncio.run(go())


def test_freed_pages_go_back_to_the_filesystem(tmp_path: Path) -> None:
    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            ids = []
            for _ in range(3):
                tasks = [new(args=BIG) for _ in range(1000)]
                ids += [task.id for task in tasks]
                await engine.enqueue(tasks)
            await engine.act([Cancel(each) for each in ids])
            await engine.act([Purge(each) for each in ids])
            term = await engine.lead("leader")
            assert term is not None
            before = (tmp_path / "x.db").stat().st_size
            freed = 0
            while (step := await engine.chore("vacuum", term)).more:
                freed += step.done
            await engine.chore("checkpoint", term)
            assert freed > 1000
            assert (tmp_path / "x.db").stat().st_size < before

    asyncio.run(go())


def test_keys_may_hold_anything(tmp_path: Path) -> None:
    """SQLite's JSON functions cut text at a NUL: two keys that only differ behind one are still two."""

    async def go() -> None:
        async with opened(tmp_path / "x.db") as engine:
            keys = ["a", "a\0b", "a\0c", '"', "\\u0000", "é😀"]
            first = await engine.enqueue([new(key=key) for key in keys])
            again = await engine.enqueue([new(key=key) for key in keys])
            assert {answer.outcome for answer in first} == {EnqueueOutcome.ENQUEUED}
            assert {answer.outcome for answer in again} == {EnqueueOutcome.DUPLICATE}
            assert [answer.id for answer in again] == [answer.id for answer in first]

    asyncio.run(go())
