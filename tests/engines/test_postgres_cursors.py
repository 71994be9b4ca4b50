"""Where claims begin to read when reading from the beginning has become slow: never past what they can't know."""

from __future__ import annotations

from postgres_help import claim, engines, new, run, settle

from dibs.core.states import State
from dibs.core.times import MINUTE, MS, SECOND
from dibs.engines.base import ClaimRequest
from dibs.engines.postgres.catalog import MIXED, Stream
from dibs.engines.postgres.cursors import AHEAD, BEGINNING, EVERYTHING, LAG, Cursors, RescueCursor, Window

BANDED = Stream(1, "q", "a", (), 0, 1, False, 50, False)
OTHER = Stream(2, "q", "b", (), 0, 1, False, 50, False)
MIXTURE = Stream(3, "q", "a", (), 0, 1, False, MIXED, False)
STREAMS = [BANDED, OTHER, MIXTURE]
NUMBERS = [1, 2, 3]
EVERYWHERE = [BEGINNING] * 3
RANK = 10**15


def test_quick_looks_are_always_full() -> None:
    cursors = Cursors()
    for at in range(5):
        assert cursors.lows(STREAMS, at) == EVERYWHERE
        cursors.learn(NUMBERS, {1: RANK, 2: RANK}, MS, at, ended=True, full=True)


def test_after_a_slow_look_marks_are_used_for_a_while() -> None:
    cursors = Cursors()
    cursors.learn(NUMBERS, {1: RANK, 3: RANK}, SECOND, 0.0, ended=True, full=True)
    assert cursors.lows(STREAMS, 1.0) == [RANK - LAG, BEGINNING, BEGINNING], "mixed streams have no order to rely on"
    assert cursors.lows(STREAMS, 9.9) != EVERYWHERE
    assert cursors.lows(STREAMS, 10.0) == EVERYWHERE, "for at most a tenth of the time"


def test_marks_move_on_with_what_is_given() -> None:
    cursors = Cursors()
    cursors.learn(NUMBERS, {1: RANK, 2: RANK}, SECOND, 0.0, ended=True, full=True)
    cursors.learn(NUMBERS, {1: RANK + 5 * SECOND}, MS, 1.0, ended=False, full=False)
    cursors.learn(NUMBERS, {2: RANK - SECOND}, MS, 1.0, ended=False, full=False)
    assert cursors.lows(STREAMS, 2.0) == [RANK + 5 * SECOND - LAG, RANK - LAG, BEGINNING]


def test_a_full_look_may_move_a_mark_back() -> None:
    cursors = Cursors()
    cursors.learn(NUMBERS, {1: RANK, 2: RANK}, SECOND, 0.0, ended=True, full=True)
    cursors.learn(NUMBERS, {1: RANK - 100 * SECOND}, SECOND, 10.0, ended=False, full=True)
    assert cursors.lows(STREAMS, 11.0) == [RANK - 100 * SECOND - LAG, BEGINNING, BEGINNING]


def test_a_sound_index_ends_it() -> None:
    cursors = Cursors()
    cursors.learn(NUMBERS, {1: RANK}, SECOND, 0.0, ended=True, full=True)
    cursors.learn(NUMBERS, {1: RANK}, MS, 10.0, ended=True, full=True)
    assert cursors.lows(STREAMS, 10.1) == EVERYWHERE


def test_streams_rest_apart() -> None:
    cursors = Cursors()
    cursors.learn([1], {1: RANK}, SECOND, 0.0, ended=True, full=True)
    assert cursors.are_used([BANDED], 1.0)
    assert not cursors.are_used([BANDED, OTHER], 1.0), "nobody has read the other one from the beginning"


def test_leases_that_ended_long_ago_are_looked_at_once_a_minute() -> None:
    cursor = RescueCursor()
    assert cursor.low(0.0) == BEGINNING
    cursor.learn(RANK, 0.0, ended=True, full=True)
    assert cursor.low(1.0) == RANK - MINUTE
    cursor.learn(RANK + SECOND, 1.0, ended=True, full=False)
    assert cursor.low(59.0) == RANK + SECOND - MINUTE
    assert cursor.low(60.0) == BEGINNING
    cursor.learn(RANK + SECOND, 2.0, ended=False, full=False)
    assert cursor.low(3.0) == BEGINNING, "there was more than one step takes back"


def test_what_comes_late_is_given_at_the_next_full_look() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            store = engine._store
            assert store is not None
            late = new(id="0190163d-8694-739b-aea5-966c26f8ad91")
            await engine.enqueue([new() for _ in range(3)])
            await settle(engine, await claim(engine, 1))
            store.cursors.took = SECOND
            store.cursors.rests_until = dict.fromkeys(store.cursors.rests_until, float("inf"))
            await engine.enqueue([late], now=1)  # as if it had been long on its way
            given = await claim(engine, 1)
            assert [task.id for task in given] != [late.id]
            store.cursors.rests_until = {}
            assert [task.id for task in await claim(engine, 1)] == [late.id]

    run(test)


def test_the_window_is_open_as_long_as_looking_is_quick() -> None:
    window = Window()
    for at in range(3):
        assert window.bounds(at) == EVERYTHING
        window.learn(RANK, MS, at, due=False, full=True)


def test_after_a_slow_look_only_what_may_have_come_since_is_looked_at() -> None:
    window = Window()
    window.learn(RANK, SECOND, 0.0, due=False, full=True)
    assert window.bounds(1.0) == (RANK - LAG, AHEAD)
    window.learn(RANK + SECOND, MS, 1.0, due=True, full=False)
    assert window.bounds(2.0) == (RANK - LAG, AHEAD), "there was more due than one claim promotes"
    window.learn(RANK + 2 * SECOND, MS, 2.0, due=False, full=False)
    assert window.bounds(3.0) == (RANK + 2 * SECOND - LAG, AHEAD)
    assert window.bounds(10.0) == EVERYTHING, "for at most a tenth of the time"


def test_what_falls_due_or_expires_within_a_narrow_window_is_seen_to() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            store = engine._store
            assert store is not None
            assert not await claim(engine, 1)
            soon = [new(delay=1), new(expires_at=1)]
            later = new(delay=3600 * SECOND)
            await engine.enqueue([*soon, later])
            store.window.took, store.window.rests_until = SECOND, float("inf")
            store.window.mark = 1  # whatever is due earlier, has been seen to
            given = await claim(engine, 5)
            assert [task.id for task in given] == [soon[0].id]
            states = [record.state for record in await engine.get([soon[1].id, later.id]) if record is not None]
            assert states == [State.CANCELLED, State.SCHEDULED]
            request = ClaimRequest(worker="w", sequence=10**6, queues=("default",), limit=1)
            next_due_in = (await engine.claim(request)).next_due_in
            assert next_due_in == AHEAD, "it looks again before it can have missed anything"
            store.window.rests_until = 0.0
            next_due_in = (await engine.claim(request)).next_due_in
            assert next_due_in is not None
            assert next_due_in > AHEAD

    run(test)
