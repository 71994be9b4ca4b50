"""beat, leave, workers: who is there, and the state that each was told to take."""

from __future__ import annotations

from dibs.core.task import WorkerState
from dibs.core.times import HOUR, MINUTE, SECOND
from dibs.engines.values import Changed, WorkerRecord
from dibs.testing.conformance.harness import Harness


async def find(harness: Harness, worker: str) -> WorkerRecord | None:
    return next((record for record in await harness.engine.workers() if record.id == worker), None)


async def test_beat_introduces_a_worker(harness: Harness) -> None:
    beat = harness.new_beat(
        "w",
        host="box",
        pid=7,
        version="1.2",
        queues=("a", "b"),
        names=("x",),
        capabilities=("gpu",),
        concurrency=8,
        running=3,
        lives_for=MINUTE,
    )
    assert await harness.engine.beat(beat, now=harness.now) is WorkerState.ACTIVE
    record = await find(harness, "w")
    assert record is not None
    for name in ("id", "host", "pid", "version", "queues", "names", "capabilities", "concurrency", "running"):
        assert getattr(record, name) == getattr(beat, name)
    assert (record.state, record.started_at, record.seen_at) == (WorkerState.ACTIVE, harness.now, harness.now)
    assert record.expires_at == harness.now + MINUTE


async def test_a_worker_that_runs_everything(harness: Harness) -> None:
    await harness.beat("w", names=None)
    record = await find(harness, "w")
    assert record is not None
    assert record.names is None


async def test_beats_keep_the_start(harness: Harness) -> None:
    await harness.beat("w", running=1)
    started = harness.now
    harness.later(SECOND)
    await harness.beat("w", running=2)
    record = await find(harness, "w")
    assert record is not None
    assert (record.started_at, record.seen_at, record.running) == (started, harness.now, 2)
    assert len(await harness.engine.workers()) == 1


async def test_a_state_is_obeyed_at_the_next_beat(harness: Harness) -> None:
    beat = harness.new_beat("w")
    await harness.engine.beat(beat, now=harness.now)
    for state in (WorkerState.PAUSED, WorkerState.DRAINING, WorkerState.ACTIVE):
        assert await harness.engine.set_worker_state("w", state, now=harness.now) is Changed.DONE
        assert await harness.engine.set_worker_state("w", state, now=harness.now) is Changed.UNCHANGED
        assert await harness.engine.beat(beat, now=harness.now) is state
        record = await find(harness, "w")
        assert record is not None
        assert record.state is state


async def test_unknown_worker(harness: Harness) -> None:
    answer = await harness.engine.set_worker_state("nobody", WorkerState.PAUSED, now=harness.now)
    assert answer is Changed.UNKNOWN
    assert await harness.engine.workers() == []


async def test_leaving_in_good_order(harness: Harness) -> None:
    await harness.beat("stays", lives_for=HOUR)
    await harness.beat("leaves", lives_for=HOUR)
    await harness.engine.leave("leaves", now=harness.now)
    await harness.engine.leave("leaves", now=harness.now)
    await harness.engine.leave("was never there", now=harness.now)
    alive = [record.id for record in await harness.engine.workers() if record.state is not WorkerState.DEAD]
    assert alive == ["stays"]


async def test_dead_worker_that_beats_is_active(harness: Harness) -> None:
    await harness.beat("w", lives_for=SECOND)
    harness.later(MINUTE)
    await harness.engine.rescue(now=harness.now)
    assert await harness.engine.beat(harness.new_beat("w"), now=harness.now) is WorkerState.ACTIVE
