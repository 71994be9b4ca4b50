"""What was decided about a task is written only if the task is still as it was read: the scripts compare.

Nothing is locked on Redis. Here a task is moved in between, by another engine or by hand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import structs
from redis_help import NOW, claim, dump, engines, new, run, sound
from test_fences import (
    CASES,
    DEAD,
    RUNNING,
    Case,
    act,
    cancel,
    enqueue,
    one_after_the_other,
    outcome_of,
    rerank,
    settle,
)

from dibs.core.states import State
from dibs.core.task import Lease, LeasedTask, NewTask, Outcome, Settlement, TaskRecord
from dibs.core.times import HOUR, MINUTE, SECOND
from dibs.engines.redis import RedisEngine, store
from dibs.engines.redis.draft import Draft
from dibs.engines.redis.snapshot import CatalogChanged
from dibs.engines.redis.store import Store
from dibs.engines.redis.transaction import Transaction
from dibs.engines.store_transaction import TaskMoved
from dibs.engines.values import Changed, ExtendOutcome, Extension, Purge, Replay, SettleOutcome
from dibs.errors import StoreBusy
from servers.redis import server

commit = Store.commit


class Between:
    """Does something after a verb of one engine has decided about a task, and before that is written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, engine: RedisEngine, task: NewTask) -> None:
        self.engine = engine
        self.task = task
        self.move: Callable[[], Awaitable[object]] | None = None
        self.was_refused = False

        async def patched(own: Store, transaction: Transaction, generation: int) -> None:
            await self.commit(own, transaction, generation)

        monkeypatch.setattr(Store, "commit", patched)

    async def commit(self, own: Store, transaction: Transaction, generation: int) -> None:
        move = self.move
        if move is None or own is not self.engine._store or self.task.id not in transaction.held:
            await commit(own, transaction, generation)
            return
        self.move = None
        await move()
        try:
            await commit(own, transaction, generation)
        except (TaskMoved, CatalogChanged):
            self.was_refused = True
            raise


async def moved_in_between(case: Case, between: Between, other: RedisEngine, tasks: list[NewTask]) -> object:
    """What becomes of a case if the verb reads before the move, and writes after it."""
    for step in case.before:
        await step(other, tasks)
    between.move = lambda: case.move(other, tasks)
    answer = await case.verb(between.engine, tasks)
    assert between.move is None, "the verb wrote nothing about the task"
    return comparable(await outcome_of(other, tasks, answer))


def comparable(outcome: Any) -> object:
    """With leases counted from 1, as other stores do: here they begin with the time of the first claim."""
    answer, records, counts = outcome
    return (
        [counted(each) for each in answer] if isinstance(answer, list) else answer,
        [counted(each) for each in records],
        counts,
    )


def counted(found: Any) -> object:
    if isinstance(found, LeasedTask):
        return structs.replace(found, lease=number(found.lease))
    if isinstance(found, TaskRecord):
        return structs.replace(found, lease=number(found.lease), settled_lease=number(found.settled_lease))
    return found


def number(lease: Any) -> Any:
    return lease - NOW + 1 if lease and lease >= NOW else lease


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_has_moved_is_decided_again(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        tasks = case.tasks()
        async with engines(2) as (engine, other):
            between = Between(monkeypatch, engine, tasks[0])
            outcome = await moved_in_between(case, between, other, tasks)
            assert between.was_refused
            assert outcome == comparable(await one_after_the_other(case, tasks))
            await sound(other)

    run(test)


SHOWN = [case for case in CASES if case.shown_by and case.verb is not rerank]
"""Without those that the generation of the catalog shows, too."""


@pytest.mark.parametrize("case", SHOWN, ids=lambda case: case.name)
def test_without_the_comparison_the_move_is_lost(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: `test_what_has_moved_is_decided_again` would find it."""

    async def test() -> None:
        tasks = case.tasks()
        async with engines(2) as (engine, other):
            between = Between(monkeypatch, engine, tasks[0])
            monkeypatch.setattr(Draft, "comparisons", lambda _: iter(()))
            outcome = await moved_in_between(case, between, other, tasks)
            assert not between.was_refused
            assert outcome != comparable(await one_after_the_other(case, tasks))

    run(test)


# By hand.


class Hand:
    """Changes a stored task before each of the next commits, and puts it back when that was refused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, engine: RedisEngine, change: str, times: int) -> None:
        self.base = f"{{{engine.address.prefix}}}:"
        self.change = change
        self.times = times
        self.refused = 0
        monkeypatch.setattr(store, "PAUSE_SECONDS", 0.0)

        async def patched(own: Store, transaction: Transaction, generation: int) -> None:
            if self.refused >= self.times:
                return await commit(own, transaction, generation)
            (task_id,) = transaction.held
            undo = self.alter(task_id)
            try:
                await commit(own, transaction, generation)
            except TaskMoved:
                self.refused += 1
                undo()
                raise

        monkeypatch.setattr(Store, "commit", patched)

    def alter(self, task_id: str) -> Callable[[], object]:
        """Returns what undoes it."""
        if self.change == "deadline":
            score = server().command("ZSCORE", f"{self.base}inflight", task_id)
            server().command("ZADD", f"{self.base}inflight", int(score) + 1, task_id)
            return lambda: server().command("ZADD", f"{self.base}inflight", score, task_id)
        for name in ["running"] if self.change == "lease" else ["tasks", "dead", *self.days()]:
            value = server().command("HGET", f"{self.base}{name}", task_id)
            if value is not None:
                changed = f"1{value}" if self.change == "lease" else value.replace("[", "[ ", 1)
                server().command("HSET", f"{self.base}{name}", task_id, changed)
                return lambda name=name: server().command("HSET", f"{self.base}{name}", task_id, value)
        raise LookupError(task_id)

    def days(self) -> list[str]:
        return [f"finished:{day}" for day in server().command("HKEYS", f"{self.base}days")]


async def stored(engine: RedisEngine, task: NewTask) -> Any:
    (record,) = await engine.get([task.id])
    return record


@pytest.mark.parametrize("change", ["lease", "deadline", "value"])
@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.COMPLETED])
def test_a_settlement_is_refused_by_the_script(change: str, outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with engines() as (engine,):
            tasks = [new()]
            for step in RUNNING:
                await step(engine, tasks)
            before = dump(server(), engine)
            hand = Hand(monkeypatch, engine, change, times=1000)
            with pytest.raises(StoreBusy, match="tasks change faster"):
                await settle(outcome)(engine, tasks)
            assert hand.refused > 10
            assert dump(server(), engine) == before, "nothing was written"
            hand.times = 0
            await settle(outcome)(engine, tasks)
            assert (await stored(engine, tasks[0])).state is not State.RUNNING

    run(test)


def test_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with engines() as (engine,):
            tasks = [new()]
            for step in RUNNING:
                await step(engine, tasks)
            hand = Hand(monkeypatch, engine, "value", times=3)
            await settle(Outcome.FAILED)(engine, tasks)
            assert hand.refused == 3
            assert (await stored(engine, tasks[0])).state is State.RETRYING

    run(test)


@pytest.mark.parametrize(
    ("before", "step"),
    [
        ((enqueue,), cancel),
        (RUNNING, cancel),
        (DEAD, act(Replay)),
        (DEAD, act(Purge)),
        ((*RUNNING, settle(Outcome.COMPLETED)), act(Purge)),
    ],
    ids=["cancelled", "asked to stop", "replayed", "purged", "purged when finished"],
)
def test_so_is_what_people_do(before: Any, step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with engines() as (engine,):
            tasks = [new()]
            for each in before:
                await each(engine, tasks)
            record = await stored(engine, tasks[0])
            hand = Hand(monkeypatch, engine, "value", times=1000)
            with pytest.raises(StoreBusy, match="tasks change faster"):
                await step(engine, tasks)
            hand.times = 0
            assert await stored(engine, tasks[0]) == record
            assert await step(engine, tasks) in ([Changed.DONE], [Changed.REQUESTED])

    run(test)


# Leases that are over.


def test_every_script_about_a_run_compares_its_lease() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            await engine.enqueue([new() for _ in range(2)], now=NOW)
            old = await claim(engine, 2, now=NOW)
            await engine.rescue(now=NOW + HOUR)
            current = await claim(engine, 2, "other", now=NOW + HOUR)
            assert all(new.lease > old.lease for new, old in zip(current, old, strict=True))
            before = dump(server(), engine)
            for number in (old[0].lease, current[0].lease + 1, 1, 0):
                extensions = [Extension(Lease(task.id, number), by=MINUTE, progress=0.5) for task in old]
                answers = await engine.extend(extensions, now=NOW + HOUR)
                assert [each.outcome for each in answers] == [ExtendOutcome.LOST] * 2
                assert dump(server(), engine) == before
            for outcome in Outcome:
                lease = Lease(old[0].id, old[0].lease)
                (answer,) = await engine.settle(
                    [Settlement(lease=lease, outcome=outcome, delay=SECOND)], now=NOW + HOUR
                )
                assert answer.outcome is SettleOutcome.REFUSED
            records: list[Any] = await engine.get([task.id for task in current])
            assert {(record.state, record.worker, record.lease) for record in records} == {
                (State.RUNNING, "other", current[0].lease)
            }
            await sound(engine)

    run(test)


def test_a_claim_that_is_undone_undoes_no_later_one() -> None:
    """`unlease`: the task has been claimed again since."""

    async def test() -> None:
        async with engines() as (engine,):
            (task,) = tasks = [new()]
            await engine.enqueue(tasks, now=NOW)
            (old,) = await claim(engine, 1, now=NOW)
            await engine.rescue(now=NOW + HOUR)
            (current,) = await claim(engine, 1, "other", now=NOW + HOUR)
            before = dump(server(), engine)
            own = engine._opened()
            assert await own.client.run("unlease", own.keys("store"), task.id, old.lease, 1, "0") == 0
            assert dump(server(), engine) == before
            assert current.lease > old.lease

    run(test)


def test_lease_numbers_grow_when_the_server_has_forgotten_the_last_one() -> None:
    """A failover may lose the end of what was written: an old lease must not be given again."""

    async def test() -> None:
        async with engines() as (engine,):
            await engine.enqueue([new(), new()])
            (first,) = await claim(engine, 1)
            server().command("HDEL", f"{{{engine.address.prefix}}}:store", "lease")
            (second,) = await claim(engine, 1)
            assert second.lease > first.lease

    run(test)
