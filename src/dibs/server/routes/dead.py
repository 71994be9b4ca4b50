"""Dead letters: list, group by error, replay, purge."""

from __future__ import annotations

from msgspec import Struct, structs

from dibs.client.error_groups import ErrorGroups
from dibs.client.tasks import Acted
from dibs.core.states import State
from dibs.engines.http.protocol import Scope
from dibs.errors import InvalidOption
from dibs.server.fields import SearchQuery, TaskFilter, TaskList, filter_of, task_view
from dibs.server.http import Answered, Exchange, Routes
from dibs.server.routes.bulk import BulkAct, act_on_all
from dibs.server.routes.tasks import metadata_of

__all__ = ["routes"]

routes = Routes("dead letters")


def check_status(status: tuple[str, ...]) -> None:
    if any(each != State.DEAD for each in status):
        raise InvalidOption("this is about dead tasks: leave status out.")


@routes.get("/api/v1/dead", Scope.READ, TaskList, query=SearchQuery)
async def list_dead(exchange: Exchange) -> TaskList:
    """List dead tasks, newest first, in pages."""
    query = exchange.query
    check_status(query.status)
    chosen = structs.replace(filter_of(query, metadata_of(query.metadata)), state=State.DEAD)
    page = await exchange.app.tasks.asearch(chosen, limit=query.limit, cursor=query.cursor)
    return TaskList(tasks=[task_view(info) for info in page.tasks], cursor=page.cursor)


@routes.get("/api/v1/dead/groups", Scope.READ, ErrorGroups, query=SearchQuery)
async def group_dead(exchange: Exchange) -> ErrorGroups:
    """Group dead tasks by task, reason and error, the most frequent first."""
    check_status(exchange.query.status)
    return await exchange.app.tasks.aerror_groups(filter_of(exchange.query, metadata_of(exchange.query.metadata)))


class ReplayDead(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead tasks to run again. As long as `dry_run` is true, they are only counted."""

    filter: TaskFilter = TaskFilter()
    dry_run: bool = True
    queue: str | None = None
    reset: bool = True


@routes.post("/api/v1/dead/replay", Scope.OPERATE, Acted, body=ReplayDead, others=(202,))
async def replay_dead(exchange: Exchange) -> Answered:
    """Run all dead tasks that match again, in the background; first as a dry run."""
    body = exchange.body
    check_status(body.filter.status)
    act = BulkAct(action="replay", filter=body.filter, dry_run=body.dry_run, queue=body.queue, reset=body.reset)
    return await act_on_all(exchange, act, filter_of(body.filter))


class PurgeDead(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead tasks to delete. As long as `dry_run` is true, they are only counted."""

    filter: TaskFilter = TaskFilter()
    dry_run: bool = True


@routes.post("/api/v1/dead/purge", Scope.OPERATE, Acted, body=PurgeDead, others=(202,))
async def purge_dead(exchange: Exchange) -> Answered:
    """Delete all dead tasks that match, in the background; first as a dry run."""
    body = exchange.body
    check_status(body.filter.status)
    act = BulkAct(action="purge", filter=body.filter, dry_run=body.dry_run)
    return await act_on_all(exchange, act, structs.replace(filter_of(body.filter), state=State.DEAD))
