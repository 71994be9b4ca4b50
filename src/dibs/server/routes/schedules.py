"""Schedules: recurring tasks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from dibs.client.schedule_template import as_template, make_recurrence
from dibs.client.schedules import ScheduleInfo
from dibs.engines.http.protocol import Scope
from dibs.server.fields import Change, Submission, Submitted, new_task
from dibs.server.http import Exchange, Routes

__all__ = ["routes"]

SCHEDULE = "/api/v1/schedules/{schedule}"
routes = Routes("schedules")


class NewSchedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When to enqueue which task: by `cron`, or `every` so many seconds."""

    task: Submission
    cron: str | None = None
    every: Annotated[float, Meta(gt=0)] | None = None
    tz: str | None = None
    jitter: Annotated[float, Meta(ge=0)] | None = None
    catch_up: str | None = None
    catch_up_limit: int | None = None
    overlap: str | None = None


@routes.get("/api/v1/schedules", Scope.READ, list[ScheduleInfo])
async def list_schedules(exchange: Exchange) -> list[ScheduleInfo]:
    """List all schedules."""
    return await exchange.app.schedules.alist()


@routes.get(SCHEDULE, Scope.READ, ScheduleInfo, 404)
async def get_schedule(exchange: Exchange) -> ScheduleInfo:
    """Get a schedule."""
    return await exchange.app.schedules.aget(exchange.path("schedule"))


@routes.put(SCHEDULE, Scope.OPERATE, ScheduleInfo, body=NewSchedule)
async def put_schedule(exchange: Exchange) -> ScheduleInfo:
    """Create a schedule, or replace it."""
    given, app = exchange.body, exchange.app
    names = ("every", "tz", "jitter", "catch_up", "catch_up_limit", "overlap")
    options: Any = {name: value for name in names if (value := getattr(given, name)) is not None}
    recurrence = make_recurrence(given.cron, options)
    template = as_template(app.hub, *new_task(app, given.task))
    return await app.schedules.aput(exchange.path("schedule"), recurrence, template)


@routes.delete(SCHEDULE, Scope.OPERATE, None, 404, status=204)
async def delete_schedule(exchange: Exchange) -> None:
    """Delete a schedule; its tasks stay."""
    await exchange.app.schedules.adelete(exchange.path("schedule"))


@routes.post(f"{SCHEDULE}/pause", Scope.OPERATE, Change, 404)
async def pause_schedule(exchange: Exchange) -> Change:
    """Let a schedule fire no more until it is resumed."""
    return Change(await exchange.app.schedules.apause(exchange.path("schedule")))


@routes.post(f"{SCHEDULE}/resume", Scope.OPERATE, Change, 404)
async def resume_schedule(exchange: Exchange) -> Change:
    """Let a schedule fire again."""
    return Change(await exchange.app.schedules.aresume(exchange.path("schedule")))


@routes.post(f"{SCHEDULE}/run", Scope.OPERATE, Submitted, 404, 409, 429, status=201)
async def run_schedule(exchange: Exchange) -> Submitted:
    """Enqueue a schedule's task now, besides its fires."""
    handle = await exchange.app.schedules.arun_now(exchange.path("schedule"))
    return Submitted(task_id=handle.id, status=None, queue=handle.queue)


class UpcomingQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many at most."""

    count: Annotated[int, Meta(ge=1, le=100)] = 5


@routes.get(f"{SCHEDULE}/upcoming", Scope.READ, list[datetime], 404, query=UpcomingQuery)
async def list_upcoming(exchange: Exchange) -> list[datetime]:
    """List when a schedule fires next."""
    return await exchange.app.schedules.aupcoming(exchange.path("schedule"), exchange.query.count)
