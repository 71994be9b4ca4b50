"""join: what a transaction of the user does to the store, and what it does not do to others while it is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from postgres_help import NOW, claim, connection, engines, new, run, set_queue, settle, sound

from dibs.core.graph import Edge
from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import Lease, LeasedTask, NewTask, Outcome, Settlement
from dibs.core.times import SECOND
from dibs.engines.postgres import PostgresEngine
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.topics import ended_topic, work_topic
from dibs.engines.values import EnqueueAnswer, EnqueueOutcome, ExtendOutcome, Extension, SettleOutcome, Unready
from dibs.runtime.joining import TRIES

LEASE = 60 * SECOND
LIMITED = {"per_partition": {"max_concurrent": 1}}
FAIR = {"fair": True}


async def enqueue(
    engine: PostgresEngine, mine: Any, tasks: Sequence[NewTask], now: int | None = NOW
) -> list[EnqueueAnswer]:
    joined = engine.join(mine)
    for _ in range(TRIES):
        try:
            return await joined.enqueue(tasks, now=now)
        except Unready:
            await joined.prepare()
    raise AssertionError("it never got ready")


async def complete(
    engine: PostgresEngine, mine: Any, task: LeasedTask, result: bytes | None = None, now: int | None = NOW
) -> SettleOutcome:
    report = Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.COMPLETED, result=result)
    joined = engine.join(mine)
    for _ in range(TRIES):
        try:
            return await joined.complete(report, now=now)
        except Unready:
            await joined.prepare()
    raise AssertionError("it never got ready")


@asynccontextmanager
async def begun() -> AsyncIterator[Any]:
    async with connection() as mine:
        await mine.execute("BEGIN")
        yield mine


async def states(engine: PostgresEngine, *ids: str) -> list[State | None]:
    return [None if record is None else record.state for record in await engine.get(ids)]


# Queues whose tasks concern each other.


@pytest.mark.parametrize(
    "settings",
    [FAIR, {"max_concurrent": 100}, {"rate": 1000.0}, {"per_task": {"another": {"max_concurrent": 5}}}, LIMITED],
    ids=["shares", "slots", "tokens", "names", "partitions"],
)
@pytest.mark.parametrize("how", ["prerequisite", "replaced"])
def test_a_waiting_task_that_a_transaction_names_holds_up_no_other(settings: dict[str, Any], how: str) -> None:
    """It is locked, and the best of all. Claims take one task at a time."""

    async def test() -> None:
        async with engines(2) as (engine, other), begun() as mine:
            await set_queue(engine, **settings)
            best = new(partition="p", tenant="x", priority=80, key="k", fingerprint="1")
            others = [new(partition=f"o{n}", tenant=f"y{n}") for n in range(5)] + [new(partition="p", tenant="x")]
            await engine.enqueue([best, *others], now=NOW)
            if how == "prerequisite":
                await enqueue(engine, mine, [new(queue="elsewhere", after=(Edge(best.id),), priority=90)])
            else:
                again = new(partition="p", tenant="x", key="k", fingerprint="2", replace=True)
                assert (await enqueue(engine, mine, [again]))[0].outcome is EnqueueOutcome.REPLACED
            given: list[LeasedTask] = []
            async with asyncio.timeout(20):
                for step in range(len(others)):
                    given += await claim(other, 1, now=NOW + step)
            assert sorted(task.id for task in given) == sorted(task.id for task in others)
            await mine.execute("COMMIT")
            await settle(other, given, now=NOW + 50)
            assert [task.id for task in await claim(other, 1, now=NOW + 60)] == [best.id]
            await sound(engine)

    run(test)


def test_a_task_that_a_transaction_moves_between_choice_and_lease_is_chosen_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its partition is full now: it may not start."""

    async def test() -> None:
        async with engines(2) as (engine, other), begun() as mine:
            await set_queue(engine, **LIMITED, fair=True, per_task={"other": 1})  # not for one statement
            await engine.enqueue([new(partition="full", tenant="x")], now=NOW)
            assert len(await claim(engine, 1, now=NOW)) == 1
            moving = new(partition="free", tenant="x", key="k", fingerprint="1")
            await engine.enqueue([moving], now=NOW)
            lease = Transaction.lease

            async def late(*arguments: Any) -> Any:
                monkeypatch.undo()
                again = new(partition="full", tenant="y", key="k", fingerprint="2", replace=True)
                await enqueue(engine, mine, [again])
                await mine.execute("COMMIT")
                return await lease(*arguments)

            monkeypatch.setattr(Transaction, "lease", late)
            assert await claim(other, 5, now=NOW + 1) == []
            assert await claim(other, 5, now=NOW + 2) == []
            await sound(engine)

    run(test)


@pytest.mark.parametrize("settings", [LIMITED, FAIR, {**LIMITED, **FAIR}], ids=["partitions", "shares", "both"])
def test_others_claim_from_a_guarded_queue_while_a_transaction_is_open(settings: dict[str, Any]) -> None:
    async def test() -> None:
        async with engines(2) as (engine, other), begun() as mine:
            await set_queue(engine, **settings)
            theirs = [new(partition=p, tenant=p) for p in "abab"]
            await engine.enqueue(theirs, now=NOW)
            ours = [new(partition=p, tenant=p, priority=90) for p in "acac"]
            answers = await enqueue(engine, mine, ours)
            assert [(a.outcome, a.state) for a in answers] == [(EnqueueOutcome.ENQUEUED, State.PENDING)] * 4
            async with asyncio.timeout(20):
                given = await claim(other, 10, now=NOW + 10)
                await settle(other, given, now=NOW + 20)
                await other.enqueue([new(partition="a", tenant="a")], now=NOW + 20)
            assert {task.id for task in given} <= {task.id for task in theirs}
            await mine.execute("COMMIT")
            seen = {task.id for task in given}
            for step in range(10):
                more = await claim(other, 10, now=NOW + 30 + step)
                if settings is not FAIR:
                    assert len({task.spec.partition for task in more}) == len(more)
                seen |= {task.id for task in more}
                await settle(other, more, now=NOW + 30 + step)
            assert seen >= {task.id for task in [*theirs, *ours]}
            assert len(seen) == 9
            await sound(engine)

    run(test)


def test_urgent_tasks_of_a_guarded_queue_come_in_their_order() -> None:
    async def test() -> None:
        async with engines() as (engine,), begun() as mine:
            await set_queue(engine, **FAIR)
            low = [new(priority=30), new(priority=30)]
            await engine.enqueue(low, now=NOW)
            high = new(priority=90)
            await enqueue(engine, mine, [high])
            await mine.execute("COMMIT")
            given = await claim(engine, 3, now=NOW + 10)
            assert [task.id for task in given] == [high.id, low[0].id, low[1].id]

    run(test)


def test_a_guarded_queue_can_be_full() -> None:
    async def test() -> None:
        async with engines() as (engine,), begun() as mine:
            await set_queue(engine, **LIMITED, max_depth=1)
            await engine.enqueue([new(partition="a")], now=NOW)
            (answer,) = await enqueue(engine, mine, [new(partition="b")])
            assert answer.outcome is EnqueueOutcome.FULL
            later, _ = await enqueue(engine, mine, [new(partition="b", delay=SECOND), new(partition="c", delay=SECOND)])
            assert later.state is State.SCHEDULED

    run(test)


def test_all_or_none() -> None:
    async def test() -> None:
        async with engines() as (engine,), begun() as mine:
            there = new(args=b"1")
            await engine.enqueue([there], now=NOW)
            first, other = new(), new(id=there.id, args=b"2")
            answers = await enqueue(engine, mine, [first, other])
            assert [a.outcome for a in answers] == [EnqueueOutcome.ABANDONED, EnqueueOutcome.TAKEN]
            assert [a.outcome for a in await enqueue(engine, mine, [there, new()])] == [
                EnqueueOutcome.EXISTS, EnqueueOutcome.ENQUEUED,
            ]  # fmt: skip
            await mine.execute("COMMIT")
            assert await states(engine, first.id) == [None]
            assert len(await claim(engine, 10, now=NOW)) == 2
            await sound(engine)

    run(test)


# Keys.


def test_a_key_is_waited_for_until_it_is_known_who_has_it() -> None:
    async def test() -> None:
        for ending, outcome in (("COMMIT", EnqueueOutcome.DUPLICATE), ("ROLLBACK", EnqueueOutcome.ENQUEUED)):
            async with engines(2) as (engine, other), begun() as mine:
                await other.enqueue([new()], now=NOW)
                await enqueue(engine, mine, [new(key="k", fingerprint="f")])
                waiting = asyncio.create_task(other.enqueue([new(key="k", fingerprint="f")], now=NOW))
                await other.enqueue([new(key="another")], now=NOW)  # nobody else waits
                assert not waiting.done()
                await mine.execute(ending)
                assert (await waiting)[0].outcome is outcome
                await sound(engine)

    run(test)


@pytest.mark.parametrize("settings", [{}, LIMITED, FAIR], ids=["plain", "partitions", "shares"])
@pytest.mark.parametrize("delays", [(0, 0), (0, SECOND), (SECOND, 0), (SECOND, 2 * SECOND)])
def test_a_waiting_task_is_replaced(settings: dict[str, Any], delays: tuple[int, int]) -> None:
    async def test() -> None:
        async with engines(2) as (engine, other), begun() as mine:
            await set_queue(engine, **settings)
            facts: dict[str, Any] = {"key": "k", "replace": True, "partition": "p", "tenant": "t"}
            old = new(args=b"1", delay=delays[0], **facts)
            await engine.enqueue([old, new(partition="p", tenant="t")], now=NOW)
            (answer,) = await enqueue(engine, mine, [new(args=b"2", delay=delays[1], priority=90, **facts)])
            assert (answer.outcome, answer.id) == (EnqueueOutcome.REPLACED, old.id)
            await mine.execute("COMMIT")
            async with asyncio.timeout(20):
                first = await claim(other, 10, now=NOW + 5 * SECOND)
                await settle(other, first, now=NOW + 5 * SECOND)
                rest = await claim(other, 10, now=NOW + 5 * SECOND)
            assert first[0].args == b"2"
            assert len(first + rest) == 2
            await sound(engine)

    run(test)


# Waiting for others.


def test_tasks_wait_for_others_and_make_them_urgent() -> None:
    async def test() -> None:
        async with engines(2) as (engine, other), begun() as mine:
            await set_queue(engine, **LIMITED)
            needed = [new(partition="p", priority=30), new(partition="q", priority=30)]
            rival = new(partition="r", priority=50)
            await engine.enqueue([*needed, rival], now=NOW)
            dependent = new(priority=90, partition="p", after=tuple(Edge(each.id) for each in needed))
            (answer,) = await enqueue(engine, mine, [dependent])
            assert answer.state is State.BLOCKED
            await mine.execute("COMMIT")
            given = await claim(other, 2, now=NOW + 10)
            assert {task.id for task in given} == {each.id for each in needed}
            await settle(other, given, now=NOW + 20)
            assert {task.id for task in await claim(other, 5, now=NOW + 30)} == {dependent.id, rival.id}
            await sound(engine)

    run(test)


def test_what_is_waited_for_can_not_end_meanwhile() -> None:
    async def test() -> None:
        async with engines(2) as (engine, other), begun() as mine:
            needed = new()
            await engine.enqueue([needed], now=NOW)
            given = await claim(other, 1, now=NOW)
            dependent = new(after=(Edge(needed.id),))
            await enqueue(engine, mine, [dependent])
            ending = asyncio.create_task(settle(other, given, now=NOW))
            await other.enqueue([new()], now=NOW)
            assert not ending.done()
            await mine.execute("COMMIT")
            await ending
            await claim(other, 5, now=NOW + 10)
            assert await states(engine, dependent.id) == [State.RUNNING]

    run(test)


def test_a_task_whose_prerequisite_has_failed_ends_at_once_and_so_do_its_own() -> None:
    async def test() -> None:
        async with engines() as (engine,), begun() as mine:
            needed = new()
            await engine.enqueue([needed], now=NOW)
            await settle(engine, await claim(engine, 1, now=NOW), Outcome.PERMANENT, now=NOW)
            first = new(after=(Edge(needed.id),))
            second = new(after=(Edge(first.id),))
            answers = await enqueue(engine, mine, [first, second])
            await mine.execute("COMMIT")
            await claim(engine, 1, now=NOW)
            ended = await states(engine, first.id, second.id)
            assert [answer.state for answer in answers] == ended
            assert set(ended) <= {State.CANCELLED, State.DEAD}
            await sound(engine)

    run(test)


# complete.


@pytest.mark.parametrize("settings", [{}, LIMITED, FAIR], ids=["plain", "partitions", "shares"])
def test_a_task_completes_with_the_transaction(settings: dict[str, Any]) -> None:
    async def test() -> None:
        async with engines(2) as (engine, other), connection() as mine:
            await set_queue(engine, **settings)
            await engine.enqueue([new(partition="p", tenant="t"), new(partition="p", tenant="t")], now=NOW)
            (task, *others) = await claim(engine, 2, now=NOW)
            for ending, state in (("ROLLBACK", State.RUNNING), ("COMMIT", State.COMPLETED)):
                await mine.execute("BEGIN")
                assert await complete(engine, mine, task, b"1") is SettleOutcome.DONE
                assert await complete(engine, mine, task, b"1") is SettleOutcome.ALREADY
                assert await states(engine, task.id) == [State.RUNNING]
                await mine.execute(ending)
                assert await states(engine, task.id) == [state]
            (record,) = await engine.get([task.id])
            assert record is not None
            assert (record.result, record.settled_lease, record.finished_at) == (b"1", task.lease, NOW)
            late = Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.FAILED)
            assert [answer.outcome for answer in await engine.settle([late], now=NOW)] == [SettleOutcome.ALREADY]
            others += await claim(other, 2, now=NOW + 10)  # of a limited partition the next may start now
            assert len(others) == 1
            await sound(engine)

    run(test)


@pytest.mark.parametrize("options", [{}, {"partition": "p"}])
def test_the_fence_holds(options: dict[str, Any]) -> None:
    async def test() -> None:
        async with engines() as (engine,), begun() as mine:
            await set_queue(engine, **LIMITED)
            await engine.enqueue([new(**options)], now=NOW)
            (old,) = await claim(engine, 1, now=NOW)
            await engine.rescue(now=NOW + 3600 * SECOND)
            (task,) = await claim(engine, 1, now=NOW + 7200 * SECOND)
            assert (task.id, task.lease) == (old.id, 2)
            assert await complete(engine, mine, old) is SettleOutcome.REFUSED
            await mine.execute("COMMIT")
            assert await states(engine, task.id) == [State.RUNNING]
            assert [entry.event for entry in await engine.history(task.id)] == ["lost"]
            await sound(engine)

    run(test)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.RELEASED, Outcome.PERMANENT, Outcome.CANCELLED])
def test_a_lease_that_was_settled_in_another_way_completes_nothing(outcome: Outcome) -> None:
    async def test() -> None:
        async with engines() as (engine,), begun() as mine:
            await engine.enqueue([new()], now=NOW)
            (task,) = await claim(engine, 1, now=NOW)
            await settle(engine, [task], outcome, now=NOW)
            before = await states(engine, task.id)
            assert await complete(engine, mine, task) is SettleOutcome.REFUSED
            await mine.execute("COMMIT")
            assert await states(engine, task.id) == before

    run(test)


def test_nobody_takes_a_run_away_while_its_completion_is_open() -> None:
    async def test() -> None:
        async with engines(2) as (engine, other), begun() as mine:
            await engine.enqueue([new()], now=NOW)
            (task,) = await claim(engine, 1, now=NOW)
            await complete(engine, mine, task)
            late = NOW + 3600 * SECOND
            async with asyncio.timeout(20):
                assert (await other.rescue(now=late)).ids == []
                kept = await other.extend([Extension(Lease(task.id, task.lease), LEASE)], now=late)
            assert [answer.outcome for answer in kept] == [ExtendOutcome.HELD]
            await mine.execute("COMMIT")
            kept = await other.extend([Extension(Lease(task.id, task.lease), LEASE)], now=late)
            assert [answer.outcome for answer in kept] == [ExtendOutcome.LOST]

    run(test)


def test_dependents_start_after_the_commit() -> None:
    async def test() -> None:
        async with engines(2) as (engine, other), begun() as mine:
            needed = new()
            dependents = [new(after=(Edge(needed.id),)) for _ in range(3)]
            await engine.enqueue([needed, *dependents], now=NOW)
            (task,) = await claim(engine, 5, now=NOW)
            subscription = other.subscribe([work_topic("default"), ended_topic("default")])
            assert await subscription.wait(30)  # it listens now
            await complete(engine, mine, task)
            assert await claim(other, 5, now=NOW) == []
            await mine.execute("COMMIT")
            assert await subscription.wait(30)
            subscription.close()
            assert {each.id for each in await claim(other, 5, now=NOW + 10)} == {each.id for each in dependents}
            await sound(engine)

    run(test)


def test_settings_that_changed_meanwhile_are_heeded() -> None:
    async def test() -> None:
        async with engines(2) as (engine, other), connection() as mine:
            await engine.enqueue([new()], now=NOW)
            await mine.execute("BEGIN")
            await enqueue(engine, mine, [new()])
            await mine.execute("COMMIT")
            await set_queue(other, max_depth=1)
            await mine.execute("BEGIN")
            (answer,) = await enqueue(engine, mine, [new()])
            assert answer.outcome is EnqueueOutcome.FULL
            await mine.execute("COMMIT")
            (task, _) = await claim(other, 5, now=NOW)
            await set_queue(other, max_depth=None)
            await mine.execute("BEGIN")
            assert await complete(engine, mine, task) is SettleOutcome.DONE
            await mine.execute("COMMIT")

    run(test)


def test_a_held_transaction_stops_nobody_from_changing_settings_for_ever() -> None:
    async def test() -> None:
        async with engines(2) as (engine, other), begun() as mine:
            await engine.enqueue([new()], now=NOW)
            await enqueue(engine, mine, [new()])
            changing = asyncio.create_task(
                other.set_queue("default", QueueSettings(max_depth=5), expected=1, actor="somebody")
            )
            for _ in range(5):  # neither he nor the transaction keeps others waiting
                async with asyncio.timeout(20):
                    await settle(engine, await claim(engine, 1))
                    await engine.enqueue([new()])
            assert not changing.done()
            await mine.execute("COMMIT")
            assert (await changing) is not None

    run(test)


@pytest.mark.parametrize("settings", [{}, LIMITED, FAIR], ids=["plain", "partitions", "shares"])
def test_many_transactions_at_once_lose_nothing_and_double_nothing(settings: dict[str, Any]) -> None:
    """Producers and consumers, each with a transaction of its own, which commits or not; then all is as they said."""
    kept: set[str] = set()
    done: list[str] = []

    async def produce(engine: PostgresEngine, seed: int) -> None:
        choose = Random(seed)
        async with connection() as mine:
            for number in range(15):
                partition = choose.choice("abc")
                after = (Edge(choose.choice(sorted(kept))),) if kept and choose.random() < 0.3 else ()
                key = f"{seed} {number}" if choose.random() < 0.3 else None
                task = new(partition=partition, tenant=partition, after=after, key=key, priority=choose.randint(0, 100))
                await mine.execute("BEGIN")
                (answer,) = await enqueue(engine, mine, [task], None)
                assert answer.outcome is EnqueueOutcome.ENQUEUED
                if choose.random() < 0.3:
                    await mine.execute("ROLLBACK")
                else:
                    await mine.execute("COMMIT")
                    kept.add(task.id)

    async def consume(engine: PostgresEngine, seed: int, producing: asyncio.Event) -> None:
        choose = Random(seed)
        async with connection() as mine:
            while producing.is_set() or len(done) < len(kept):
                for task in await claim(engine, 3, worker=f"w{seed}"):
                    await mine.execute("BEGIN")
                    assert await complete(engine, mine, task, None, None) is SettleOutcome.DONE
                    if choose.random() < 0.3:
                        await mine.execute("ROLLBACK")
                        await settle(engine, [task], Outcome.RELEASED)
                    else:
                        await mine.execute("COMMIT")
                        done.append(task.id)

    async def test() -> None:
        async with engines(3) as (first, second, third), asyncio.timeout(60):
            await set_queue(first, **settings)
            producing = asyncio.Event()
            producing.set()
            consumers = [
                asyncio.create_task(consume(each, seed, producing)) for seed, each in enumerate((first, second))
            ]
            await asyncio.gather(*(produce(each, seed) for seed, each in enumerate((first, second, third, third))))
            producing.clear()
            await asyncio.gather(*consumers)
            assert sorted(done) == sorted(kept)
            assert set(await states(first, *kept)) == {State.COMPLETED}
            await sound(first)

    run(test)
