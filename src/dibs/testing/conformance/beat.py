"""beat: a sign of life introduces a worker, and tells it the state to obey."""

from __future__ import annotations

from dibs.core.task import WorkerState
from dibs.core.times import MINUTE, SECOND
from dibs.testing.conformance.harness import Harness


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
        buffered=2,
        lives_for=MINUTE,
    )
    assert await harness.engine.beat(beat, now=harness.now) is WorkerState.ACTIVE
    record = await harness.worker("w")
    assert record is not None
    for name in (
        "id",
        "host",
        "pid",
        "version",
        "queues",
        "names",
        "capabilities",
        "concurrency",
        "running",
        "buffered",
    ):
        assert getattr(record, name) == getattr(beat, name)
    assert (record.state, record.started_at, record.seen_at) == (WorkerState.ACTIVE, harness.now, harness.now)
    assert record.expires_at == harness.now + MINUTE


async def test_a_worker_that_runs_everything(harness: Harness) -> None:
    await harness.beat("w", names=None)
    record = await harness.worker("w")
    assert record is not None
    assert record.names is None


async def test_beats_keep_the_start(harness: Harness) -> None:
    await harness.beat("w", running=1)
    started = harness.now
    harness.later(SECOND)
    await harness.beat("w", running=2)
    record = await harness.worker("w")
    assert record is not None
    assert (record.started_at, record.seen_at, record.running) == (started, harness.now, 2)
    assert len(await harness.engine.workers()) == 1


async def test_dead_worker_that_beats_is_active(harness: Harness) -> None:
    await harness.beat("w", lives_for=SECOND)
    harness.later(MINUTE)
    await harness.engine.rescue(now=harness.now)
    assert await harness.engine.beat(harness.new_beat("w"), now=harness.now) is WorkerState.ACTIVE
