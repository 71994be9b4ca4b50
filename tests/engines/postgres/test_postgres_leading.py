"""Several who lead, promote and rescue at the same time: one leads, and everything is done once."""

from __future__ import annotations

import asyncio

import pytest
from postgres_help import NOW, claim, engines, new, run, settle, sound

from dibs.core.policy import TERM
from dibs.core.states import State
from dibs.core.times import HOUR, SECOND
from dibs.engines.decisions.steps import Done, Step
from dibs.engines.figures import Counter
from dibs.engines.postgres import PostgresEngine, chores
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.values import Cancel, ClaimRequest, Purge

PATIENCE = 30.0


def test_one_of_many_leads() -> None:
    async def test() -> None:
        async with engines(6) as workers:
            numbers = set()
            for turn in range(5):
                now = NOW + turn * TERM
                terms = await asyncio.gather(*(engine.lead(f"w{i}", now=now) for i, engine in enumerate(workers)))
                (term,) = [each for each in terms if each is not None]
                numbers.add(term.number)
                again = await asyncio.gather(*(engine.lead(f"w{i}", now=now) for i, engine in enumerate(workers)))
                assert [each.number for each in again if each is not None] == [term.number]
            assert len(numbers) == 5, "each term has a number of its own"

    run(test)


def test_two_who_think_that_they_lead() -> None:
    """Only the later one does chores, however the two are mixed."""

    async def test() -> None:
        async with engines(2) as (old, young):
            first = await old.lead("old", now=NOW)
            second = await young.lead("young", now=NOW + TERM)
            assert first is not None
            assert second is not None
            late = NOW + TERM + SECOND
            names = [chore.name for chore in (await old.about()).chores]
            done = await asyncio.gather(
                *(old.chore(name, first, now=late) for name in names),
                *(young.chore(name, second, now=late) for name in names),
            )
            assert [record.refused for record in done] == [True] * len(names) + [False] * len(names)
            await old.resign(first)
            assert not (await young.chore("fold_counts", second, now=late)).refused, "it was not his to resign"

    run(test)


def test_a_chore_that_is_under_way_is_whole_before_the_next_term_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def slow(transaction: Transaction, steps: list[Step], most: int) -> Done:
            begun.set()
            await go.wait()
            return await chores.fold_counts(transaction, steps, most)

        monkeypatch.setitem(chores.CHORES, "slow", slow)
        async with engines(2) as (old, young):
            first = await old.lead("old", now=NOW)
            assert first is not None
            chore = asyncio.create_task(old.chore("slow", first, now=NOW))
            await asyncio.wait_for(begun.wait(), PATIENCE)
            heir = asyncio.create_task(young.lead("young", now=NOW + TERM))
            for _ in range(20):
                await young.counts()  # the heir has had time to come as far as it can
            assert not heir.done(), "the term is in use"
            go.set()
            assert not (await chore).refused
            second = await heir
            assert second is not None
            assert second.number > first.number
            assert (await old.chore("slow", first, now=NOW + TERM)).refused

    run(test)


def test_rescuers_at_the_same_time_take_back_what_expired_once() -> None:
    async def test() -> None:
        async with engines(5) as workers:
            tasks = [new(name=f"kind{i % 3}") for i in range(300)]
            await workers[0].enqueue(tasks, now=NOW)
            assert len(await claim(workers[0], 300, now=NOW)) == 300
            later = NOW + HOUR
            rescued = await asyncio.gather(*(engine.rescue(now=later) for engine in workers))
            lost = [task_id for each in rescued for task_id in each.ids]
            assert sorted(lost) == sorted(task.id for task in tasks)
            assert (await workers[0].counts()).counters["default"][Counter.LOSSES] == 300
            assert {record.losses for record in await workers[0].get(lost) if record is not None} == {1}
            await sound(workers[0])

    run(test)


def test_what_is_due_is_promoted_once_whoever_looks() -> None:
    async def test() -> None:
        async with engines(5) as workers:
            tasks = [new(delay=SECOND, priority=(50, 63)[i % 2]) for i in range(300)]
            await workers[0].enqueue(tasks, now=NOW)

            async def work(engine: PostgresEngine, worker: str) -> list[str]:
                given: list[str] = []
                while True:
                    found = await claim(engine, 9, worker, now=NOW + SECOND)
                    if not found:
                        return given
                    await settle(engine, found, now=NOW + SECOND)
                    given += [task.id for task in found]

            given = await asyncio.gather(*(work(engine, f"w{i}") for i, engine in enumerate(workers)))
            assert sorted(task_id for each in given for task_id in each) == sorted(task.id for task in tasks)
            assert (await workers[0].counts()).tasks["default"][State.COMPLETED] == len(tasks)
            await sound(workers[0])

    run(test)


def test_a_settlement_and_a_rescue_at_the_same_time_leave_one_outcome() -> None:
    async def test() -> None:
        async with engines(2) as (worker, rescuer):
            for turn in range(20):
                now = NOW + turn * 2 * HOUR
                await worker.enqueue([new() for _ in range(5)], now=now)
                request = ClaimRequest(worker="w", sequence=turn + 1, queues=("default",), limit=5)
                found = (await worker.claim(request, now=now)).tasks
                late = now + HOUR
                _, rescued = await asyncio.gather(settle(worker, found, now=late), rescuer.rescue(now=late))
                for record in await worker.get([task.id for task in found]):
                    assert record is not None
                    taken_back = record.id in rescued.ids
                    assert record.state is (State.PENDING if taken_back else State.COMPLETED)
                await worker.act([Purge(task.id) for task in found if task.id not in rescued.ids], now=late)
                await worker.act([Cancel(each) for each in rescued.ids], now=late)
            await sound(worker)

    run(test)
