"""Workers as operators see them: list, pause, resume, drain."""

from __future__ import annotations

from dibs.client.workers import WorkerInfo
from dibs.engines.http.protocol import Scope
from dibs.server.fields import Change
from dibs.server.http import Exchange, Routes

__all__ = ["routes"]

WORKER = "/api/v1/workers/{worker}"
routes = Routes("workers")


@routes.get("/api/v1/workers", Scope.READ, list[WorkerInfo])
async def list_workers(exchange: Exchange) -> list[WorkerInfo]:
    """List all workers; dead ones are kept for a day."""
    return await exchange.app.workers.alist()


@routes.post(f"{WORKER}/pause", Scope.OPERATE, Change, 404, 409)
async def pause_worker(exchange: Exchange) -> Change:
    """Let a worker claim nothing more until it is resumed."""
    return Change(await exchange.app.workers.apause(exchange.path("worker")))


@routes.post(f"{WORKER}/resume", Scope.OPERATE, Change, 404, 409)
async def resume_worker(exchange: Exchange) -> Change:
    """Let a worker claim again."""
    return Change(await exchange.app.workers.aresume(exchange.path("worker")))


@routes.post(f"{WORKER}/drain", Scope.OPERATE, Change, 404, 409)
async def drain_worker(exchange: Exchange) -> Change:
    """Let a worker finish what it runs, and then leave."""
    return Change(await exchange.app.workers.adrain(exchange.path("worker")))
