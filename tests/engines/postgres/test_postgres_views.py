"""The views for people say what the engine says, of every task, and find tasks by index."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from postgres_help import NOW, claim, connection, engines, new, run, settle

from dibs.core.graph import Edge
from dibs.core.ids import uuid7
from dibs.core.states import State
from dibs.core.task import Failure, Lease, Outcome, Settlement, TaskRecord
from dibs.core.times import SECOND
from dibs.engines.postgres import PostgresEngine
from dibs.engines.values import Cancel, Extension, NewWorkflow, Query

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "postgresql.md"
FAILURE = Failure(type="ValueError", message="no\u0000pe", traceback="somewhere")
DEPTH = 3000


def at(moment: Any) -> int | None:
    """A time of the driver as microseconds."""
    return None if moment is None else (moment - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution)


async def fill(engine: PostgresEngine) -> None:
    """Tasks in every state, with everything that a task can have."""
    workflow = uuid7(NOW // 1000, 0, 1)
    await engine.enqueue([new(workflow=workflow)], workflow=NewWorkflow(workflow, "flow"), now=NOW)
    runs = [new(key=f"k{n}", args=b'{"n": %d}' % n, tenant="t", metadata={"a": [n, "ä"]}) for n in range(8)]
    await engine.enqueue(runs, now=NOW + 123_457)
    claimed = await claim(engine, 9, now=NOW + SECOND + 1)
    outcomes = [
        Outcome.COMPLETED,
        Outcome.PERMANENT,
        Outcome.CANCELLED,
        Outcome.FAILED,
        Outcome.SNOOZED,
        Outcome.RELEASED,
    ]
    reports = [
        Settlement(
            lease=Lease(task.id, task.lease),
            outcome=outcome,
            result=b'{"x":[1,2.5]}' if outcome is Outcome.COMPLETED else None,
            failure=FAILURE if outcome in (Outcome.PERMANENT, Outcome.FAILED) else None,
            delay=3_600 * SECOND,
        )
        for task, outcome in zip(claimed, outcomes, strict=False)
    ]
    halfway = Extension(reports[0].lease, 60 * SECOND, progress=0.5)
    await engine.extend([halfway], now=NOW + 2 * SECOND)
    await engine.settle(reports, now=NOW + 2 * SECOND + 3)
    need = new(partition="p", queue="other", delay=10**9 + 7, expires_at=NOW + 10**10 + 1, deadline=NOW + 10**9 + 1)
    await engine.enqueue([need, new(queue="other", after=(Edge(need.id),), delay=5 * SECOND)], now=NOW + 5)
    await engine.act([Cancel(claimed[-1].id, "stop")], now=NOW + 3 * SECOND)


async def records(engine: PostgresEngine) -> dict[str, TaskRecord]:
    return {record.id: record for record in (await engine.search(Query(limit=1000))).tasks}


def seen(row: Any) -> dict[str, Any]:
    """A row of `all_tasks` in the words of a record."""
    return {
        "state": row["state"], "reason": row["reason"], "priority": row["priority"], "queue": row["queue"],
        "name": row["name"], "note": row["note"] or "", "worker": row["worker"], "lease": row["lease"],
        "attempts": row["attempts"], "losses": row["losses"], "partition": row["partition"],
        "tenant": row["tenant"] or "", "key": row["key"], "requires": tuple(row["requires"]),
        "parent": row["parent"], "cancel_reason": row["cancel_asked"], "progress": row["progress"],
        "workflow": None if row["workflow"] is None else str(row["workflow"]),
        "metadata": json.loads(row["metadata"]),
        **{name: at(row[name]) for name in (
            "created_at", "due_at", "ready_at", "started_at", "finished_at", "lease_expires_at", "deadline",
            "expires_at", "updated_at",
        )},
    }  # fmt: skip


def test_all_tasks_says_what_the_engine_says() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            await fill(engine)
            known = await records(engine)
            assert {record.state for record in known.values()} == set(State)
            rows = await own.fetch(f"SELECT * FROM {engine.address.schema}.all_tasks")
            assert sorted(str(row["id"]) for row in rows) == sorted(known)
            for row in rows:
                record = known[str(row["id"])]
                told = seen(row)
                known_facts = {**structs.asdict(record.spec), **structs.asdict(record), "updated_at": record.updated_at}
                assert told == {name: known_facts[name] for name in told}
                assert json.loads(row["args"]) == json.loads(record.args)
                assert (None if row["result"] is None else json.loads(row["result"])) == (
                    None if record.result is None else json.loads(record.result)
                )
                failure = record.failure
                assert row["error_type"] == (None if failure is None else failure.type)
                # A text of PostgreSQL can't have the character NUL.
                assert row["error_message"] == (None if failure is None else failure.message.replace("\0", "\ufffd"))

    run(test)


def test_dead_letters_say_why() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            await fill(engine)
            (row,) = await own.fetch(f"SELECT * FROM {engine.address.schema}.dead_letters")
            (record,) = [each for each in (await records(engine)).values() if each.state is State.DEAD]
            assert str(row["id"]) == record.id
            assert (row["reason"], row["error_type"]) == (record.reason, "ValueError")
            assert (at(row["died_at"]), row["attempts"]) == (record.finished_at, record.attempts)

    run(test)


def test_audit_log_says_who_did_what() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            await fill(engine)
            (row,) = await own.fetch(f"SELECT * FROM {engine.address.schema}.audit_log")
            (entry,) = await engine.audit()
            assert (row["n"], at(row["at"]), row["actor"], row["act"]) == (entry.n, entry.at, entry.actor, entry.act)
            assert (row["target"], row["detail"]) == (entry.target, entry.detail)
            assert tuple(json.loads(row["ids"])) == entry.ids
            assert (json.loads(row["before"]), json.loads(row["after"])) == (entry.before, entry.after)

    run(test)


def test_queue_counts_are_the_counts() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            await fill(engine)
            for _ in range(2):
                rows = await own.fetch(f"SELECT queue, state, tasks FROM {engine.address.schema}.queue_counts")
                counts = (await engine.counts()).tasks
                told = {(queue, state): n for queue, of in counts.items() for state, n in of.items() if n}
                assert {(row["queue"], row["state"]): row["tasks"] for row in rows} == told
                term = await engine.lead("w", now=NOW)
                assert term is not None
                await engine.chore("fold_counts", term, now=NOW)

    run(test)


@pytest.mark.parametrize(
    "stored",
    [
        b'{"$dibs":"blob","key":"2025-10-09/x/args-0","size":7,"sha256":"0"}',
        b'{"nul":"a\\u0000b","back":"\\\\u0000"}',
        b'{"nul":"\\\\\\u0000"}',
        b'"\\ud800"',
        b"1e999999",
        b"",
        b"not json",
        b"\xff\x00binary",
        b"[" * 20_000 + b"]" * 20_000,
    ],
    ids=["blob", "nul", "nul after a backslash", "half a pair", "huge", "empty", "text", "bytes", "deep"],
)
def test_no_row_makes_a_view_fail(stored: bytes) -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            schema = engine.address.schema
            await engine.enqueue([new(args=stored)], now=NOW)
            (row,) = await own.fetch(f"SELECT args, queue FROM {schema}.all_tasks")
            json.loads(row["args"])
            if stored.startswith(b'{"nul"'):
                told = json.loads(row["args"])
                assert told == {name: text.replace("\0", "\ufffd") for name, text in json.loads(stored).items()}
            await settle(engine, await claim(engine, 1, now=NOW), Outcome.PERMANENT, now=NOW)
            (row,) = await own.fetch(f"SELECT args FROM {schema}.dead_letters")
            json.loads(row["args"])

    run(test)


def test_views_find_tasks_by_index() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            schema = engine.address.schema
            await engine.enqueue([new(queue="far") for _ in range(DEPTH)], now=NOW)
            await engine.enqueue([new() for _ in range(DEPTH)], now=NOW)
            ended = await claim(engine, 2 * DEPTH // 3, now=NOW)
            await settle(engine, ended[: DEPTH // 3], now=NOW)
            await settle(engine, ended[DEPTH // 3 : -20], Outcome.PERMANENT, now=NOW)
            await own.execute(f"ANALYZE {schema}.tasks, {schema}.finished, {schema}.dead, {schema}.tracks")
            await own.execute(f"ANALYZE {schema}.finished_other")
            for query in (
                f"SELECT * FROM {schema}.all_tasks WHERE id = '{ended[0].id}'",
                f"SELECT * FROM {schema}.all_tasks WHERE id = '{ended[-1].id}'",
                f"SELECT * FROM {schema}.all_tasks WHERE queue = 'default' AND state = 'running'",
                f"SELECT * FROM {schema}.all_tasks WHERE state = 'blocked'",
                f"SELECT * FROM {schema}.all_tasks ORDER BY id DESC LIMIT 20",
                f"SELECT * FROM {schema}.dead_letters WHERE id = '{ended[-30].id}'",
                f"SELECT * FROM {schema}.dead_letters ORDER BY id DESC LIMIT 20",
            ):
                plan = "\n".join(row[0] for row in await own.fetch(f"EXPLAIN {query}"))
                assert re.findall(r"Seq Scan on (tasks|dead|finished_other)\b", plan) == [], f"{query}\n{plan}"
            plan = await own.fetch(f"EXPLAIN SELECT * FROM {schema}.all_tasks WHERE state = 'pending'")
            assert not any("finished" in row[0] for row in plan), "states that are not there are not looked for"

    run(test)


def test_the_queries_of_the_guide() -> None:
    """Each SELECT in the guide runs on a store that is called as it is there."""

    async def test() -> None:
        queries = re.findall(r"^```sql\n(SELECT.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
        assert len(queries) >= 4
        async with engines() as (engine,), connection() as own:
            await fill(engine)
            for query in queries:
                each = re.sub(r"\bdibs(?=[.'])", engine.address.schema, query)
                assert await own.fetch(each), f"nothing to show for {each}"

    run(test)
