"""A task is found in an ordered set, and read after that: it may have moved in between. Another engine does so here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from redis_help import NOW, claim, engines, new, run, set_queue, sound

from dibs.core.states import State
from dibs.core.task import Lease
from dibs.core.times import HOUR, MINUTE, SECOND
from dibs.engines.redis import RedisEngine
from dibs.engines.redis.transaction import Transaction
from dibs.engines.values import Extension

LATER = NOW + HOUR
find_tasks = Transaction.find_tasks


def between(
    monkeypatch: pytest.MonkeyPatch, engine: RedisEngine, task_id: str, move: Callable[[], Awaitable[Any]]
) -> None:
    """Move a task once, right before this engine reads it."""
    moves = [move]

    async def patched(own: Transaction, ids: Sequence[str], **how: Any) -> Any:
        is_ours = own.draft.client is engine._opened().client
        if is_ours and task_id in ids and moves:
            await moves.pop()()
        return await find_tasks(own, ids, **how)

    monkeypatch.setattr(Transaction, "find_tasks", patched)


def test_a_due_task_that_another_has_promoted_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with engines(2) as (engine, other):
            task = new(delay=MINUTE)
            await engine.enqueue([task], now=NOW)
            between(monkeypatch, engine, task.id, lambda: claim(other, 0, now=LATER))
            (held,) = await claim(engine, 1, now=LATER)
            assert held.id == task.id
            await sound(engine)

    run(test)


def test_a_lease_that_was_just_extended_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with engines(2) as (engine, other):
            task = new()
            await engine.enqueue([task], now=NOW)
            (held,) = await claim(engine, 1, now=NOW)
            extension = Extension(Lease(held.id, held.lease), by=MINUTE)
            between(monkeypatch, engine, task.id, lambda: other.extend([extension], now=LATER))
            assert (await engine.rescue(now=LATER)).ids == []
            assert [each.state for each in await engine.get([task.id]) if each is not None] == [State.RUNNING]

    run(test)


def test_a_task_that_was_just_started_does_not_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with engines(2) as (engine, other):
            task = new(expires_at=NOW + MINUTE)
            await engine.enqueue([task], now=NOW)
            between(monkeypatch, engine, task.id, lambda: claim(other, 1, now=NOW + SECOND))
            await claim(engine, 0, now=LATER)
            assert await engine.history(task.id) == []

    run(test)


def test_thousands_of_limited_partitions_in_one_call() -> None:
    """A range looks only at what has changed within it: otherwise this takes the square of their number."""

    async def test() -> None:
        async with engines() as (engine,):
            await set_queue(engine, per_partition=1)
            tasks = [new(partition=f"p{number}") for number in range(3000)]
            await engine.enqueue(tasks)
            assert len(await claim(engine, 3000)) == 3000
            await sound(engine)

    run(test)
