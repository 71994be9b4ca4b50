"""What the tables of limits and shares must say after each transaction, checked the slow way after random ones."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_help import completed, new, opened, request

from dibs.core.limits import Bucket, free_slots, refill, tokens
from dibs.core.settings import QueueSettings, change_settings
from dibs.core.task import Edit, Lease, LeasedTask, Outcome, Settlement
from dibs.core.times import SECOND
from dibs.engines.sqlite import SqliteEngine
from dibs.engines.values import Cancel, Level, Replay

NOW = 1_760_000_000 * SECOND
CHANGES: tuple[dict[str, object], ...] = (
    {"per_partition": 1},
    {"per_partition": 3},
    {"per_partition": {"rate": 0.5, "burst": 2}},
    {"per_partition": {"max_concurrent": 2, "rate": 1}},
    {"per_partition": None},
    {"fair": True},
    {"fair": False},
    {"fair": True, "weights": {"a": 3}},
    {"per_task": {"work": 4}},
    {"per_task": {}},
    {"max_aging_bonus": 3, "aging": 1},
    {"max_aging_bonus": None, "aging": 600},
)
GROUPS = """
SELECT t.partition, t.track, t.share, t.gated, t.id FROM dibs_pending AS t
WHERE t.partition IS NOT NULL ORDER BY t.partition, t.track, t.share, t.rank, t.id
"""
PLACES = """
SELECT
    t.id, t.state,
    (
        SELECT count(*) FROM dibs_pending AS p
        WHERE (p.id, p.track, p.share, p.rank, p.ready_at) = (t.id, t.track, t.share, t.rank, t.ready_at)
          AND p.partition IS t.partition AND p.expires_at IS t.expires_at
    ),
    (SELECT count(*) FROM dibs_running AS r WHERE r.id = t.id AND r.track = t.track AND r.partition IS t.partition)
FROM dibs_tasks AS t
"""


def has_headroom(connection: sqlite3.Connection, partition: str, settings: QueueSettings, now: int) -> bool:
    limit = settings.per_partition
    if limit is None:
        return True
    running = connection.execute("SELECT count(*) FROM dibs_running WHERE partition = ?", (partition,)).fetchone()[0]
    if free_slots(limit, running) == 0:
        return False
    if limit.rate is None:
        return True
    whose = partition.partition(" ")[2]
    row = connection.execute(
        "SELECT level, at, refill_at FROM dibs_buckets WHERE scope = 'partition' AND whose = ?", (whose,)
    ).fetchone()
    bucket = refill(None if row is None else Bucket(row[0], row[1]), limit, now)
    if tokens(bucket) == 0:
        assert row[2] is not None, f"{partition} has pending tasks and no token, and nobody will look at it again"
    # One that got its token since the last claim is opened by the next.
    return tokens(bucket) > 0 and (row is None or row[2] is None)


def check_places(connection: sqlite3.Connection) -> None:
    """What is pending is in the order of claims, what runs is held by a lease, and nothing else is there."""
    for task_id, state, pending, running in connection.execute(PLACES).fetchall():
        assert pending + running == (state == "pending"), f"{task_id}: {state}, {pending} pending, {running} running"
    for place in ("pending", "running"):
        left = f"SELECT id FROM dibs_{place} WHERE id NOT IN (SELECT id FROM dibs_tasks)"
        assert connection.execute(left).fetchall() == []
    held = dict(connection.execute("SELECT batch, count(*) FROM dibs_running GROUP BY batch").fetchall())
    assert dict(connection.execute("SELECT batch, held FROM dibs_leases").fetchall()) == held


def check(path: Path, settings: QueueSettings, now: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        check_places(connection)
        seen = set()
        for partition, track, share, gated, task_id in connection.execute(GROUPS).fetchall():
            if settings.per_partition is None:
                assert not gated, f"{task_id} is gated without a limit"
            elif (partition, track, share) not in seen:
                seen.add((partition, track, share))
                assert not (gated and has_headroom(connection, partition, settings, now)), f"{task_id} is kept back"
        fair = {track for (track,) in connection.execute("SELECT track FROM dibs_tracks WHERE fair = 1")}
        pending = connection.execute("SELECT track, share, gated FROM dibs_pending").fetchall()
        assert {share for track, share, _ in pending if track not in fair} <= {""}
        counted = Counter(share for track, share, _ in pending if track in fair)
        kept = dict(connection.execute("SELECT share, pending FROM dibs_shares WHERE pending <> 0").fetchall())
        assert kept == counted
        turns = {
            (track, share): virtual_time
            for track, share, virtual_time in connection.execute("SELECT * FROM dibs_turns")
        }
        virtual_times = dict(connection.execute("SELECT share, virtual_time FROM dibs_shares").fetchall())
        (clock,) = connection.execute("SELECT clock FROM dibs_queues").fetchone()
        for track, share, gated in pending:
            if track in fair and not gated:
                assert max(clock, turns[track, share]) == max(clock, virtual_times[share])


class Program:
    """A queue whose settings, tasks and workers change at random."""

    def __init__(self, engine: SqliteEngine, seed: int) -> None:
        self.engine = engine
        self.random = random.Random(seed)
        self.now = NOW
        self.ids: list[str] = []
        self.running: list[LeasedTask] = []

    async def step(self) -> None:
        acts = (self.enqueue, self.enqueue, self.claim, self.claim, self.settle, self.settle, self.meddle, self.wait)
        await self.random.choice(acts)()

    async def enqueue(self) -> None:
        choice = self.random.choice
        tasks = [
            new(
                name=choice(("work", "play")),
                partition=choice((None, "p", "q", "r")),
                tenant=choice(("", "a", "b", "c")),
                priority=choice((10, 50, 90)),
                delay=choice((0, 0, 0, SECOND)),
            )
            for _ in range(self.random.randint(1, 8))
        ]
        await self.engine.enqueue(tasks, now=self.now)
        self.ids += [task.id for task in tasks]

    async def claim(self) -> None:
        names = self.random.choice((None, ("work",), ("play",)))
        claimed = await self.engine.claim(request(self.random.randint(0, 6), names=names, lease=SECOND), now=self.now)
        self.running += claimed.tasks

    async def settle(self) -> None:
        self.random.shuffle(self.running)
        taken = [self.running.pop() for _ in range(self.random.randint(0, len(self.running)))]
        others = (Outcome.FAILED, Outcome.RELEASED, Outcome.SNOOZED, Outcome.PERMANENT)
        reports = [
            completed(task)
            if self.random.random() < 0.5
            else Settlement(lease=Lease(task.id, task.lease), outcome=self.random.choice(others), delay=SECOND)
            for task in taken
        ]
        await self.engine.settle(reports, now=self.now)

    async def meddle(self) -> None:
        ids = self.random.sample(self.ids, min(3, len(self.ids)))
        what = self.random.randint(0, 3)
        if what == 0:
            await self.engine.act([Cancel(each) for each in ids[:1]], now=self.now)
        elif what == 1:
            priority = self.random.choice((5, 50, 95))
            await self.engine.act([Edit(id=task_id, priority=priority) for task_id in ids], now=self.now)
        elif what == 2:
            await self.engine.act([Replay(each) for each in ids], now=self.now)
        else:
            (queue,) = await self.engine.queues()
            wanted = change_settings(queue.settings, self.random.choice(CHANGES))
            await self.engine.set_queue("default", wanted, expected=queue.settings.version, now=self.now)

    async def wait(self) -> None:
        self.now += self.random.choice((1, SECOND // 2, 3 * SECOND))
        await self.engine.rescue(now=self.now)
        term = await self.engine.lead("leader", now=self.now)
        assert term is not None
        for chore in ("rerank", "prune_buckets", "prune_shares"):
            await self.engine.chore(chore, term, now=self.now)


@pytest.mark.parametrize("seed", range(6))
def test_the_tables_agree(seed: int, tmp_path: Path) -> None:
    async def go() -> None:
        path = tmp_path / "x.db"
        async with opened(path, synchronous="normal") as engine:
            await engine.set_queue("default", QueueSettings(), expected=0, now=NOW)
            program = Program(engine, seed)
            for _ in range(120):
                await program.step()
                (queue,) = await engine.queues()
                check(path, queue.settings, program.now)
            assert all(finding.level is not Level.ERROR for finding in await engine.check(full=True))

    asyncio.run(go())


def test_a_claim_that_waited_for_the_file_is_made_when_it_gets_it(tmp_path: Path) -> None:
    """Start tokens are counted as of then, and a lease is as long as it should be."""

    async def test() -> None:
        async with opened(tmp_path / "x.db") as engine:
            await engine.set_queue("default", change_settings(QueueSettings(), {"rate": 1, "burst": 5}), expected=0)
            await engine.enqueue([new()])
            with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                waiting = asyncio.create_task(engine.claim(request()))
                store = engine._opened()
                async with asyncio.timeout(20):
                    while not store.lock.locked():  # it has this process's lock, and waits for the other's
                        await asyncio.sleep(0.001)
                let_go = time.time_ns() // 1000
                other.execute("COMMIT")
            (task,) = (await waiting).tasks
            assert task.claimed_at >= let_go
            assert task.lease_expires_at - task.claimed_at == 30 * SECOND

    asyncio.run(test())
