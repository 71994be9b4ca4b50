"""A store of the first layout, with tasks in every state, opened by today's engine."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlite_help import completed, opened, request

from dibs.core.graph import Edge
from dibs.core.limits import Scope
from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import Lease, NewTask, Outcome, Settlement
from dibs.core.times import DAY, SECOND
from dibs.engines.decisions.encoding import to_json
from dibs.engines.sqlite import SqliteEngine
from dibs.engines.sqlite.layout import run_script
from dibs.engines.sqlite.statements import migration_scripts
from dibs.engines.values import EnqueueOutcome, Level, SettleOutcome

NOW = 1_760_000_000 * SECOND
FACTS = f'{{"priority":50,"created_at":{NOW},"metadata":{{"price":0.1234567890123456789}}}}'
HOT = """INSERT INTO dibs_tasks (
    id, stream, state, rank, ready_at, due_at, rerank_at, lease, lease_for, lease_expires_at, started_at, worker,
    sequence, cancel, progress, args, facts
) VALUES (?, 1, ?, ?, ?, ?, NULL, ?, 30000000, ?, ?, ?, 0, 0, NULL, '{"n":1}', ?)"""
RANK = NOW - 50 * 600 * SECOND


def first_layout(path: Path) -> None:
    """What a process of the first layout would have left behind."""
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        run_script(old, migration_scripts()[1][1])
        settings = to_json(QueueSettings(rate=1.0, burst=1))
        bucket = f'{{"level":0,"at":{NOW}}}'
        old.execute("INSERT INTO dibs_queues VALUES ('default', 'active', '{}', 1, NULL, NULL, NULL)")
        old.execute("INSERT INTO dibs_queues VALUES ('slow', 'active', ?, 1, ?, NULL, NULL)", (settings, bucket))
        old.execute(
            "INSERT INTO dibs_streams VALUES (1, 'default', 'work', '[]', 0, 1), (2, 'slow', 'work', '[]', 0, 1)"
        )
        old.execute(HOT, ("a-pending", "pending", RANK, NOW, None, 0, None, None, None, FACTS))
        old.execute(HOT, ("b-scheduled", "scheduled", RANK, NOW, NOW + DAY, 0, None, None, None, FACTS))
        old.execute(HOT, ("c-retrying", "retrying", RANK, NOW, NOW + SECOND, 1, None, None, None, FACTS))
        old.execute(HOT, ("d-running", "running", RANK, NOW, None, 1, NOW + 30 * SECOND, NOW, "w", FACTS))
        day = NOW // DAY
        ended = f"{day}, 1, ?, 0, {NOW}, 1, {NOW}, {NOW}, 'w', 0, NULL"
        old.execute(f"INSERT INTO dibs_dead VALUES ('e-dead', {ended}, '{{}}', ?)", ("dead", FACTS))
        for task_id, state in (("f-completed", "completed"), ("g-cancelled", "cancelled")):
            values = f"{day}, ?, 1, ?, 0, {NOW}, 1, {NOW}, {NOW}, 'w', 0, NULL, '3', '{{}}', ?"
            old.execute(f"INSERT INTO dibs_finished VALUES ({values})", (task_id, state, FACTS))
        old.execute("INSERT INTO dibs_days VALUES (?, 'f-completed', 'g-cancelled', '[]')", (day,))
        states = ("pending", "scheduled", "retrying", "running", "dead", "completed", "cancelled")
        old.executemany("INSERT INTO dibs_tallies VALUES (?, 1, 1)", [(state,) for state in states])


IDS = ["a-pending", "b-scheduled", "c-retrying", "d-running", "e-dead", "f-completed", "g-cancelled"]


def test_tasks_in_every_state_live_on(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    first_layout(path)

    async def go() -> None:
        assert await SqliteEngine(path).migrations() == ["0002 waiting limits and shares"]
        async with opened(path) as engine:
            found = {record.id: record for record in await engine.get(IDS) if record is not None}
            assert [found[task_id].state for task_id in IDS] == [State(each.partition("-")[2]) for each in IDS]
            assert {record.share for record in found.values()} == {""}
            assert found["f-completed"].result == b"3"
            assert found["a-pending"].metadata == {"price": 0.1234567890123456789}
            assert await engine.migrations() == []
            assert all(finding.level is not Level.ERROR for finding in await engine.check(full=True))
            assert len((await engine.about()).identity) == 32

    asyncio.run(go())
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT layout, oldest_reader FROM dibs_store").fetchone() == (2, 2)


def test_work_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    first_layout(path)
    later = NOW + 2 * SECOND

    async def go() -> None:
        async with opened(path) as engine:
            done = Settlement(lease=Lease("d-running", 1), outcome=Outcome.COMPLETED, result=b"1")
            assert await engine.settle([done], now=later) == [SettleOutcome.DONE]
            follower = NewTask(id="h", queue="default", name="work", after=(Edge("a-pending"), Edge("f-completed")))
            assert (await engine.enqueue([follower], now=later))[0].state is State.BLOCKED
            claimed = await engine.claim(request(10), now=later)
            assert {task.id for task in claimed.tasks} == {"a-pending", "c-retrying"}
            await engine.settle([completed(task) for task in claimed.tasks], now=later)
            assert [task.id for task in (await engine.claim(request(10), now=later)).tasks] == ["h"]
            assert all(finding.level is not Level.ERROR for finding in await engine.check(full=True))

    asyncio.run(go())


def test_start_tokens_are_not_given_back(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    first_layout(path)

    async def go() -> None:
        async with opened(path) as engine:
            answers = await engine.enqueue([NewTask(id="h", queue="slow", name="work")], now=NOW)
            assert answers[0].outcome is EnqueueOutcome.ENQUEUED
            (limit,) = (await engine.standing("slow", ["h"], now=NOW)).limits[0]
            assert (limit.scope, limit.tokens) == (Scope.QUEUE, 0)
            assert (await engine.claim(request(queues=("slow",)), now=NOW)).tasks == []
            assert len((await engine.claim(request(queues=("slow",)), now=NOW + SECOND)).tasks) == 1

    asyncio.run(go())
