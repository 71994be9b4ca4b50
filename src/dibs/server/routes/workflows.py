"""Workflows: submit tasks that wait for each other, follow them, cancel and replay them as a whole."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from dibs.client.graph import WorkflowGraph
from dibs.client.producer import enqueue_many
from dibs.client.workflow_batch import in_order, workflow_id
from dibs.client.workflows import WorkflowInfo
from dibs.core.options import check_label
from dibs.core.task import NewTask, with_spec
from dibs.engines.http.protocol import Scope
from dibs.engines.values import NewWorkflow
from dibs.errors import InvalidOption
from dibs.server.fields import Change, Limit, Reason, Submission, new_task
from dibs.server.http import Exchange, Routes

__all__ = ["routes"]

WORKFLOW = "/api/v1/workflows/{workflow}"
MOST_MEMBERS = 10_000
routes = Routes("workflows")


class Member(Submission, frozen=True, kw_only=True):
    """A task of a workflow. `after` may name others by their `ref`."""

    ref: str | None = None


class WorkflowSubmission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tasks that wait for each other, to be enqueued as a whole."""

    name: str = ""
    tasks: Annotated[tuple[Member, ...], Meta(min_length=1, max_length=MOST_MEMBERS)]


class SubmittedWorkflow(Struct, frozen=True, kw_only=True):
    """A workflow that was enqueued, and the ids of its tasks: by `ref`, or by their place from 0."""

    workflow: str
    tasks: dict[str, str]


@routes.post(
    "/api/v1/workflows", Scope.PRODUCE, SubmittedWorkflow, 404, 409, 413, 429, body=WorkflowSubmission, status=201
)
async def submit_workflow(exchange: Exchange) -> SubmittedWorkflow:
    """Submit a workflow, all of it or nothing."""
    app, given = exchange.app, exchange.body
    ids = {member.ref or str(place): app.hub.new_id() for place, member in enumerate(given.tasks)}
    if len(ids) != len(given.tasks):
        raise InvalidOption("each ref must be there once.")
    tasks = [self_named(app, member, place, ids) for place, member in enumerate(given.tasks)]
    begun = NewWorkflow(workflow_id(tasks[0].id), check_label(given.name, "name") if given.name else "")
    ordered = in_order([with_spec(task, workflow=begun.id) for task in tasks])
    await app.hub.runner.arun(enqueue_many(app.hub, ordered, begun))
    named = dict(zip(ids, (task.id for task in tasks), strict=True))
    return SubmittedWorkflow(workflow=begun.id, tasks=named)


def self_named(app: Any, member: Member, place: int, ids: dict[str, str]) -> NewTask:
    """The task of a member, with refs replaced by ids."""
    if member.idempotency_key is not None:
        raise InvalidOption("a workflow is enqueued as a whole: none of its tasks can have an idempotency_key.")
    after = tuple(
        ids.get(each, each)
        if isinstance(each, str)
        else structs.replace(each, task_id=ids.get(each.task_id, each.task_id))
        for each in member.after
    )
    own = member.task_id or ids[member.ref or str(place)]
    ids[member.ref or str(place)] = own
    return new_task(app, structs.replace(member, after=after, task_id=own))[0]


class WorkflowsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many at most, and from which on: `before` is the id with which an earlier page ended."""

    limit: Limit = 50
    before: str | None = None


@routes.get("/api/v1/workflows", Scope.READ, list[WorkflowInfo], query=WorkflowsQuery)
async def list_workflows(exchange: Exchange) -> list[WorkflowInfo]:
    """List workflows, newest first."""
    return await exchange.app.workflows.alist(exchange.query.limit, exchange.query.before)


@routes.get(WORKFLOW, Scope.READ, WorkflowInfo, 404)
async def get_workflow(exchange: Exchange) -> WorkflowInfo:
    """Get a workflow with the counts of its tasks."""
    return await exchange.app.workflows.aget(exchange.path("workflow"))


@routes.get(f"{WORKFLOW}/graph", Scope.READ, WorkflowGraph, 404)
async def get_workflow_graph(exchange: Exchange) -> WorkflowGraph:
    """Get the tasks of a workflow, and what each waits for."""
    return await exchange.app.workflows.agraph(exchange.path("workflow"))


@routes.post(f"{WORKFLOW}/cancel", Scope.OPERATE, Change, 404, body=Reason)
async def cancel_workflow(exchange: Exchange) -> Change:
    """Cancel all unfinished tasks of a workflow."""
    return Change(await exchange.app.workflows.acancel(exchange.path("workflow"), exchange.body.reason))


@routes.post(f"{WORKFLOW}/replay", Scope.OPERATE, Change, 404)
async def replay_workflow(exchange: Exchange) -> Change:
    """Run the dead tasks of a workflow again, with what had to wait for them."""
    return Change(await exchange.app.workflows.areplay(exchange.path("workflow")))
