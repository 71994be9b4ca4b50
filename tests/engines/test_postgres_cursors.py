"""Where claims begin to read when reading from the beginning has become slow: what they pass over is still found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from postgres_help import claim, engines, new, run, set_queue, settle

from dibs.core.states import State
from dibs.core.times import HOUR, MS, SECOND
from dibs.engines.postgres import PostgresEngine
from dibs.engines.postgres.catalog import MIXED, Stream
from dibs.engines.postgres.cursors import AHEAD, BEGINNING, EVERYTHING, LAG, LONG_AGO, Cursors, RescueCursor, Window
from dibs.engines.postgres.looking import Lookout, arrivals
from dibs.engines.values import ClaimRequest
from dibs.errors import StoreUnavailable

BANDED = Stream(1, "q", "a", (), 0, 1, False, 50, False)
OTHER = Stream(2, "q", "b", (), 0, 1, False, 50, False)
MIXTURE = Stream(3, "q", "a", (), 0, 1, False, MIXED, False)
STREAMS = [BANDED, OTHER, MIXTURE]
EVERYWHERE = [BEGINNING] * 3
RANK = 10**15
NEVER = float("inf")


def slow() -> Cursors:
    """Of an engine that knows that reading from the beginning is slow."""
    cursors = Cursors()
    cursors.claimed(SECOND)
    cursors.know(STREAMS)
    return cursors


def test_quick_claims_read_from_the_beginning() -> None:
    cursors = Cursors()
    cursors.claimed(MS)
    cursors.know(STREAMS)
    cursors.raise_to({1: RANK})
    assert cursors.lows(STREAMS) == EVERYWHERE
    assert not cursors.is_due(NEVER)


def test_after_a_slow_claim_marks_are_used() -> None:
    cursors = slow()
    cursors.raise_to({1: RANK, 3: RANK})
    assert cursors.lows(STREAMS) == [RANK, BEGINNING, BEGINNING], "mixed streams have no order to rely on"
    cursors.claimed(MS)
    assert cursors.lows(STREAMS) != EVERYWHERE, "that was quick because of the marks"


def test_marks_move_on_with_what_is_given() -> None:
    cursors = slow()
    cursors.raise_to({1: RANK, 2: RANK})
    cursors.raise_to({1: RANK + 1, 2: RANK - 1})
    assert cursors.lows(STREAMS) == [RANK + 1, RANK, BEGINNING]


def test_marks_move_back_to_what_was_passed_over() -> None:
    cursors = slow()
    cursors.raise_to({1: RANK, 2: RANK})
    cursors.lower_to({1: RANK - 1})
    assert cursors.lows(STREAMS) == [RANK - 1, RANK, BEGINNING]


def test_looks_take_a_tenth_of_the_time_at_most() -> None:
    cursors = slow()
    assert cursors.is_due(0.0)
    cursors.looked(3 * SECOND, 0.0)
    assert not cursors.is_due(29.9)
    assert cursors.is_due(30.0)
    cursors.looked(6 * MS, 30.0)
    assert not cursors.is_due(30.9), "and come once a second at most"
    assert cursors.is_due(31.0)


def test_a_quick_look_ends_it() -> None:
    cursors = slow()
    cursors.raise_to({1: RANK})
    cursors.looked(MS, 0.0)
    assert cursors.lows(STREAMS) == EVERYWHERE


def test_the_window_is_open_as_long_as_looking_is_quick() -> None:
    window = Window()
    window.learn(RANK, MS, due=False)
    assert window.bounds == EVERYTHING


def test_after_a_slow_look_only_what_may_have_come_since_is_looked_at() -> None:
    window = Window()
    window.learn(RANK, SECOND, due=False)
    assert window.bounds == (RANK - LAG, AHEAD)
    window.learn(RANK + SECOND, MS, due=True)
    assert window.bounds == (RANK - LAG, AHEAD), "there was more due than one claim promotes"
    window.learn(RANK + 2 * SECOND, MS, due=False)
    assert window.bounds == (RANK + 2 * SECOND - LAG, AHEAD)


def test_leases_that_ended_long_ago_are_looked_at_once_a_minute() -> None:
    cursor = RescueCursor()
    assert cursor.low(0.0) == BEGINNING
    cursor.learn(RANK, 0.0, ended=True, full=True)
    assert cursor.low(1.0) == RANK - LONG_AGO
    cursor.learn(RANK + SECOND, 1.0, ended=True, full=False)
    assert cursor.low(59.0) == RANK + SECOND - LONG_AGO
    assert cursor.low(60.0) == BEGINNING
    cursor.learn(RANK + SECOND, 2.0, ended=False, full=False)
    assert cursor.low(3.0) == BEGINNING, "there was more than one step takes back"


def lookout_of(engine: PostgresEngine) -> Lookout:
    assert engine._store is not None
    return engine._store.lookout


@asynccontextmanager
async def slow_engine() -> AsyncIterator[tuple[PostgresEngine, Lookout]]:
    """An engine that has claimed, and knows that reading from the beginning is slow. It looks when it is told to."""
    async with engines() as (engine,):
        lookout = lookout_of(engine)
        await engine.enqueue([new() for _ in range(3)])
        lookout.cursors.looked(SECOND, NEVER)
        lookout.window.looked(SECOND, NEVER)
        await settle(engine, await claim(engine, 1))
        yield engine, lookout


async def look(engine: PostgresEngine, lookout: Lookout) -> None:
    """Have a claim that gives nothing start a look, and see it through."""
    lookout.cursors.rests_until = lookout.window.rests_until = 0.0
    await engine.claim(ClaimRequest(worker="w", sequence=10**6, queues=("default",), limit=0))
    assert lookout.looking is not None
    await lookout.looking


def test_what_comes_late_is_given_after_the_next_look() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, lookout):
            late = new(id="0190163d-8694-739b-aea5-966c26f8ad91")
            await engine.enqueue([late], now=1)  # as if it had been long on its way
            assert late.id not in [task.id for task in await claim(engine, 1)]
            woken: list[bool] = []
            lookout.wake = lambda: woken.append(True)
            await look(engine, lookout)
            assert woken == [True]
            lookout.cursors.looked(SECOND, NEVER)
            assert [task.id for task in await claim(engine, 1)] == [late.id]

    run(test)


def test_claims_do_not_wait_for_a_look() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, lookout):
            read, go_on = lookout.rows, asyncio.Event()

            async def rows(*parameters: Any) -> list[Any]:
                await go_on.wait()
                return await read(*parameters)

            lookout.rows, lookout.cursors.rests_until = rows, 0.0
            assert len(await claim(engine, 1)) == 1
            looking = lookout.looking
            assert looking is not None
            assert len(await claim(engine, 1)) == 1
            assert lookout.looking is looking, "one at a time"
            assert not looking.done()
            go_on.set()
            await looking

    run(test)


def test_where_nothing_waits_claims_begin_with_what_arrives() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, lookout):
            cursors = lookout.cursors
            assert len(await claim(engine, 5)) == 2
            cursors.marks = dict.fromkeys(cursors.marks, BEGINNING)
            assert not await claim(engine, 5)
            assert BEGINNING not in cursors.marks.values(), "the claim came to the end"
            cursors.marks = dict.fromkeys(cursors.marks, BEGINNING)
            await look(engine, lookout)
            assert BEGINNING not in cursors.marks.values()
            cursors.looked(SECOND, NEVER)
            arrived = new()
            await engine.enqueue([arrived])
            assert [task.id for task in await claim(engine, 5)] == [arrived.id]

    run(test)


def test_mixed_streams_are_read_from_the_beginning() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, lookout):
            await engine.enqueue([new(priority=42)])
            assert len(await claim(engine, 5)) == 3
            store = engine._store
            assert store is not None
            bands = {store.catalog.stream(number).band for number in lookout.cursors.marks}
            assert bands == {50}
            assert arrivals(store.catalog, store.catalog.streams.values(), lookout.window).keys() == {
                *lookout.cursors.marks
            }

    run(test)


def test_a_look_that_fails_is_made_again_later() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, lookout):
            read = lookout.rows

            async def rows(*_: Any) -> list[Any]:
                raise StoreUnavailable("not now")

            lookout.rows = rows
            await look(engine, lookout)
            assert lookout.cursors.is_slow
            assert not lookout.cursors.is_due(lookout.cursors.rests_until - 0.1)
            lookout.rows = read
            await look(engine, lookout)
            assert not lookout.cursors.is_slow, "the index is sound"
            assert not lookout.window.is_slow

    run(test)


def test_closing_ends_a_look() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, lookout):

            async def rows(*_: Any) -> list[Any]:
                return await asyncio.Event().wait()  # type: ignore[return-value]

            lookout.rows, lookout.cursors.rests_until = rows, 0.0
            await claim(engine, 1)
            looking = lookout.looking
            assert looking is not None
            await engine.close()
            assert looking.cancelled()

    run(test)


@pytest.mark.parametrize("limited", [False, True])
def test_what_falls_due_or_expires_within_a_narrow_window_is_seen_to(limited: bool) -> None:
    async def test() -> None:
        async with engines() as (engine,):
            if limited:
                await set_queue(engine, max_concurrent=100)
            window = lookout_of(engine).window
            assert not await claim(engine, 1)
            soon = [new(delay=1), new(expires_at=1)]
            later = new(delay=HOUR)
            await engine.enqueue([*soon, later])
            window.looked(SECOND, NEVER)
            window.mark = 1  # whatever is due earlier, has been seen to
            given = await claim(engine, 5)
            assert [task.id for task in given] == [soon[0].id]
            states = [record.state for record in await engine.get([soon[1].id, later.id]) if record is not None]
            assert states == [State.CANCELLED, State.SCHEDULED]
            request = ClaimRequest(worker="w", sequence=10**6, queues=("default",), limit=1)
            next_due_in = (await engine.claim(request)).next_due_in
            assert next_due_in == AHEAD, "it looks again before it can have missed anything"
            window.looked(MS, 0.0)
            next_due_in = (await engine.claim(request)).next_due_in
            assert next_due_in is not None
            assert next_due_in > AHEAD

    run(test)


def test_what_fell_due_before_the_window_is_given_after_the_next_look() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, lookout):
            late = new(delay=1)
            await engine.enqueue([late], now=1)  # as if it had been long on its way
            await claim(engine, 5)
            (record,) = await engine.get([late.id])
            assert record is not None
            assert record.state is State.SCHEDULED
            lookout.cursors.looked(MS, 0.0)
            woken: list[bool] = []
            lookout.wake = lambda: woken.append(True)
            await look(engine, lookout)
            assert woken == [True]
            lookout.window.looked(SECOND, NEVER)
            assert [task.id for task in await claim(engine, 5)] == [late.id]

    run(test)
