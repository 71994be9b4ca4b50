"""What was decided about a task is written only if the task is still as it was loaded: the statements compare.

Transactions keep others from moving a task in between. Here it is moved all the same: from inside a transaction, or by
another verb, after which the first one goes on with what it had loaded before.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from postgres_help import NOW, new

from dibs.core.graph import Edge
from dibs.core.settings import Limit, QueueSettings
from dibs.core.states import State
from dibs.core.task import Edit, Lease, NewTask, Outcome, Settlement
from dibs.core.times import HOUR, MINUTE, SECOND
from dibs.engines.base import Engine
from dibs.engines.decisions.records import Changes
from dibs.engines.memory import MemoryEngine
from dibs.engines.open import open_engine
from dibs.engines.postgres import PostgresEngine
from dibs.engines.postgres import transaction as postgres
from dibs.engines.redis import RedisEngine
from dibs.engines.sqlite import transaction as sqlite
from dibs.engines.store_transaction import StoreTransaction, TaskMoved
from dibs.engines.values import (
    Act,
    Cancel,
    CancelWorkflow,
    ClaimRequest,
    Extension,
    NewWorkflow,
    Purge,
    Replay,
    ReplayWorkflow,
)
from dibs.errors import StoreBusy
from servers.damage import damaged

ENGINES = ["sqlite", "postgres"]
MOVES = ["lease = lease + 1", "state = 'retrying'", "version = version + 1"]
WORKFLOW = "01990000-0000-7000-8000-000000000000"
LATER = NOW + 10 * SECOND
save = StoreTransaction.save

Step = Callable[[Engine, list[NewTask]], Awaitable[Any]]
"""Something done to the store of a case; the first of its tasks is the one that is moved."""


class Case(Struct, frozen=True):
    """A verb that has loaded a task and decided, a move of the task, and then the verb's save."""

    name: str
    before: tuple[Step, ...]
    move: Step
    verb: Step
    shown_by: tuple[str, ...] = ()
    """What shows the move: unless some of it is compared, the move is lost. Empty: the verb overwrites all of it, or
    the row is not where it was."""
    tasks: Callable[[], list[NewTask]] = lambda: [new()]


@asynccontextmanager
async def engine_of(kind: str, path: Path) -> AsyncIterator[Engine]:
    with damaged(kind, path) as store:
        engine = open_engine(store.url)
        await engine.open()
        try:
            yield engine
        finally:
            await engine.close()


# Steps.


async def enqueue(engine: Engine, tasks: list[NewTask]) -> object:
    return await engine.enqueue(sorted(tasks, key=lambda task: task.id), workflow=NewWorkflow(WORKFLOW), now=NOW)


def claim(now: int = NOW, **facts: Any) -> Step:
    async def step(engine: Engine, tasks: list[NewTask]) -> Any:
        request = ClaimRequest(worker="w", sequence=1, queues=("default",), limit=1, **facts)
        return (await engine.claim(request, now=now)).tasks

    return step


def given(engine: Engine, task: NewTask, number: int = 1) -> Lease:
    """The first lease of a store, or a later one. On Redis they begin with the time of the claim."""
    return Lease(task.id, number + (NOW - 1) * isinstance(engine, RedisEngine))


def settle(outcome: Outcome, place: int = 0, lease: int = 1) -> Step:
    async def step(engine: Engine, tasks: list[NewTask]) -> object:
        settlement = Settlement(lease=given(engine, tasks[place], lease), outcome=outcome, delay=SECOND)
        return await engine.settle([settlement], now=NOW)

    return step


def act(kind: Callable[..., Act], place: int = 0, **facts: Any) -> Step:
    async def step(engine: Engine, tasks: list[NewTask]) -> object:
        return await engine.act([kind(id=tasks[place].id, **facts)], now=NOW)

    return step


def act_on_workflow(kind: Callable[..., Act]) -> Step:
    async def step(engine: Engine, tasks: list[NewTask]) -> object:
        return await engine.act([kind(id=WORKFLOW)], now=NOW)

    return step


async def extend(engine: Engine, tasks: list[NewTask]) -> object:
    return await engine.extend([Extension(given(engine, tasks[0]), by=HOUR, progress=0.5)], now=NOW)


async def rescue(engine: Engine, tasks: list[NewTask]) -> object:
    return (await engine.rescue(now=NOW + 10 * MINUTE)).ids


async def replace(engine: Engine, tasks: list[NewTask]) -> object:
    task_id = tasks[0].id[:-4] + "ffff"
    return await engine.enqueue([new(id=task_id, key="k", replace=True, delay=HOUR)], now=NOW)


async def rank_otherwise(engine: Engine, tasks: list[NewTask]) -> object:
    return await engine.set_queue("default", QueueSettings(aging=MINUTE, version=2), expected=1, now=NOW)


async def rerank(engine: Engine, tasks: list[NewTask]) -> object:
    term = await engine.lead("w", now=NOW)
    assert term is not None
    await engine.chore("rerank", term, now=NOW)
    return None


async def delete_queue(engine: Engine, tasks: list[NewTask]) -> object:
    return await engine.delete_queue("default", force=True, now=NOW)


def in_order(*steps: Step) -> Step:
    async def step(engine: Engine, tasks: list[NewTask]) -> object:
        return [await each(engine, tasks) for each in steps]

    return step


def dependent_first() -> list[NewTask]:
    prerequisite = new()
    return [new(after=(Edge(prerequisite.id),)), prerequisite]


def prerequisite_first() -> list[NewTask]:
    return dependent_first()[::-1]


RUNNING = (enqueue, claim())
DEAD = (*RUNNING, settle(Outcome.PERMANENT))
edit = act(Edit, metadata={"edited": 1})
edit_more = act(Edit, priority=90)
cancel = act(Cancel, note="stop")
die_again = in_order(act(Replay), claim(), settle(Outcome.PERMANENT, lease=2))
promote = claim(LATER, names=("another",))
OUTCOMES = [each for each in Outcome if each is not Outcome.COMPLETED]
CASES = [
    *(Case(f"{each} after a request to stop", RUNNING, cancel, settle(each), ("version",)) for each in OUTCOMES),
    Case("permanent after an extension", RUNNING, extend, settle(Outcome.PERMANENT), ("version",)),
    Case("failed after a release", RUNNING, settle(Outcome.RELEASED), settle(Outcome.FAILED), ("state", "version")),
    Case("failed after its end", RUNNING, settle(Outcome.COMPLETED), settle(Outcome.FAILED)),
    Case("cancelled after an edit", (enqueue,), edit, cancel, ("version",)),
    Case("cancelled after a claim", (enqueue,), claim(), cancel, ("lease", "state")),
    Case("asked to stop after an extension", RUNNING, extend, cancel, ("version",)),
    Case("asked to stop after a failure", RUNNING, settle(Outcome.FAILED), cancel, ("state", "version")),
    Case("asked to stop after its end", RUNNING, settle(Outcome.COMPLETED), cancel),
    Case("edited after an edit", (enqueue,), edit, edit_more, ("version",)),
    Case("edited after a claim", (enqueue,), claim(), edit, ("lease", "state")),
    Case("edited after a promotion", (enqueue,), promote, edit, ("state",), lambda: [new(delay=SECOND)]),
    Case("replayed after a replay", DEAD, act(Replay), act(Replay)),
    Case("replayed after it died again", DEAD, die_again, act(Replay), ("lease", "version")),
    Case("purged after a replay", DEAD, act(Replay), act(Purge)),
    Case("purged when finished", (*RUNNING, settle(Outcome.COMPLETED)), act(Purge), act(Purge)),
    Case("rescued after an extension", RUNNING, extend, rescue, ("version",)),
    Case("rescued after a request to stop", RUNNING, cancel, rescue, ("version",)),
    Case("expired after an edit", (enqueue,), edit, claim(LATER), ("version",), lambda: [new(expires_at=NOW + SECOND)]),
    Case("replaced after an edit", (enqueue,), edit, replace, tasks=lambda: [new(key="k")]),
    Case(
        "unblocked after an edit",
        (enqueue, claim()),
        edit,
        settle(Outcome.COMPLETED, 1),
        ("version",),
        dependent_first,
    ),
    Case(
        "cancelled by a failed dependency after an edit",
        (enqueue, claim()),
        edit,
        settle(Outcome.PERMANENT, 1),
        ("version",),
        dependent_first,
    ),
    Case("more urgent after an edit", (enqueue,), edit, act(Edit, 1, priority=90), ("version",), prerequisite_first),
    Case("ranked again after an edit", (enqueue, rank_otherwise), edit, rerank, ("version",)),
    Case("buried after an edit", (enqueue,), edit, delete_queue, ("version",)),
    Case(
        "cancelled with its workflow after an edit",
        (enqueue,),
        edit,
        act_on_workflow(CancelWorkflow),
        ("version",),
        lambda: [new(workflow=WORKFLOW)],
    ),
    Case(
        "replayed with its workflow after it died again",
        DEAD,
        die_again,
        act_on_workflow(ReplayWorkflow),
        ("lease", "version"),
        lambda: [new(workflow=WORKFLOW)],
    ),
]


MERGED = {"asked to stop after an extension"}
"""Moves that PostgreSQL keeps even so: they are in a row of its own, of which the verb writes other columns."""


class DecidedEarlier(Exception):
    """A verb has decided, and is given up before it saves."""


class LateSave:
    """Lets a verb save what it decided before a task was moved, as if its load had locked nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, task: NewTask, not_compared: Sequence[str] = ()) -> None:
        self.task = task
        self.not_compared = not_compared
        self.saves: dict[StoreTransaction, int] = {}
        self.place = 0
        """Which save of its transaction writes the task."""
        self.earlier: tuple[Changes, dict[str, int], dict[str, int]] | None = None
        self.decides, self.is_late, self.was_refused = False, False, False

        async def patched(transaction: Any, changes: Changes) -> None:
            await self.save(transaction, changes)

        monkeypatch.setattr(sqlite.Transaction, "save", patched)
        monkeypatch.setattr(postgres.Transaction, "save", patched)

    async def decide(self, verb: Step, engine: Engine, tasks: list[NewTask]) -> None:
        """Run a verb up to where it would save the task."""
        self.decides = True
        with pytest.raises(DecidedEarlier):
            await verb(engine, tasks)
        self.decides = False

    async def go_on(self, verb: Step, engine: Engine, tasks: list[NewTask]) -> object:
        """Run the verb again; it first saves what it decided earlier."""
        self.is_late = True
        return await verb(engine, tasks)

    async def save(self, transaction: Any, changes: Changes) -> None:
        place = self.saves[transaction] = self.saves.get(transaction, 0) + 1
        if self.decides and self.task.id in {record.id for record in changes.before}:
            self.place = place
            self.earlier = changes, {**transaction.loaded}, {**transaction.versions}
            raise DecidedEarlier
        is_late = self.is_late and place == self.place
        if is_late:
            assert self.earlier is not None
            changes, transaction.loaded, transaction.versions = self.earlier
            await self.compare_less(transaction)
        try:
            await save(transaction, changes)
        except TaskMoved:
            self.is_late, self.was_refused = False, True
            raise
        if is_late:
            self.is_late = False

    async def compare_less(self, transaction: Any) -> None:
        """Plant the bug: for some of what shows a move, the statement is given what is stored now."""
        now = {"lease": 0, "state": "", "version": 0}
        for place in ("tasks", "dead"):
            if isinstance(transaction, postgres.Transaction):
                source = "unfinished" if place == "tasks" else place
                query = f"SELECT lease, state, version FROM {transaction.schema}.{source} WHERE id = $1"
                row = await transaction.connection.fetchrow(query, self.task.id)
            else:
                query = f"SELECT lease, state, version FROM dibs_{place} WHERE id = ?"
                row = transaction.connection.execute(query, (self.task.id,)).fetchone()
            now = dict(zip(now, row, strict=True)) if row else now
        fence = transaction.fence

        def compared(old: Any) -> tuple[object, ...]:
            pairs = zip(now.items(), fence(old), strict=True)
            return tuple(stored if name in self.not_compared else loaded for (name, stored), loaded in pairs)

        transaction.fence = compared


async def moved_in_between(case: Case, engine: Engine, tasks: list[NewTask], late: LateSave) -> object:
    """What becomes of a case if the verb loads before the move, and saves after it."""
    for step in case.before:
        await step(engine, tasks)
    await late.decide(case.verb, engine, tasks)
    await case.move(engine, tasks)
    return await outcome_of(engine, tasks, await late.go_on(case.verb, engine, tasks))


async def outcome_of(engine: Engine, tasks: list[NewTask], answer: object) -> object:
    counts = {queue: {k: n for k, n in found.items() if n} for queue, found in (await engine.counts()).tasks.items()}
    return answer, await engine.get([task.id for task in tasks]), counts


async def one_after_the_other(case: Case, tasks: list[NewTask]) -> object:
    """What becomes of a case if the verb begins after the move."""
    engine = MemoryEngine()
    await engine.open()
    for step in (*case.before, case.move):
        await step(engine, tasks)
    return await outcome_of(engine, tasks, await case.verb(engine, tasks))


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_has_moved_is_decided_again(
    kind: str, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        tasks = case.tasks()
        async with engine_of(kind, tmp_path) as engine:
            late = LateSave(monkeypatch, tasks[0])
            outcome = await moved_in_between(case, engine, tasks, late)
            assert late.was_refused
            assert outcome == await one_after_the_other(case, tasks)

    asyncio.run(test())


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("case", [case for case in CASES if case.shown_by], ids=lambda case: case.name)
def test_without_the_comparison_the_move_is_lost(
    kind: str, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: `test_what_has_moved_is_decided_again` would find it."""

    async def test() -> None:
        tasks = case.tasks()
        async with engine_of(kind, tmp_path) as engine:
            late = LateSave(monkeypatch, tasks[0], case.shown_by)
            outcome = await moved_in_between(case, engine, tasks, late)
            assert not late.was_refused
            keeps_it = kind == "postgres" and case.name in MERGED
            assert (outcome == await one_after_the_other(case, tasks)) is keeps_it

    asyncio.run(test())


@pytest.mark.parametrize("kind", ENGINES)
def test_a_gate_is_no_fact_of_a_task(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task becomes the head of its partition in between: it is saved, and still is the head."""

    async def test() -> None:
        first, second = new(partition="p"), new(partition="p")
        settings = QueueSettings(per_partition=Limit(max_concurrent=1), version=1)
        async with engine_of(kind, tmp_path) as engine:
            await engine.set_queue("default", settings, expected=0, now=NOW)
            await enqueue(engine, [first, second])
            assert [task.id for task in await claim()(engine, [])] == [first.id]
            late = LateSave(monkeypatch, second)
            await late.decide(edit, engine, [second])
            await settle(Outcome.COMPLETED)(engine, [first])
            await late.go_on(edit, engine, [second])
            assert not late.was_refused
            assert (await stored(engine, second)).spec.metadata == {"edited": 1}
            assert [task.id for task in await claim()(engine, [])] == [second.id]

    asyncio.run(test())


def move_before_saving(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, place: str, change: str, times: int
) -> list[int]:
    """Each of the next transactions finds, when it saves, that its tasks have been moved; how many have is counted."""
    saved: list[int] = []
    number = itertools.count(1)

    def script() -> str:
        saved.append(next(number))
        if not isinstance(engine, PostgresEngine):
            return f"UPDATE dibs_{place} SET {change}"
        schema = engine.address.schema
        in_running = f"DELETE FROM {schema}.running" if "state" in change else f"UPDATE {schema}.running SET {change}"
        return f"UPDATE {schema}.{place} SET {change}; {in_running}"

    async def on_sqlite(self: sqlite.Transaction, changes: Changes) -> None:
        if len(saved) < times:
            self.connection.execute(script())
        await save(self, changes)

    async def on_postgres(self: postgres.Transaction, changes: Changes) -> None:
        if len(saved) < times:
            await self.connection.execute(script())
        await save(self, changes)

    monkeypatch.setattr(sqlite.Transaction, "save", on_sqlite)
    monkeypatch.setattr(postgres.Transaction, "save", on_postgres)
    return saved


async def claimed_task(engine: Engine) -> NewTask:
    task = new()
    for step in RUNNING:
        await step(engine, [task])
    return task


async def stored(engine: Engine, task: NewTask) -> Any:
    (record,) = await engine.get([task.id])
    return record


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("change", MOVES)
@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.COMPLETED])
def test_a_settlement_is_refused_by_the_statement(
    kind: str, change: str, outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with engine_of(kind, tmp_path) as engine:
            task = await claimed_task(engine)
            before = await stored(engine, task)
            move_before_saving(monkeypatch, engine, "tasks", change, times=100)
            with pytest.raises(StoreBusy, match="tasks change faster"):
                await settle(outcome)(engine, [task])
            assert await stored(engine, task) == before, "nothing was written"
            assert (await engine.counts()).tasks["default"][State.RUNNING] == 1

    asyncio.run(test())


@pytest.mark.parametrize("kind", ENGINES)
def test_it_is_tried_again(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with engine_of(kind, tmp_path) as engine:
            task = await claimed_task(engine)
            saved = move_before_saving(monkeypatch, engine, "tasks", MOVES[0], times=1)
            await settle(Outcome.FAILED)(engine, [task])
            assert saved == [1]
            assert (await stored(engine, task)).state is State.RETRYING

    asyncio.run(test())


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("change", [MOVES[0], MOVES[2]])
@pytest.mark.parametrize(
    ("outcome", "place", "step"),
    [
        (None, "tasks", cancel),
        (Outcome.RELEASED, "tasks", cancel),
        (Outcome.PERMANENT, "dead", act(Replay)),
        (Outcome.PERMANENT, "dead", act(Purge)),
        (Outcome.COMPLETED, "finished", act(Purge)),
    ],
    ids=["asked to stop", "cancelled", "replayed", "purged", "purged when finished"],
)
def test_so_is_what_people_do(
    kind: str,
    outcome: Outcome | None,
    place: str,
    change: str,
    step: Step,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        async with engine_of(kind, tmp_path) as engine:
            task = await claimed_task(engine)
            if outcome is not None:
                await settle(outcome)(engine, [task])
            before = await stored(engine, task)
            move_before_saving(monkeypatch, engine, place, change, times=100)
            with pytest.raises(StoreBusy, match="tasks change faster"):
                await step(engine, [task])
            assert await stored(engine, task) == before

    asyncio.run(test())
