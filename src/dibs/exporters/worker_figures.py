"""The figures of one worker, as samples."""

from __future__ import annotations

from collections.abc import Iterator

from dibs.observe import metrics
from dibs.observe.metrics import Sample
from dibs.worker.worker import Worker

__all__ = ["worker_samples"]


def worker_samples(worker: Worker) -> Iterator[Sample]:
    """What is known in its process. Nothing is asked of the store."""
    stats = worker.stats()
    yield Sample(metrics.WORKER_LIVE, (), worker.not_live() is None)
    yield Sample(metrics.WORKER_READY, (), worker.not_ready() is None)
    yield Sample(metrics.WORKER_STATE, (stats.state,), 1)
    yield Sample(metrics.WORKER_SLOTS, (), worker.settings.concurrency)
    yield Sample(metrics.WORKER_BUSY, (), stats.running)
    yield Sample(metrics.WORKER_STUCK, (), stats.leaked)
    yield Sample(metrics.WORKER_BUFFERED, (), stats.buffered)
    yield Sample(metrics.WORKER_UNSETTLED, (), stats.unsettled)
    yield Sample(metrics.WORKER_LOST, (), stats.lost)
    yield Sample(metrics.WORKER_REFUSED, (), stats.refused)
    for (queue, name, outcome), number in worker.figures.runs():
        yield Sample(metrics.WORKER_RUNS, (queue, name, outcome), number)
    for labels, seconds in worker.figures.run_seconds():
        yield Sample(metrics.WORKER_RUN_SECONDS, labels, seconds)
    for (tier, state), seconds in worker.figures.task_seconds():
        yield Sample(metrics.WORKER_TASK_SECONDS, (tier, state), seconds)
