"""Tasks: submit, read, wait for, cancel, edit, replay, purge, search."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from dibs.client.info import HistoryLine, TaskInfo
from dibs.client.producer import aenqueue
from dibs.client.tasks import Cancelled, Count, Prerequisite
from dibs.client.why import Why
from dibs.client.workflow_batch import enqueue_in_order
from dibs.core.states import State
from dibs.engines.http.protocol import Scope
from dibs.engines.values import EnqueueAnswer, EnqueueOutcome
from dibs.errors import InvalidOption, WrongState
from dibs.server.depths import Depths
from dibs.server.fields import (
    Change,
    Drafts,
    Limit,
    Reason,
    SearchQuery,
    Submission,
    Submitted,
    TaskDetails,
    TaskEdit,
    TaskList,
    TaskView,
    facts_of,
    filter_of,
    new_task,
    task_view,
)
from dibs.server.http import Answered, Exchange, Routes

__all__ = ["LONGEST_WAIT", "metadata_of", "routes"]

Answer = TypeVar("Answer")

LONGEST_WAIT = 25.0
"""Seconds that a request may wait for something: less than what proxies allow."""
MOST_SUBMITTED = 10_000
TASK = "/api/v1/tasks/{task_id}"
routes = Routes("tasks")
Wait = Annotated[float, Meta(ge=0, le=LONGEST_WAIT)]


class SubmitQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How to count the tasks ahead: `about`, from figures that are a second old at most, or `exact`, up to 10,000."""

    position: Literal["about", "exact"] = "about"


@routes.post(
    "/api/v1/tasks",
    Scope.PRODUCE,
    Submitted,
    404,
    409,
    413,
    429,
    body=Submission,
    query=SubmitQuery,
    status=201,
    others=(200,),
)
async def submit_task(exchange: Exchange) -> Answered:
    """Submit a task.

    It is stored when the answer arrives. The header Idempotency-Key, or `idempotency_key`, makes it safe to repeat: the
    same key stands for the same task, which is then answered with status 200 and `duplicate`.
    """
    app = exchange.app
    new, options = new_task(app, exchange.body, exchange.request.headers.get("idempotency-key"))
    answer = await aenqueue(app.hub, new, options)
    ahead = None
    if answer.state is State.PENDING:
        is_exact = exchange.query.position == "exact"
        depths: Depths = exchange.server.depths
        ahead = await depths.ahead(answer.id, new.queue) if is_exact else await depths.about(new)
    return Answered(201 if is_new(answer) else 200, submitted(answer, new.queue, ahead))


def is_new(answer: EnqueueAnswer) -> bool:
    return answer.outcome in (EnqueueOutcome.ENQUEUED, EnqueueOutcome.REPLACED)


def submitted(answer: EnqueueAnswer, queue: str, position: int | None = None) -> Submitted:
    return Submitted(
        task_id=answer.id,
        status=answer.state,
        queue=queue,
        queue_position=position,
        duplicate=answer.outcome is EnqueueOutcome.DUPLICATE,
    )


class Batch(Struct, frozen=True, forbid_unknown_fields=True):
    """Tasks to enqueue, all or none of them. They may wait for each other by ids of their own (`task_id`)."""

    tasks: Annotated[tuple[Submission, ...], Meta(max_length=MOST_SUBMITTED)]


class BatchAnswer(Struct, frozen=True):
    """In the order in which they were given."""

    tasks: list[Submitted]


@routes.post("/api/v1/tasks/batch", Scope.PRODUCE, BatchAnswer, 404, 409, 413, 429, body=Batch, status=201)
async def submit_tasks(exchange: Exchange) -> BatchAnswer:
    """Submit many tasks, all or none."""
    app = exchange.app
    drafts = Drafts(app)
    batch = [drafts.task(each)[0] for each in exchange.body.tasks]
    if not batch:
        return BatchAnswer([])
    answers = await app.hub.runner.arun(enqueue_in_order(app.hub, batch))
    return BatchAnswer([submitted(answer, new.queue) for answer, new in zip(answers, batch, strict=True)])


class DetailQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """What to answer besides the task itself: history, dependents, needs."""

    include: tuple[str, ...] = ()


@routes.get(TASK, Scope.READ, TaskDetails, 404, query=DetailQuery)
async def get_task(exchange: Exchange) -> TaskDetails:
    """Get a task.

    `include` may name history (failed, lost and changed runs), dependents (tasks that wait for it) and needs (tasks
    that it waits for).
    """
    tasks, wanted = exchange.app.tasks, exchange.path("task_id")
    include = {name for each in exchange.query.include for name in each.split(",")}
    if unknown := include - {"history", "dependents", "needs"}:
        raise InvalidOption(f"include may name history, dependents and needs, not {min(unknown)!r}.")
    info = await tasks.aget(wanted)
    return TaskDetails(
        **facts_of(info),
        history=await tasks.ahistory(wanted) if "history" in include else None,
        dependents=[task_view(each) for each in await tasks.adependents(wanted)] if "dependents" in include else None,
        needs=await tasks.aneeds(wanted) if "needs" in include else None,
    )


@routes.get(f"{TASK}/history", Scope.READ, list[HistoryLine], 404)
async def get_history(exchange: Exchange) -> list[HistoryLine]:
    """Get what happened to a task besides clean runs, oldest first."""
    await exchange.app.tasks.aget(exchange.path("task_id"))
    return await exchange.app.tasks.ahistory(exchange.path("task_id"))


class LimitQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many at most."""

    limit: Limit = 100


@routes.get(f"{TASK}/dependents", Scope.READ, list[TaskView], 404, query=LimitQuery)
async def get_dependents(exchange: Exchange) -> list[TaskView]:
    """Get the tasks that wait for a task."""
    await exchange.app.tasks.aget(exchange.path("task_id"))
    return [
        task_view(each) for each in await exchange.app.tasks.adependents(exchange.path("task_id"), exchange.query.limit)
    ]


@routes.get(f"{TASK}/needs", Scope.READ, list[Prerequisite], 404)
async def get_needs(exchange: Exchange) -> list[Prerequisite]:
    """Get what a task waits or waited for."""
    await exchange.app.tasks.aget(exchange.path("task_id"))
    return await exchange.app.tasks.aneeds(exchange.path("task_id"))


@routes.get(f"{TASK}/why", Scope.READ, Why, 404)
async def get_why(exchange: Exchange) -> Why:
    """Ask why a task is not running yet, and when that ends."""
    return await exchange.app.awhy(exchange.path("task_id"))


class WaitQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many seconds to wait."""

    timeout: Wait = LONGEST_WAIT


@routes.get(f"{TASK}/wait", Scope.READ, TaskView, 404, 409, query=WaitQuery, waits=LONGEST_WAIT, others=(202,))
async def wait_for_task(exchange: Exchange) -> Answered:
    """Wait for the end of a task.

    Answers with status 200 once it has ended, however it ended, and with 202 if it had not after `timeout` seconds: ask
    again.
    """
    info = await ended(exchange, exchange.query.timeout)
    return Answered(200 if info.is_done else 202, task_view(info))


async def ended(exchange: Exchange, timeout: float) -> TaskInfo:
    """A task, as soon as it has ended, or as it is when the time is up or the server stops."""
    app = exchange.app
    handle = await app.ahandle(exchange.path("task_id"))
    if timeout and handle.info is not None and not handle.info.is_done and handle.info.unreadable is None:
        await waited(exchange, app.await_all([handle], timeout), timeout)
    return await app.tasks.aget(handle.id)


async def waited(exchange: Exchange, work: Awaitable[Answer], timeout: float) -> Answer | None:
    """What comes of this, or None if the time is up or the server stops before."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(exchange.server.stopping.wait())
    try:
        await asyncio.wait([working, stopping], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return None
        try:
            return working.result()
        except TimeoutError:
            return None
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


class ResultAnswer(Struct, frozen=True, kw_only=True):
    """The result of a task; null while it has none."""

    task_id: str
    status: State
    result: Any = None


class ResultQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many seconds to wait for the end of the task."""

    timeout: Wait = 0.0


@routes.get(f"{TASK}/result", Scope.READ, ResultAnswer, 404, 409, query=ResultQuery, waits=LONGEST_WAIT, others=(202,))
async def get_result(exchange: Exchange) -> Answered:
    """Get the result of a task.

    Status 200 once it has completed, 202 while it has not ended, and 409 if it is dead or was cancelled.
    """
    info = await ended(exchange, exchange.query.timeout)
    if not info.is_done:
        return Answered(202, ResultAnswer(task_id=info.id, status=info.state))
    handle = await exchange.app.ahandle(info.id)
    result = await handle.aresult(timeout=5.0)
    return Answered(200, ResultAnswer(task_id=info.id, status=info.state, result=msgspec.to_builtins(result)))


class CancelAnswer(Struct, frozen=True, kw_only=True):
    """`cancelled`, or still `running` and asked to stop."""

    task_id: str
    status: State
    cancel_requested: bool = False


@routes.delete(TASK, Scope.OPERATE, CancelAnswer, 404, 409, others=(202,))
@routes.post(f"{TASK}/cancel", Scope.OPERATE, CancelAnswer, 404, 409, body=Reason, others=(202,))
async def cancel_task(exchange: Exchange) -> Answered:
    """Cancel a task.

    A waiting task is cancelled at once. A running one is asked to stop, and is answered with status 202. One that has
    ended gives 409.
    """
    wanted = exchange.path("task_id")
    reason = exchange.body.reason if isinstance(exchange.body, Reason) else ""
    found = await exchange.app.tasks.acancel(wanted, reason)
    if found is Cancelled.REQUESTED:
        return Answered(202, CancelAnswer(task_id=wanted, status=State.RUNNING, cancel_requested=True))
    if found is Cancelled.ENDED_BEFORE:
        raise WrongState(f"task {wanted} has ended already.")
    return Answered(200, CancelAnswer(task_id=wanted, status=State.CANCELLED))


@routes.patch(TASK, Scope.OPERATE, Change, 404, 409, body=TaskEdit)
async def edit_task(exchange: Exchange) -> Change:
    """Edit a waiting task: its priority, times or metadata."""
    return Change(await exchange.app.tasks.aedit(exchange.path("task_id"), **exchange.body.changes()))


class ReplayBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Into which queue, if not its own; `reset`: whether attempts and losses are counted from zero."""

    queue: str | None = None
    reset: bool = True


@routes.post(f"{TASK}/replay", Scope.OPERATE, Change, 404, 409, body=ReplayBody)
async def replay_task(exchange: Exchange) -> Change:
    """Run a dead task again."""
    body = exchange.body
    return Change(await exchange.app.tasks.areplay(exchange.path("task_id"), queue=body.queue, reset=body.reset))


@routes.post(f"{TASK}/purge", Scope.OPERATE, Change, 404, 409)
async def purge_task(exchange: Exchange) -> Change:
    """Delete an ended task for good."""
    return Change(await exchange.app.tasks.apurge(exchange.path("task_id")))


@routes.get("/api/v1/tasks", Scope.READ, TaskList, query=SearchQuery)
async def search_tasks(exchange: Exchange) -> TaskList:
    """Search tasks, newest first, in pages."""
    query = exchange.query
    page = await exchange.app.tasks.asearch(
        filter_of(query, metadata_of(query.metadata)), limit=query.limit, cursor=query.cursor
    )
    return TaskList(tasks=[task_view(info) for info in page.tasks], cursor=page.cursor)


@routes.get("/api/v1/tasks/count", Scope.READ, Count, query=SearchQuery)
async def count_tasks(exchange: Exchange) -> Count:
    """Count tasks that match; `more`: counting stopped, and there may be more."""
    query = exchange.query
    return await exchange.app.tasks.acount(filter_of(query, metadata_of(query.metadata)))


def metadata_of(pairs: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InvalidOption("metadata is given as NAME=VALUE.")
        try:
            found[name] = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found[name] = text
    return found


class Position(Struct, frozen=True):
    """How many tasks are ahead of a pending one, and when it should start, as far as that can be told."""

    ahead: int
    starts_at: datetime | None


@routes.get(f"{TASK}/position", Scope.READ, Position, 404, 409)
async def get_position(exchange: Exchange) -> Position:
    """Ask how many tasks are ahead of a pending one."""
    return Position(*await exchange.app.aposition(exchange.path("task_id")))
