"""Queues: create, configure, pause, resume, drain, delete; their bound, next tasks, tenants, limits and figures."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dibs.client.queues import QueueInfo, TenantInfo
from dibs.client.series import Point
from dibs.client.stats import QueueStats
from dibs.core.limits import LimitState
from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import QueueState
from dibs.engines.http.protocol import Scope
from dibs.errors import InvalidOption, Refused
from dibs.server.fields import Change, Limit, SeriesQuery, TaskView, WindowQuery, task_view
from dibs.server.http import Exchange, Routes

__all__ = ["routes"]

QUEUE = "/api/v1/queues/{queue}"
routes = Routes("queues")


class BoundView(Struct, frozen=True, kw_only=True):
    """How long a task of this queue can be overtaken by more urgent ones; null: for ever."""

    seconds: float | None
    words: str


class QueueView(Struct, frozen=True, kw_only=True):
    """A queue as it was when it was read. Durations among its settings are in microseconds."""

    name: str
    state: QueueState
    settings: QueueSettings
    counts: dict[State, int]
    stale: int
    bound: BoundView


def queue_view(info: QueueInfo) -> QueueView:
    worst = info.bound.worst
    return QueueView(
        name=info.name,
        state=info.state,
        settings=info.settings,
        counts=info.counts,
        stale=info.stale,
        bound=BoundView(seconds=None if worst is None else worst.total_seconds(), words=str(info.bound)),
    )


class NewQueue(Struct, frozen=True, forbid_unknown_fields=True):
    """A queue with settings other than the defaults."""

    name: str
    settings: dict[str, Any] = {}
    """As `app.queues.set` takes them: durations in seconds."""


class QueueConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings to change, as `app.queues.set` takes them: durations in seconds; null goes back to the default."""

    settings: dict[str, Any]


@routes.get("/api/v1/queues", Scope.READ, list[QueueView])
async def list_queues(exchange: Exchange) -> list[QueueView]:
    """List all queues, with exact counts."""
    return [queue_view(info) for info in await exchange.app.queues.alist()]


@routes.post("/api/v1/queues", Scope.OPERATE, QueueView, 409, body=NewQueue, status=201)
async def create_queue(exchange: Exchange) -> QueueView:
    """Create a queue."""
    given, queues = exchange.body, exchange.app.queues
    hub = exchange.app.hub
    if any(each.name == given.name for each in await hub.runner.arun(hub.engine.queues())):
        raise Refused(f"there is a queue {given.name!r} already: change it with PATCH.")
    return queue_view(await queues.aset(given.name, **checked(given.settings)))


def checked(settings: dict[str, Any]) -> dict[str, Any]:
    if "name" in settings or "self" in settings:
        raise InvalidOption("a queue has no setting called name.")
    return settings


@routes.get(QUEUE, Scope.READ, QueueView, 404)
async def get_queue(exchange: Exchange) -> QueueView:
    """Get a queue."""
    return queue_view(await exchange.app.queues.aget(exchange.path("queue")))


@routes.patch(QUEUE, Scope.OPERATE, QueueView, 404, body=QueueConfig)
async def configure_queue(exchange: Exchange) -> QueueView:
    """Change the settings of a queue."""
    queues, name = exchange.app.queues, exchange.path("queue")
    await queues.aget(name)
    return queue_view(await queues.aset(name, **checked(exchange.body.settings)))


class ForceQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether to delete a queue that has unfinished tasks: waiting ones become dead, and can be replayed elsewhere."""

    force: bool = False


@routes.delete(QUEUE, Scope.OPERATE, None, 404, 409, query=ForceQuery, status=204)
async def delete_queue(exchange: Exchange) -> None:
    """Delete a queue; with unfinished tasks only by force."""
    await exchange.app.queues.adelete(exchange.path("queue"), force=exchange.query.force)


@routes.post(f"{QUEUE}/pause", Scope.OPERATE, Change, 404)
async def pause_queue(exchange: Exchange) -> Change:
    """Pause a queue: it hands out nothing, and still takes tasks."""
    return Change(await exchange.app.queues.apause(exchange.path("queue")))


@routes.post(f"{QUEUE}/resume", Scope.OPERATE, Change, 404)
async def resume_queue(exchange: Exchange) -> Change:
    """Make a queue active again."""
    return Change(await exchange.app.queues.aresume(exchange.path("queue")))


@routes.post(f"{QUEUE}/drain", Scope.OPERATE, Change, 404)
async def drain_queue(exchange: Exchange) -> Change:
    """Drain a queue: it takes no new tasks, and finishes those it has."""
    return Change(await exchange.app.queues.adrain(exchange.path("queue")))


@routes.get(f"{QUEUE}/bound", Scope.READ, BoundView, 404)
async def get_bound(exchange: Exchange) -> BoundView:
    """Ask how long a task of a queue can be overtaken."""
    return queue_view(await exchange.app.queues.aget(exchange.path("queue"))).bound


class PeekQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many at most."""

    limit: Limit = 10


@routes.get(f"{QUEUE}/peek", Scope.READ, list[TaskView], 404, query=PeekQuery)
async def peek_queue(exchange: Exchange) -> list[TaskView]:
    """Look at the next tasks of a queue, in the order in which they will start."""
    name = exchange.path("queue")
    await exchange.app.queues.aget(name)
    return [task_view(info) for info in await exchange.app.apeek(name, exchange.query.limit)]


@routes.get(f"{QUEUE}/tenants", Scope.READ, list[TenantInfo], 404, query=PeekQuery)
async def list_tenants(exchange: Exchange) -> list[TenantInfo]:
    """List the tenants of a fair queue that have pending tasks, in the order in which they are served."""
    return await exchange.app.queues.atenants(exchange.path("queue"), exchange.query.limit)


@routes.get(f"{QUEUE}/limits", Scope.READ, list[LimitState], 404)
async def list_full_limits(exchange: Exchange) -> list[LimitState]:
    """List the limits that hold back some of a queue's next tasks."""
    await exchange.app.queues.aget(exchange.path("queue"))
    return await exchange.app.queues.afull_limits(exchange.path("queue"))


@routes.get(f"{QUEUE}/stats", Scope.READ, QueueStats, 404, query=WindowQuery)
async def get_queue_stats(exchange: Exchange) -> QueueStats:
    """Get what is in a queue, and what it did over a window of time."""
    await exchange.app.queues.aget(exchange.path("queue"))
    return await exchange.app.astats(exchange.path("queue"), exchange.query.window)


@routes.get(f"{QUEUE}/series", Scope.READ, list[Point], 404, query=SeriesQuery)
async def get_queue_series(exchange: Exchange) -> list[Point]:
    """Get what a queue did over time."""
    await exchange.app.queues.aget(exchange.path("queue"))
    query = exchange.query
    return await exchange.app.aseries(
        exchange.path("queue"), start=query.start, end=query.end, resolution=query.resolution
    )
