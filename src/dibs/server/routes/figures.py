"""Figures of all queues together."""

from __future__ import annotations

from msgspec import Struct

from dibs.client.series import Point
from dibs.client.stats import QueueStats
from dibs.core.settings import Tier
from dibs.core.task import WorkerState
from dibs.engines.http.protocol import Scope
from dibs.server.fields import SeriesQuery, WindowQuery
from dibs.server.http import Exchange, Routes

__all__ = ["routes"]

routes = Routes("figures")


@routes.get("/api/v1/stats", Scope.READ, QueueStats, query=WindowQuery)
async def get_stats(exchange: Exchange) -> QueueStats:
    """Get what is in all queues, and what they did over a window of time.

    `desired_slots` is how many slots would keep up with what comes in.
    """
    return await exchange.app.astats(None, exchange.query.window)


@routes.get("/api/v1/series", Scope.READ, list[Point], query=SeriesQuery)
async def get_series(exchange: Exchange) -> list[Point]:
    """Get what all queues did over time."""
    query = exchange.query
    return await exchange.app.aseries(None, start=query.start, end=query.end, resolution=query.resolution)


class Depth(Struct, frozen=True):
    """The pending tasks of a tier."""

    depth: int
    oldest_age_seconds: float | None


class Capacity(Struct, frozen=True, kw_only=True):
    """Workers by state, and their slots."""

    active: int
    paused: int
    draining: int
    dead: int
    total_capacity: int
    used_capacity: int


class Throughput(Struct, frozen=True, kw_only=True):
    """Runs that ended in the last minute."""

    completed_last_minute: int
    failed_last_minute: int


class Overview(Struct, frozen=True, kw_only=True):
    """All queues by tier, workers and throughput."""

    queues: dict[str, Depth]
    workers: Capacity
    throughput: Throughput


@routes.get("/api/v1/queue/stats", Scope.READ, Overview)
async def get_overview(exchange: Exchange) -> Overview:
    """Get depth and age by tier, workers and throughput, in one answer."""
    app = exchange.app
    stats = await app.astats(None, 60)
    workers = await app.workers.alist()
    states = [worker.state for worker in workers]
    alive = [worker for worker in workers if worker.state is not WorkerState.DEAD]
    return Overview(
        queues={
            str(tier): Depth(stats.priority_distribution[tier], stats.oldest_by_tier[tier]) for tier in reversed(Tier)
        },
        workers=Capacity(
            **{str(state): states.count(state) for state in WorkerState},
            total_capacity=sum(worker.concurrency for worker in alive),
            used_capacity=sum(worker.running for worker in alive),
        ),
        throughput=Throughput(completed_last_minute=stats.completed, failed_last_minute=stats.failed),
    )
