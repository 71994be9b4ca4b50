"""The store and the server themselves: audit log, chores, checks, health and readiness."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct
from starlette.responses import Response

from dibs.client.info import AuditLine, ChoreInfo
from dibs.engines.http.protocol import Scope
from dibs.engines.values import Feature, Finding
from dibs.exporters.process_figures import process_samples
from dibs.exporters.prometheus import exposition
from dibs.observe.metrics import Sample
from dibs.server.caller import Caller
from dibs.server.fields import Limit
from dibs.server.http import Answered, Exchange, Routes
from dibs.version import __version__

__all__ = ["open_routes", "routes"]

routes = Routes("store")
open_routes = Routes("health")
"""What is answered without a token: it says nothing of tasks."""


class AuditQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which lines; `before` is the number (`n`) of the line with which an earlier page ended."""

    limit: Limit = 100
    before: int | None = None
    actor: str | None = None
    act: str | None = None
    target: str | None = None
    since: datetime | None = None


@routes.get("/api/v1/audit", Scope.READ, list[AuditLine], query=AuditQuery)
async def get_audit(exchange: Exchange) -> list[AuditLine]:
    """Get who changed what, newest first."""
    query = exchange.query
    return await exchange.app.aaudit(
        query.limit, before=query.before, actor=query.actor, act=query.act, target=query.target, since=query.since
    )


@routes.get("/api/v1/chores", Scope.READ, list[ChoreInfo])
async def list_chores(exchange: Exchange) -> list[ChoreInfo]:
    """List the chores of the store, with the last run of each."""
    return await exchange.app.achores()


class AboutAnswer(Struct, frozen=True, kw_only=True):
    """The server and its store."""

    version: str
    durability: str
    features: list[Feature]
    identity: str
    tasks: list[str]
    """Types of tasks that the server's app knows: their parameters are checked here."""


@routes.get("/api/v1/about", None, AboutAnswer)
async def get_about(exchange: Exchange) -> AboutAnswer:
    """Get what this server and its store can do."""
    hub = exchange.app.hub
    about = await hub.runner.arun(hub.engine.about())
    return AboutAnswer(
        version=__version__,
        durability=about.durability,
        features=sorted(about.features),
        identity=about.identity,
        tasks=sorted(hub.definitions),
    )


@routes.get("/api/v1/check", Scope.ADMIN, list[Finding])
async def check_store(exchange: Exchange) -> list[Finding]:
    """Check the health of the store, as `dibs doctor` does."""
    hub = exchange.app.hub
    return await hub.runner.arun(hub.engine.check())


@routes.get("/metrics", Scope.READ, str, asks_store=False)
async def get_metrics(exchange: Exchange) -> Response:
    """Get the figures of the store and of this server, for Prometheus.

    They are text, in the form that the scraper accepts. While the store is away, `dibs_store_up` is 0, and what the
    store knows is missing. A token that is limited to queues sees no other queue.
    """
    server, caller = exchange.server, exchange.caller
    of_store = [each for each in await server.store_figures.samples() if is_shown(caller, each)]
    samples = [*of_store, *process_samples(server.app.hub), *server.request_figures.samples()]
    text, content_type = exposition(server.names.bounded(samples), exchange.request.headers.get("accept", ""))
    return Response(text, headers={**exchange.headers, "Content-Type": content_type})


def is_shown(caller: Caller, sample: Sample) -> bool:
    metric = sample.metric
    return "queue" not in metric.labels or caller.serves(sample.labels[metric.labels.index("queue")])


class Health(Struct, frozen=True, omit_defaults=True):
    """Whether it is well, and if not why."""

    status: str
    version: str
    detail: str = ""


@open_routes.get("/health", None, Health, is_open=True)
async def live(exchange: Exchange) -> Health:
    """Ask whether the server lives. The store is not asked."""
    return Health("ok", __version__)


@open_routes.get("/ready", None, Health, others=(503,), is_open=True)
async def ready(exchange: Exchange) -> Answered:
    """Ask whether the server can serve: 503 while its store is away, or while it stops."""
    problem = await exchange.server.readiness.problem()
    if problem is None:
        return Answered(200, Health("ok", __version__))
    return Answered(503, Health("not ready", __version__, problem))
