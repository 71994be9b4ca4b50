"""The figures of this process, as samples: its calls of the store, its connections, and the breaker."""

from __future__ import annotations

from collections.abc import Iterator

from dibs.observe import metrics
from dibs.observe.distribution import distribution_of
from dibs.observe.metrics import Sample
from dibs.runtime.hub import Hub

__all__ = ["process_samples"]

HEARTBEATS = ("beat", "extend")


def process_samples(hub: Hub) -> Iterator[Sample]:
    """What is known here. Nothing is asked of the store."""
    meters = hub.meters.read()
    for verb, meter in meters.items():
        yield Sample(metrics.STORE_CALLS, (verb, "ok"), meter.calls - meter.errors)
        yield Sample(metrics.STORE_CALLS, (verb, "error"), meter.errors)
        yield Sample(metrics.STORE_ITEMS, (verb,), meter.items)
        yield Sample(metrics.STORE_SECONDS, (verb,), distribution_of(meter.took))
    yield Sample(metrics.HEARTBEAT_FAILURES, (), sum(meters[verb].errors for verb in HEARTBEATS if verb in meters))
    yield Sample(metrics.BREAKER_OPEN, (), hub.breaker.is_open)
    yield Sample(metrics.BREAKER_REFUSED, (), hub.breaker.refused)
    pool = hub.engine.pool_use()
    if pool is not None:
        yield Sample(metrics.POOL_SIZE, (), pool.size)
        yield Sample(metrics.POOL_CONNECTIONS, ("busy",), pool.busy)
        yield Sample(metrics.POOL_CONNECTIONS, ("idle",), pool.idle)
        yield Sample(metrics.POOL_WAITING, (), pool.waiting)
        yield Sample(metrics.POOL_WAITS, (), pool.waits)
        yield Sample(metrics.POOL_WAITED, (), pool.waited)
        yield Sample(metrics.POOL_EXHAUSTED, (), pool.exhausted)
