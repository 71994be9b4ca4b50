"""Hot statements read about as many rows as they give, however many there are, whatever the planner believes.

PostgreSQL itself counts, within a transaction, how often each table is scanned from end to end and how many rows are
fetched through indexes. Plans are tried on tables that were never analysed and on analysed ones, made for the
parameters and made once for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from postgres_help import NOW, claim, connection, engines, new, run, set_queue, settle

from dibs.core.priority import scale
from dibs.core.settings import QueueSettings
from dibs.core.task import Lease, Outcome, Settlement
from dibs.engines.decisions.headroom import MOST_AHEAD
from dibs.engines.postgres import PostgresEngine
from dibs.engines.postgres.catalog import NO_SLOTS
from dibs.engines.postgres.claim_limits import limits_of
from dibs.engines.postgres.index_bloat import EVERYTHING, START
from dibs.engines.postgres.statements import HERE, functions, statement, statement_texts
from dibs.engines.statement_files import blocks
from dibs.engines.values import ClaimRequest, NewWorkflow, Query
from dibs.engines.verbs.claiming import served_queues

DEPTH = 4000
ELSEWHERE = 500
BATCHES = (1, 100, 1000)
MODES = ("force_custom_plan", "force_generic_plan")

SAVED = """
id, track, state, rank, ready_at, due_at, rerank_at, lease, lease_for, lease_expires_at, started_at, worker, sequence,
cancel, share, gate, partition, expires_at, workflow, version, progress, args, facts, created_at, lease, state, version
"""
READ = """
SELECT coalesce(sum(seq_tup_read), 0) AS scanned, coalesce(sum(idx_tup_fetch), 0) AS fetched
FROM pg_stat_xact_user_tables
WHERE schemaname = $1 AND (relname = 'tasks' OR relname LIKE 'finished%' OR relname = 'dead')
"""


async def fill(engine: PostgresEngine) -> None:
    """Pending tasks of two kinds and two priorities, scheduled ones, running ones and finished ones."""
    for name in ("work", "other"):
        for priority in (50, 70):
            await engine.enqueue([new(name=name, priority=priority) for _ in range(DEPTH // 4)], now=NOW)
    await engine.enqueue([new(delay=10**9) for _ in range(ELSEWHERE)], now=NOW)
    await engine.enqueue([new(queue="far") for _ in range(ELSEWHERE)], now=NOW)


async def reading(own: Any, schema: str, name: str, *parameters: object) -> tuple[int, int, list[Any]]:
    """What a statement scanned and fetched, and its rows; nothing is kept of what it did."""
    transaction = own.transaction()
    await transaction.start()
    before = await own.fetchrow(READ, schema)  # of transactions before that have not been added up yet
    rows = await own.fetch(statement(name, schema), *parameters)
    after = await own.fetchrow(READ, schema)
    await transaction.rollback()
    return int(after["scanned"] - before["scanned"]), int(after["fetched"] - before["fetched"]), rows


def claim_parameters(
    engine: PostgresEngine, wanted: int, tracks: int, window: tuple[int, int | None]
) -> tuple[object, ...]:
    store = engine._store
    assert store is not None
    numbers = [track.number for track in store.catalog.of_queue("default")][:tracks]
    pace = scale(QueueSettings(), 0)
    zeros = [0] * len(numbers)
    spans = [pace] * len(numbers)
    lows = [START] * len(numbers)
    lines = (numbers, zeros, zeros, spans, lows)
    asked: tuple[object, ...] = (
        NOW,
        store.catalog.generation,
        "w",
        1,
        None,
        wanted,
        *lines,
        False,
        False,
        *window,
        "{}",
        [],
        None,
        None,
    )
    return (*asked, *limits_for(engine, wanted))


def limits_for(engine: PostgresEngine, wanted: int) -> tuple[object, ...]:
    """What a claim from the queue "default" passes about its limits."""
    assert engine._store is not None
    catalog = engine._store.catalog
    request = ClaimRequest(worker="w", sequence=1, queues=("default",), limit=wanted)
    return tuple(limits_of(catalog, request, served_queues(catalog.queues, request), catalog.of_queue("default")))


@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_hot_statements_read_what_they_give(mode: str, analysed: bool) -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            schema = engine.address.schema
            await own.execute(f"SET plan_cache_mode = {mode}")
            await own.fetch(
                statement("complete", schema), NOW, 1, [], [], [], None, *NO_SLOTS, MOST_AHEAD
            )  # planned while everything is empty
            await fill(engine)
            given = await claim(engine, 1500, now=NOW)
            if analysed:
                await own.execute(f"ANALYZE {schema}.tasks")
            for batch in BATCHES:
                for tracks, window in product((1, 4), (EVERYTHING, (NOW, 10**7))):
                    parameters = claim_parameters(engine, batch, tracks, window)
                    scanned, fetched, rows = await reading(own, schema, "claim", *parameters)
                    assert len(rows) == min(batch, DEPTH // 4 * tracks) + 1
                    assert scanned == 0
                    assert fetched <= (tracks + 4) * batch + 20
                runs = sorted((task.id, task.lease) for task in given[:batch])
                ids, leases = [run[0] for run in runs], [run[1] for run in runs]
                results = [b"null"] * len(ids)
                generation = await own.fetchval(f"SELECT generation FROM {schema}.store")
                scanned, fetched, rows = await reading(
                    own, schema, "complete", NOW, generation, ids, leases, results, None, *NO_SLOTS, MOST_AHEAD
                )
                assert (scanned, rows[0]["done"]) == (0, None), "all of them"
                assert fetched <= 2 * len(ids) + 20
                spans: list[int] = [10**7] * len(ids)
                nothing: list[None] = [None] * len(ids)
                scanned, fetched, rows = await reading(own, schema, "extend", NOW, ids, leases, spans, nothing)
                assert (scanned, len(rows)) == (0, len(ids))
                assert fetched <= 4 * len(ids) + 20
                stored = await own.fetch(f"SELECT {SAVED} FROM {schema}.tasks WHERE id = ANY ($1)", ids)
                saved = [list(column) for column in zip(*stored, strict=True)]
                scanned, fetched, _ = await reading(own, schema, "save_tasks", *saved)
                assert scanned == 0
                assert 0 < fetched <= 4 * len(ids) + 20
                scanned, fetched, _ = await reading(own, schema, "delete_tasks", saved[0], *saved[-3:])
                assert scanned == 0
                assert 0 < fetched <= 4 * len(ids) + 20
                scanned, fetched, rows = await reading(own, schema, "find", ids)
                assert (scanned, len(rows)) == (0, len(ids))
                assert fetched <= 2 * len(ids) + 20

    run(test)


WRITTEN = """
SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::int FROM pg_stat_xact_user_tables WHERE schemaname = $1
"""


def test_a_heartbeat_writes_one_row_for_all_that_it_extends() -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            schema = engine.address.schema
            await fill(engine)
            runs = sorted((task.id, task.lease) for task in await claim(engine, 1000, now=NOW))
            ids, leases = [run[0] for run in runs], [run[1] for run in runs]
            for beat, most in enumerate((1001, 1, 1)):
                await own.execute("BEGIN")
                before = await own.fetchval(WRITTEN, schema)
                found = await own.fetch(
                    statement("extend", schema), NOW + beat, ids, leases, [10**7] * 1000, [None] * 1000
                )
                assert (len(found), await own.fetchval(WRITTEN, schema) - before) == (1000, most)
                await own.execute("COMMIT")
            scanned, fetched, _ = await reading(
                own, schema, "extend", NOW, ids[:5], leases[:5], [10**7] * 5, [None] * 5
            )
            assert (scanned, fetched <= 2 * 1000) == (0, True), "the batch is counted, and left"

    run(test)


@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_the_members_of_a_workflow_are_found_through_their_index(mode: str, analysed: bool) -> None:
    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            schema = engine.address.schema
            await own.execute(f"SET plan_cache_mode = {mode}")
            workflow = NewWorkflow(new().id)
            members = [new(workflow=workflow.id) for _ in range(6)]
            await engine.enqueue(members, atomic=True, workflow=workflow, now=NOW)
            for task in await claim(engine, 2, now=NOW):
                await engine.settle([Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.COMPLETED)], now=NOW)
            await fill(engine)
            if analysed:
                await own.execute(f"ANALYZE {schema}.tasks")
            parameters = (new().id, 50, True, True, True, workflow.id)
            scanned, fetched, rows = await reading(own, schema, "newest_members", *parameters)
            assert [str(row["id"]) for row in rows] == [task.id for task in reversed(members)]
            assert scanned == 0
            assert fetched <= 20
            assert not (await engine.search(Query(workflow="not a workflow"))).tasks

    run(test)


@pytest.mark.parametrize("batch", [10, 200, 1000])
def test_a_claim_from_many_kinds_does_not_read_a_batch_of_each(batch: int) -> None:
    kinds, each = 50, 40

    async def test() -> None:
        async with engines() as (engine,), connection() as own:
            mixed = [new(name=f"kind{n % kinds}") for n in range(kinds * each)]
            await engine.enqueue(mixed, now=NOW)
            parameters = claim_parameters(engine, batch, kinds, EVERYTHING)
            scanned, fetched, rows = await reading(own, engine.address.schema, "claim", *parameters)
            assert [str(each) for each in rows[-1]["given"]] == [task.id for task in mixed[:batch]]
            assert {row["id"] for row in rows[:-1]} == {*rows[-1]["given"]}
            assert scanned == 0
            assert fetched <= 8 * kinds + 8 * batch, "not a batch of each kind"

    run(test)


LIMITED: dict[str, tuple[dict[str, object], Callable[[int], dict[str, str]]]] = {
    "partitions that are never full": ({"per_partition": 20}, lambda n: {"partition": str(n % 50)}),
    "many partitions of one": ({"per_partition": 1}, lambda n: {"partition": str(n)}),
    "a full partition in the way": ({"per_partition": 1}, lambda n: {"partition": str(n) if n % 2 else "full"}),
    "slots of the queue": ({"max_concurrent": 1000}, lambda _: {}),
    "slots of a name": ({"per_task": {"work": 1000}}, lambda _: {}),
    "a rate": ({"rate": 1_000_000}, lambda _: {}),
    "many tenants": ({"fair": True}, lambda n: {"tenant": str(n)}),
    "few tenants": ({"fair": True}, lambda n: {"tenant": str(n % 50)}),
    "all at once": (
        {"fair": True, "per_partition": 20, "max_concurrent": 1000, "rate": 1_000_000},
        lambda n: {"tenant": str(n), "partition": str(n)},
    ),
}
DEPTHS = [(1000, DEPTH), pytest.param((3000, 300_000), marks=pytest.mark.soak)]


@pytest.mark.parametrize("depths", DEPTHS)
@pytest.mark.parametrize("case", LIMITED)
def test_a_claim_from_a_limited_queue_does_not_look_at_the_backlog(case: str, depths: tuple[int, int]) -> None:
    """Nor does a completion. What they read from many waiting tasks is what they read from few."""
    settings, facts = LIMITED[case]

    async def reads(depth: int) -> tuple[int, int]:
        async with engines() as (engine,), connection() as own:
            schema = engine.address.schema
            await set_queue(engine, **settings)
            await engine.enqueue([new(**facts(0))], now=NOW)
            planned = await claim(engine, 1, now=NOW)  # planned while hardly anything is there
            await reading(own, schema, "claim", *claim_parameters(engine, 50, 1, EVERYTHING))
            await settle(engine, planned, now=NOW)
            for start in range(0, depth, 1000):
                await engine.enqueue([new(**facts(start + n)) for n in range(1000)], now=NOW)
            for _ in range(6):
                given = await claim(engine, 50, now=NOW)
                assert len(given) == 50
                await settle(engine, given, now=NOW)
            given = await claim(engine, 50, now=NOW)
            parameters = claim_parameters(engine, 50, 1, EVERYTHING)
            scanned, fetched, rows = await reading(own, schema, "claim", *parameters)
            assert (scanned, len(rows)) == (0, 51)
            assert engine._store is not None
            catalog = engine._store.catalog
            runs = sorted((task.id, task.lease) for task in given)
            ids, leases = [run[0] for run in runs], [run[1] for run in runs]
            asked = (NOW, catalog.generation, ids, leases, [None] * 50, None, *catalog.slots, MOST_AHEAD)
            scanned, completed, rows = await reading(own, schema, "complete", *asked)
            assert (scanned, rows[0]["done"]) == (0, None)
            return fetched, completed

    async def test() -> None:
        shallow, deep = [await reads(depth) for depth in depths]
        assert all(many <= 1.5 * few + 100 for few, many in zip(shallow, deep, strict=True)), (shallow, deep)

    run(test)


def test_a_claim_from_uneven_kinds_gives_the_most_urgent() -> None:
    """Those of one kind all come first: its page ends long before the others are looked at."""

    async def test() -> None:
        async with engines() as (engine,):
            first = [new(name="many") for _ in range(300)]
            rest = [new(name=f"kind{n % 20}") for n in range(100)]
            await engine.enqueue([*first, *rest], now=NOW)
            given = await claim(engine, 350, now=NOW)
            assert [task.id for task in given] == [task.id for task in [*first, *rest][:350]]

    run(test)


def test_never_more_than_the_limit() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            await engine.enqueue([new(name=f"kind{i % 4}") for i in range(50)], now=NOW)
            assert len(await claim(engine, 7, now=NOW)) == 7
            assert len(await claim(engine, 0, now=NOW)) == 0
            assert len(await claim(engine, 1000, now=NOW)) == 43

    run(test)


def test_effective_priorities_are_those_of_the_core() -> None:
    """The database divides as Python does, to the last bit."""

    async def test() -> None:
        async with connection() as own:
            for rank in range(-(10**15), 10**15, 7_654_321_987_654):
                pace = 1 + abs(rank) % 999_983
                mine = await own.fetchval(
                    "SELECT ($1::bigint - $2::bigint)::float8 / $3::bigint::float8", NOW, rank, pace
                )
                assert mine == (NOW - rank) / pace

    run(test)


COMPOSED = {
    "save_dead", "save_finished", "dead_of_day", "finished_of_day", "next_dead_day", "next_finished_day",
}  # fmt: skip
"""Statements whose names are put together from the place that tasks are in."""


@pytest.mark.parametrize("name", sorted(statement_texts().keys() - COMPOSED))
def test_has_a_header_and_a_user(name: str) -> None:
    assert statement_texts()[name].startswith("-- ")
    engines = Path(str(HERE)).parent
    folders = (engines, engines / "verbs", engines / "postgres")
    sources = [path.read_text(encoding="utf-8") for folder in folders for path in folder.glob("*.py")]
    assert any(f'"{name}"' in source for source in sources), f"nobody uses {name}"


def test_functions_and_migrations_say_what_they_are() -> None:
    assert all(statement_texts()[name].startswith("-- ") for name in COMPOSED)
    assert all(text.startswith("-- ") for text in blocks(HERE / "functions").values())
    for step in (HERE / "migrations").iterdir():
        assert step.read_text(encoding="utf-8").startswith("-- "), step.name
    rendered = [*functions("elsewhere"), *(statement(name, "elsewhere") for name in statement_texts())]
    assert not any(re.search(r"\bdibs\.|\{\w+\}(?<!\{8\})", script) for script in rendered)
