"""The measurements of `dibs bench`: each a function from an app to a figure, and all of them in a row."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from dibs.benchmark.app import QUEUES
from dibs.client.app import Dibs
from dibs.core.states import State
from dibs.engines.open import shown_url
from dibs.engines.values import Feature
from dibs.errors import DibsError
from dibs.version import __version__
from dibs.worker_processes import WorkerProcesses

__all__ = ["completed", "drain", "enqueue_bulk", "enqueue_one", "latency", "measure_all", "wait_for", "working"]

MOST_SINGLE = 5_000
"""The most tasks that are enqueued one by one."""

Announce = Callable[[str], AbstractContextManager[object]]
"""Says what is being measured, for as long as it is."""

CALLERS = 64
PARTS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
BULK = 1000
STALLED = 60.0
"""Seconds without a settled task after which draining has failed."""

LOOK = 0.02
"""Seconds between two looks at the counts: each look slows what is measured a little."""

IDLE = 0.01
"""Seconds between two latency samples: long enough for the worker to have gone back to waiting."""


def enqueue_one(app: Dibs, count: int) -> float:
    """Blocking calls, one after another, per second."""
    task = app.task_named("bench.nothing").using(queue="bench-enqueue")
    task.enqueue(number=0)  # opens the store
    began = time.perf_counter()
    for number in range(count):
        task.enqueue(number=number)
    return count / (time.perf_counter() - began)


def enqueue_concurrent(app: Dibs, count: int) -> float:
    """Blocking calls from 64 threads at once, per second."""
    task = app.task_named("bench.nothing").using(queue="bench-enqueue")
    each = max(1, count // CALLERS)
    barrier = threading.Barrier(CALLERS + 1)

    def call() -> None:
        barrier.wait()
        for number in range(each):
            task.enqueue(number=number)

    with ThreadPoolExecutor(CALLERS) as pool:
        calls = [pool.submit(call) for _ in range(CALLERS)]
        barrier.wait()
        began = time.perf_counter()
        for each_call in calls:
            each_call.result()
        return CALLERS * each / (time.perf_counter() - began)


def enqueue_bulk(app: Dibs, count: int) -> float:
    """`enqueue_many` of 1,000 calls at a time, per second; the time includes making the calls."""
    task = app.task_named("bench.nothing").using(queue="bench-enqueue")
    began = time.perf_counter()
    for start in range(0, count, BULK):
        app.enqueue_many([task.call(number=number) for number in range(start, min(start + BULK, count))])
    return count / (time.perf_counter() - began)


def drain(app: Dibs, logs: Path, count: int, processes: int = 1, concurrency: int = 200) -> float:
    """Tasks per second from the moment that the queue is opened to waiting workers until the last one is settled."""
    task = app.task_named("bench.nothing")
    app.queues.set("bench-drain")
    app.queues.pause("bench-drain")
    before = completed(app, "bench-drain")
    for start in range(0, count, BULK):
        app.enqueue_many([task.call(number=number) for number in range(start, min(start + BULK, count))])
    with working(app, logs, processes, concurrency):
        began = time.perf_counter()
        app.queues.resume("bench-drain")
        return count / (wait_for(app, "bench-drain", before + count) - began)


def wait_for(app: Dibs, queue: str, wanted: int) -> float:
    """When `wanted` tasks of a queue had completed; counts cost the store next to nothing."""
    seen, moved_at = -1, time.perf_counter()
    while True:
        done, now = completed(app, queue), time.perf_counter()
        if done >= wanted:
            return now
        if done != seen:
            seen, moved_at = done, now
        if now - moved_at > STALLED:
            raise DibsError(f"draining stalled at {done:,} tasks.")
        time.sleep(LOOK)


def completed(app: Dibs, queue: str) -> int:
    return app.hub.runner.run(app.hub.engine.counts()).tasks.get(queue, {}).get(State.COMPLETED, 0)


@contextmanager
def working(app: Dibs, logs: Path, processes: int, concurrency: int) -> Iterator[None]:
    """Workers in processes of their own, or in this one where the store can't be shared."""
    if Feature.SHARED not in app.hub.engine.features:
        with app.worker(queues=QUEUES[1:], concurrency=concurrency):
            yield
        return
    with WorkerProcesses("dibs.benchmark.app:app", app.url, logs, concurrency, QUEUES[1:]) as workers:
        workers.start(processes)
        workers.ready(app)
        yield
        workers.stop()


def latency(app: Dibs, logs: Path, samples: int) -> dict[str, float]:
    """Milliseconds from just before a blocking enqueue until the task's first line runs in an idle worker."""
    task = app.task_named("bench.started")
    values = []
    with working(app, logs, 1, 10):
        task.enqueue().result(timeout=STALLED)
        for _ in range(samples):
            time.sleep(IDLE)
            sent = time.time()
            started = task.enqueue().result(timeout=STALLED)
            values.append((started - sent) * 1000)
    values.sort()
    return {name: round(values[int(part * len(values))], 2) for name, part in PARTS.items()}


def measure_all(
    app: Dibs, logs: Path, count: int, processes: int, concurrency: int, samples: int, announce: Announce
) -> dict[str, Any]:
    """Every figure, and what it was measured on."""
    few = min(count, MOST_SINGLE)
    with announce("enqueueing one at a time"):
        one = enqueue_one(app, few)
    with announce("enqueueing from 64 threads"):
        many = enqueue_concurrent(app, few)
    with announce("enqueueing in bulk"):
        bulk = enqueue_bulk(app, count)
    with announce("draining"):
        rate = drain(app, logs, count, processes, concurrency)
    with announce("start latency"):
        starts = latency(app, logs, samples)
    return {
        "enqueue_one_per_second": round(one),
        "enqueue_concurrent_per_second": round(many),
        "enqueue_bulk_per_second": round(bulk),
        "drain_per_second": round(rate),
        "latency_ms": starts,
        "tasks": count,
        "processes": processes,
        "concurrency": concurrency,
        "url": shown_url(app.url),
        "durability": app.hub.runner.run(app.hub.engine.about()).durability,
        "versions": {"dibs": __version__, "python": platform.python_version(), "system": platform.platform()},
    }
