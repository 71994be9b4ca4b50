"""Acts on all tasks that match: counted first, then done in the background."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from dibs.client.steps import StepInfo
from dibs.client.tasks import Acted, Bulk, Filter
from dibs.engines.http.protocol import Scope
from dibs.server.fields import Limit, TaskEdit, TaskFilter, filter_of
from dibs.server.http import Answered, Exchange, Routes

__all__ = ["BulkAct", "act_on_all", "routes"]

routes = Routes("bulk")


class BulkAct(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do to all tasks that match. As long as `dry_run` is true, they are only counted."""

    action: Literal["cancel", "edit", "replay", "purge"]
    filter: TaskFilter
    dry_run: bool = True
    reason: str = ""
    """For cancel."""
    queue: str | None = None
    """For replay: into this queue."""
    reset: bool = True
    """For replay: count attempts and losses from zero."""
    changes: TaskEdit = TaskEdit()
    """For edit."""


@routes.post("/api/v1/tasks/bulk", Scope.OPERATE, Acted, body=BulkAct, others=(202,))
async def act_on_matching(exchange: Exchange) -> Answered:
    """Cancel, edit, replay or purge all tasks that match.

    First a dry run, which is the default: status 200 with how many match. Then, with `dry_run` false, it begins: status
    202, and `/api/v1/steps/{step}` says how far it has come. It goes on whatever becomes of this server.
    """
    return await act_on_all(exchange, exchange.body, filter_of(exchange.body.filter))


async def act_on_all(exchange: Exchange, act: BulkAct, chosen: Filter) -> Answered:
    tasks, how = exchange.app.tasks, Bulk(dry_run=act.dry_run, wait=False)
    if act.action == "cancel":
        acted = await tasks.acancel_matching(chosen, reason=act.reason, **how)
    elif act.action == "edit":
        acted = await tasks.aedit_matching(chosen, dry_run=act.dry_run, wait=False, **act.changes.changes())
    elif act.action == "replay":
        acted = await tasks.areplay_matching(chosen, queue=act.queue, reset=act.reset, **how)
    else:
        acted = await tasks.apurge_matching(chosen, **how)
    return Answered(200 if act.dry_run else 202, acted)


class StepsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many at most."""

    limit: Limit = 50


@routes.get("/api/v1/steps", Scope.READ, list[StepInfo], query=StepsQuery)
async def list_steps(exchange: Exchange) -> list[StepInfo]:
    """List what goes on in the background, newest first."""
    return await exchange.app.steps.alist(exchange.query.limit)


@routes.get("/api/v1/steps/{step}", Scope.READ, StepInfo, 404)
async def get_step(exchange: Exchange) -> StepInfo:
    """Get how far a background step has come."""
    return await exchange.app.steps.aget(exchange.path("step"))
