"""Where claims begin to read when reading from the beginning has become slow: what they pass over is still found."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs
from postgres_help import claim, connection, engines, new, run, set_queue, settle

from dibs.core.settings import Tier
from dibs.core.states import State
from dibs.core.task import LeasedTask
from dibs.core.times import HOUR, MS, SECOND
from dibs.engines.decisions.facts import MIXED, Track
from dibs.engines.postgres import PostgresEngine, settling
from dibs.engines.postgres.index_bloat import (
    AHEAD,
    EVERYTHING,
    LAG,
    LONG_AGO,
    START,
    DueWindow,
    FloorProbe,
    ReadFloors,
    RescueFloor,
    arrivals,
)
from dibs.engines.postgres.store import Store
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.values import ClaimRequest, Rescued
from dibs.errors import StoreBusy, StoreUnavailable

BANDED = Track(1, "q", "a", (), 0, 1, False, 50, False)
OTHER = Track(2, "q", "b", (), 0, 1, False, 50, False)
MIXTURE = Track(3, "q", "a", (), 0, 1, False, MIXED[Tier.MEDIUM], False)
TRACKS = [BANDED, OTHER, MIXTURE]
EVERYWHERE = [START] * 3
RANK = 10**15
FROM_THE_BEGINNING = dict.fromkeys((1, 2, 3), START)
NEVER = float("inf")


def slow() -> ReadFloors:
    """Of an engine that knows that reading from the beginning is slow."""
    floors = ReadFloors()
    floors.claimed(SECOND)
    floors.know(TRACKS)
    return floors


def test_quick_claims_read_from_the_beginning() -> None:
    floors = ReadFloors()
    floors.claimed(MS)
    floors.know(TRACKS)
    floors.raise_to({1: RANK}, FROM_THE_BEGINNING)
    assert floors.lows(TRACKS) == EVERYWHERE
    assert not floors.is_due(NEVER)


def test_after_a_slow_claim_marks_are_used() -> None:
    floors = slow()
    floors.raise_to({1: RANK, 3: RANK}, FROM_THE_BEGINNING)
    assert floors.lows(TRACKS) == [RANK, START, START], "mixed streams have no order to rely on"
    floors.claimed(MS)
    assert floors.lows(TRACKS) != EVERYWHERE, "that was quick because of the marks"


def test_marks_move_on_with_what_is_given() -> None:
    floors = slow()
    floors.raise_to({1: RANK, 2: RANK}, FROM_THE_BEGINNING)
    floors.raise_to({1: RANK + 1, 2: RANK - 1}, {1: RANK, 2: RANK})
    assert floors.lows(TRACKS) == [RANK + 1, RANK, START]


def test_marks_move_back_to_what_was_passed_over() -> None:
    floors = slow()
    floors.raise_to({1: RANK, 2: RANK}, FROM_THE_BEGINNING)
    floors.lower_to({1: RANK - 1})
    assert floors.lows(TRACKS) == [RANK - 1, RANK, START]
    floors.raise_to({1: RANK + 1, 2: RANK + 1}, {1: RANK, 2: RANK})
    assert floors.lows(TRACKS) == [RANK - 1, RANK + 1, START], "who began above it has not seen what was there"


def test_looks_take_a_tenth_of_the_time_at_most() -> None:
    floors = slow()
    assert floors.is_due(0.0)
    floors.probed(3 * SECOND, 0.0)
    assert not floors.is_due(29.9)
    assert floors.is_due(30.0)
    floors.probed(6 * MS, 30.0)
    assert not floors.is_due(30.9), "and come once a second at most"
    assert floors.is_due(31.0)


def test_a_quick_look_ends_it() -> None:
    floors = slow()
    floors.raise_to({1: RANK}, FROM_THE_BEGINNING)
    floors.probed(MS, 0.0)
    assert floors.lows(TRACKS) == EVERYWHERE


def test_the_window_is_open_as_long_as_looking_is_quick() -> None:
    window = DueWindow()
    window.learn(START, RANK, MS, due=False)
    assert window.bounds == EVERYTHING


def test_after_a_slow_look_only_what_may_have_come_since_is_looked_at() -> None:
    window = DueWindow()
    window.learn(START, RANK, SECOND, due=False)
    assert window.bounds == (RANK - LAG, AHEAD)
    window.learn(RANK - LAG, RANK + SECOND, MS, due=True)
    assert window.bounds == (RANK - LAG, AHEAD), "there was more due than one claim promotes"
    window.learn(RANK - LAG, RANK + 2 * SECOND, MS, due=False)
    assert window.bounds == (RANK + 2 * SECOND - LAG, AHEAD)


def test_leases_that_ended_long_ago_are_looked_at_once_a_minute() -> None:
    cursor = RescueFloor()
    assert cursor.low(0.0) == START
    cursor.learn(RANK, 0.0, ended=True, full=True)
    assert cursor.low(1.0) == RANK - LONG_AGO
    cursor.learn(RANK + SECOND, 1.0, ended=True, full=False)
    assert cursor.low(59.0) == RANK + SECOND - LONG_AGO
    assert cursor.low(60.0) == START
    cursor.learn(RANK + 2 * SECOND, 2.0, ended=False, full=False)
    assert cursor.low(3.0) == RANK + SECOND - LONG_AGO, "there was more than one step takes back"


def store_of(engine: PostgresEngine) -> Store:
    assert engine._store is not None
    return engine._store


def lookout_of(engine: PostgresEngine) -> FloorProbe:
    return store_of(engine).floor_probe


@asynccontextmanager
async def slow_engine() -> AsyncIterator[tuple[PostgresEngine, FloorProbe]]:
    """An engine that has claimed, and knows that reading from the beginning is slow. It looks when it is told to."""
    async with engines() as (engine,):
        floor_probe = lookout_of(engine)
        await engine.enqueue([new() for _ in range(3)])
        floor_probe.floors.probed(SECOND, NEVER)
        floor_probe.window.probed(SECOND, NEVER)
        await settle(engine, await claim(engine, 1))
        yield engine, floor_probe


async def probe(engine: PostgresEngine, floor_probe: FloorProbe) -> None:
    """Have a claim that gives nothing start a probe, and wait for it."""
    floor_probe.floors.rests_until = floor_probe.window.rests_until = 0.0
    await engine.claim(ClaimRequest(worker="w", sequence=10**6, queues=("default",), limit=0))
    assert floor_probe.running is not None
    await floor_probe.running


def test_what_comes_late_is_given_after_the_next_probe() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe):
            late = new(id="0190163d-8694-739b-aea5-966c26f8ad91")
            await engine.enqueue([late], now=1)  # as if it had been long on its way
            assert late.id not in [task.id for task in await claim(engine, 1)]
            woken: list[bool] = []
            floor_probe.wake = lambda: woken.append(True)
            await probe(engine, floor_probe)
            assert woken == [True]
            floor_probe.floors.probed(SECOND, NEVER)
            assert [task.id for task in await claim(engine, 1)] == [late.id]

    run(test)


async def claim_during_a_probe(
    engine: PostgresEngine, floor_probe: FloorProbe, monkeypatch: pytest.MonkeyPatch
) -> list[LeasedTask]:
    """A claim that has read before the probe does, and gets its answer after it."""
    store = store_of(engine)
    has_read, go_on = asyncio.Event(), asyncio.Event()
    fetch, lease = store.rows_once, Transaction.lease

    async def rows_once(name: str, *parameters: Any) -> list[Any]:
        found = await fetch(name, *parameters)
        if name == "claim" and not has_read.is_set():
            has_read.set()
            await go_on.wait()
        return found

    async def leased(*parameters: Any) -> dict[str, LeasedTask]:
        has_read.set()
        await go_on.wait()
        return await lease(*parameters)

    monkeypatch.setattr(store, "rows_once", rows_once)
    monkeypatch.setattr(Transaction, "lease", leased)
    claiming = asyncio.create_task(claim(engine, 1))
    await has_read.wait()
    monkeypatch.undo()
    await floor_probe.probe(store.catalog, time.monotonic())
    go_on.set()
    return await claiming


def look_slowly(floor_probe: FloorProbe) -> None:
    """From now on every probe reports that it took a second, and is due when `rests_until` is put back."""
    read = floor_probe.rows

    async def rows(name: str, *parameters: Any) -> list[Any]:
        found = await read(name, *parameters)
        return [{**row, "took": SECOND} if name == "heads" else (*tuple(row)[:2], SECOND) for row in found]

    floor_probe.rows = rows
    floor_probe.floors.rests_until = floor_probe.window.rests_until = 0.0


def test_a_claim_under_way_does_not_undo_what_a_look_has_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe):
            late = new(id="0190163d-8694-739b-aea5-966c26f8ad91")
            await engine.enqueue([late], now=1)
            look_slowly(floor_probe)
            assert len(await claim_during_a_probe(engine, floor_probe, monkeypatch)) == 1
            assert floor_probe.floors.is_slow
            assert [task.id for task in await claim(engine, 1)] == [late.id]

    run(test)


@pytest.mark.parametrize("limited", [False, True])
def test_a_claim_under_way_does_not_hide_what_has_fallen_due(limited: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe):
            if limited:
                await set_queue(engine, max_concurrent=100)
                await claim(engine, 0)
            late = new(delay=1)
            await engine.enqueue([late], now=1)
            look_slowly(floor_probe)
            assert len(await claim_during_a_probe(engine, floor_probe, monkeypatch)) == 1
            assert floor_probe.window.is_slow
            floor_probe.floors.probed(MS, NEVER)
            assert late.id in [task.id for task in await claim(engine, 5)]

    run(test)


def test_what_is_locked_is_not_passed_over() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe), connection() as own:
            await claim(engine, 5)
            waiting = new()
            await engine.enqueue([waiting], now=1)
            floor_probe.floors.floors = dict.fromkeys(floor_probe.floors.floors, START)
            async with own.transaction():
                await own.execute(f"SELECT FROM {engine.address.schema}.tasks FOR UPDATE")
                assert not await claim(engine, 5)
            assert [task.id for task in await claim(engine, 5)] == [waiting.id]

    run(test)


def test_claims_do_not_wait_for_a_probe() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe):
            read, go_on = floor_probe.rows, asyncio.Event()

            async def rows(*parameters: Any) -> list[Any]:
                await go_on.wait()
                return await read(*parameters)

            floor_probe.rows, floor_probe.floors.rests_until = rows, 0.0
            assert len(await claim(engine, 1)) == 1
            running = floor_probe.running
            assert running is not None
            assert len(await claim(engine, 1)) == 1
            assert floor_probe.running is running, "one at a time"
            assert not running.done()
            go_on.set()
            await running

    run(test)


def test_where_nothing_waits_claims_begin_with_what_arrives() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe):
            floors = floor_probe.floors
            assert len(await claim(engine, 5)) == 2
            floors.floors = dict.fromkeys(floors.floors, START)
            await probe(engine, floor_probe)
            assert START not in floors.floors.values()
            floors.probed(SECOND, NEVER)
            arrived = new()
            await engine.enqueue([arrived])
            assert [task.id for task in await claim(engine, 5)] == [arrived.id]

    run(test)


def test_a_track_of_any_priority_has_a_floor() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe):
            await engine.enqueue([new(priority=42)])
            assert len(await claim(engine, 5)) == 3
            store = store_of(engine)
            assert {store.catalog.track(number).band for number in floor_probe.floors.floors} == {42, 50}
            assert all(floor > START for floor in floor_probe.floors.floors.values())
            late = new(priority=42)
            await engine.enqueue([late])
            assert [task.id for task in await claim(engine, 5)] == [late.id]

    run(test)


def test_mixed_streams_are_read_from_the_beginning() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe):
            await engine.enqueue([new(priority=42, deadline=4 * 10**15)])
            assert len(await claim(engine, 5)) == 3
            store = store_of(engine)
            bands = {store.catalog.track(number).band for number in floor_probe.floors.floors}
            assert bands == {50}
            assert arrivals(store.catalog, store.catalog.tracks.values(), floor_probe.window).keys() == {
                *floor_probe.floors.floors
            }

    run(test)


def test_a_look_that_fails_is_made_again_later() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe):
            read = floor_probe.rows

            async def rows(*_: Any) -> list[Any]:
                raise StoreUnavailable("not now")

            floor_probe.rows = rows
            await probe(engine, floor_probe)
            assert floor_probe.floors.is_slow
            assert not floor_probe.floors.is_due(floor_probe.floors.rests_until - 0.1)
            floor_probe.rows = read
            await probe(engine, floor_probe)
            assert not floor_probe.floors.is_slow, "the index is sound"
            assert not floor_probe.window.is_slow

    run(test)


def test_closing_ends_a_probe() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe):

            async def rows(*_: Any) -> list[Any]:
                return await asyncio.Event().wait()  # type: ignore[return-value]

            floor_probe.rows, floor_probe.floors.rests_until = rows, 0.0
            await claim(engine, 1)
            running = floor_probe.running
            assert running is not None
            await engine.close()
            assert running.cancelled()

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
            window.probed(SECOND, NEVER)
            window.floor = 1  # whatever is due earlier, has been seen to
            given = await claim(engine, 5)
            assert [task.id for task in given] == [soon[0].id]
            states = [record.state for record in await engine.get([soon[1].id, later.id]) if record is not None]
            assert states == [State.CANCELLED, State.SCHEDULED]
            request = ClaimRequest(worker="w", sequence=10**6, queues=("default",), limit=1)
            next_due_in = (await engine.claim(request)).next_due_in
            assert next_due_in == AHEAD, "it looks again before it can have missed anything"
            window.probed(MS, 0.0)
            next_due_in = (await engine.claim(request)).next_due_in
            assert next_due_in is not None
            assert next_due_in > AHEAD

    run(test)


def test_what_fell_due_before_the_window_is_given_after_the_next_probe() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe):
            late = new(delay=1)
            await engine.enqueue([late], now=1)  # as if it had been long on its way
            await claim(engine, 5)
            (record,) = await engine.get([late.id])
            assert record is not None
            assert record.state is State.SCHEDULED
            floor_probe.floors.probed(MS, 0.0)
            woken: list[bool] = []
            floor_probe.wake = lambda: woken.append(True)
            await probe(engine, floor_probe)
            assert woken == [True]
            floor_probe.window.probed(SECOND, NEVER)
            assert [task.id for task in await claim(engine, 5)] == [late.id]

    run(test)


@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("limited", [False, True])
def test_what_expired_before_the_window_is_not_given(limited: bool, kinds: int) -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe):
            if limited:
                await set_queue(engine, max_concurrent=100)
            await claim(engine, 5)
            late = [new(name=f"kind{n}", expires_at=10) for n in range(kinds)]
            await engine.enqueue(late, now=1)
            floor_probe.floors.probed(MS, NEVER)
            assert floor_probe.window.bounds[0] > 10
            assert not await claim(engine, 5)
            look_slowly(floor_probe)
            await probe(engine, floor_probe)
            assert not await claim(engine, 5)
            records = await engine.get([task.id for task in late])
            assert {record.state for record in records if record is not None} == {State.CANCELLED}

    run(test)


def test_streams_of_earlier_settings_are_not_in_the_order_of_arrival() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe):
            store = store_of(engine)
            (number,) = floor_probe.floors.floors
            assert arrivals(store.catalog, [store.catalog.track(number)], floor_probe.window)
            await set_queue(engine, aging=3600)
            catalog = await store.refresh()
            assert catalog.is_stale(catalog.track(number))
            assert not arrivals(catalog, [catalog.track(number)], floor_probe.window)

    run(test)


def test_a_repeated_claim_looks_at_no_more_than_others() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe):
            await engine.enqueue([new(delay=HOUR)])
            request = ClaimRequest(worker="w", sequence=10**6, queues=("default",), limit=1)
            given = await engine.claim(request)
            floor_probe.window.probed(SECOND, NEVER)
            again = await engine.claim(structs.replace(request, repeat=True))
            assert [task.id for task in again.tasks] == [task.id for task in given.tasks]
            assert again.next_due_in == AHEAD

    run(test)


BLOCK = "SELECT pg_advisory_xact_lock(hashtextextended('\"{schema}\".queues', 0))"
CANCEL = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE pg_blocking_pids(pid) @> ARRAY[$1::int]"


async def cancelled_claim(engine: PostgresEngine) -> None:
    """A claim that the server ends, as it does with what takes too long."""
    async with connection() as own, own.transaction():
        await own.execute(BLOCK.replace("{schema}", engine.address.schema))
        claiming = asyncio.create_task(claim(engine, 1))
        while not await own.fetchval(CANCEL, own.get_server_pid()):
            assert not claiming.done()
        with pytest.raises(StoreBusy):
            await claiming


def test_after_a_claim_that_could_not_end_the_next_ones_begin_with_what_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        async with engines() as (engine,):
            floor_probe, go_on = lookout_of(engine), asyncio.Event()
            read = floor_probe.rows

            async def rows(*parameters: Any) -> list[Any]:
                await go_on.wait()
                return await read(*parameters)

            floor_probe.rows = rows
            monkeypatch.setattr("dibs.engines.postgres.index_bloat.SLOW", 0)
            old, due, arrived = new(), new(delay=1), new()
            await engine.enqueue([old, due], now=1)
            await engine.enqueue([arrived])
            await cancelled_claim(engine)
            assert [task.id for task in await claim(engine, 5)] == [arrived.id]
            assert floor_probe.running is not None
            go_on.set()
            await floor_probe.running
            assert [task.id for task in await claim(engine, 5)] == [old.id, due.id]

    run(test)


def test_where_claims_began_at_marks_one_that_could_not_end_moves_none() -> None:
    async def test() -> None:
        async with slow_engine() as (engine, floor_probe):
            marks, mark = dict.fromkeys(floor_probe.floors.floors, 1), floor_probe.window.floor
            floor_probe.floors.floors = dict(marks)
            await cancelled_claim(engine)
            assert (floor_probe.floors.floors, floor_probe.window.floor) == (marks, mark)

    run(test)


def test_leases_that_ended_lately_are_taken_back_though_looking_at_all_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with engines() as (engine,):
            store = store_of(engine)
            store.opened_at = time.monotonic() - settling.NEWCOMER_SECONDS
            rescue_batch, lows = settling.rescue_batch, []

            async def impatient(transaction: Transaction, low: int, *others: Any) -> Rescued:
                lows.append(low)
                if low == START:
                    raise StoreBusy("too slow")
                return await rescue_batch(transaction, low, *others)

            monkeypatch.setattr(settling, "rescue_batch", impatient)
            await engine.enqueue([new() for _ in range(3)], now=1)
            (long_ago,) = await claim(engine, 1, now=1)
            for sequence in (1, 2):
                request = ClaimRequest(worker="w", sequence=sequence, queues=("default",), limit=1, lease=1)
                (lately,) = (await engine.claim(request)).tasks
                assert (await engine.rescue()).ids == [lately.id]
            assert lows.count(START) == 1, "all of them only once a minute"
            monkeypatch.undo()
            store.rescue_floor.full_at = 0.0
            assert (await engine.rescue()).ids == [long_ago.id]

    run(test)


def test_without_a_store_nothing_is_learnt_about_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with engines() as (engine,):
            store = store_of(engine)
            store.opened_at = time.monotonic() - settling.NEWCOMER_SECONDS

            async def away(*_: Any) -> Any:
                raise StoreUnavailable("not now")

            monkeypatch.setattr(store, "write", away)
            monkeypatch.setattr(store, "rows", away)
            with pytest.raises(StoreUnavailable):
                await engine.rescue()
            assert store.rescue_floor.low(time.monotonic()) == START

    run(test)
