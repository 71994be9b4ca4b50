"""The protocol of workers in any language.

1. Register, with the queues, task types and capabilities that the worker serves. Register again after a 404.
2. Claim, as many tasks as there are free slots, and wait up to 25 s for the first. Only an active worker is given
   tasks: one that is `paused` waits, one that is `draining` finishes what it runs and leaves.
3. While tasks run, send a heartbeat every `beat_seconds` that names them all. It extends their leases, and says which
   to stop: `cancel` (someone asked for it: report `cancelled` when it has stopped) and `lost` (report nothing).
   `exhausted`: it has run for 24 hours, and its lease is not extended any more.
4. Report results, one or many at a time: `completed`, `failed` (it runs again if attempts are left), `permanent` (it
   does not), `cancelled`, `released` (handed back, no attempt counted) or `snoozed` (run it again after
   `delay_seconds`, at once without). Reporting twice is safe. One item that does not fit (400, 413, 422) refuses all.
5. Leave. Tasks that are not reported yet are taken back when their leases end.

The lease number that comes with a task goes with everything that is said about it. A lease is bound to the worker that
claimed it and to its token: in lists, the worker is called `worker_id@token`. A message about a lease that is lost is
answered with `lost`, `refused`, or status 409 and the problem `lease-lost`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from dibs.client.consumer import Claim
from dibs.core.options import CAPABILITIES, QUEUES, TASKS, check_names, check_reference, plain
from dibs.core.reference import result_of
from dibs.core.retry import timeout_for
from dibs.core.states import State
from dibs.core.task import Failure, Lease, Outcome, Settlement, WorkerState
from dibs.core.times import SECOND, duration, when
from dibs.engines.base import Subscription
from dibs.engines.http.protocol import Scope
from dibs.engines.topics import worker_topic
from dibs.engines.values import Beat, ClaimRequest, ExtendAnswer, ExtendOutcome, Extension, SettleAnswer, SettleOutcome
from dibs.errors import LeaseLost
from dibs.server.http import Exchange, Routes
from dibs.server.registrations import Registration
from dibs.server.routes.polling import claim, end, guard_of, registered
from dibs.server.routes.tasks import LONGEST_WAIT

__all__ = ["BEAT_SECONDS", "ClaimedTask", "Result", "claimed_task", "client_of", "register", "routes", "settle"]

WORKER = "/api/v1/workers/{worker}"
BEAT_SECONDS = 10.0
LIVES_FOR = 3
"""Beats after which a silent worker counts as dead."""
MOST = 1000
routes = Routes("worker protocol", __doc__ or "")

Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Name = Annotated[str, Meta(min_length=1, max_length=100)]


class Registering(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker can do. Without `task_types` it runs any task of its queues; an empty list is none at all."""

    worker_id: Name | None = None
    """A name of its own; otherwise it is given one."""
    queues: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MOST)] = ("default",)
    task_types: Annotated[tuple[str, ...], Meta(max_length=MOST)] | None = None
    capabilities: Annotated[tuple[str, ...], Meta(max_length=MOST)] = ()
    capacity: Annotated[int, Meta(ge=1, le=100_000)] = 1
    """How many tasks it runs at once, for people and for `desired_slots`."""
    host: Annotated[str, Meta(max_length=200)] = ""
    version: Annotated[str, Meta(max_length=200)] = ""


class Registered(Struct, frozen=True, kw_only=True):
    """Under which name to speak, and how often to beat."""

    worker_id: str
    beat_seconds: float
    state: WorkerState


@routes.post("/api/v1/workers/register", Scope.CONSUME, Registered, body=Registering, status=201)
async def register_worker(exchange: Exchange) -> Registered:
    """Register a worker, or say that it can do other things now."""
    given = exchange.body
    worker = given.worker_id or f"http-{secrets.token_hex(6)}"
    check_reference(worker, "worker_id")
    state = await register(
        exchange,
        worker,
        Registration(
            queues=check_names(given.queues, "queues", QUEUES),
            names=None if given.task_types is None else check_names(given.task_types, "task_types", TASKS),
            capabilities=check_names(given.capabilities, "capabilities", CAPABILITIES) if given.capabilities else (),
            capacity=given.capacity,
            host=plain(given.host) or client_of(exchange),
            version=plain(given.version) or "http",
        ),
    )
    return Registered(worker_id=worker, beat_seconds=BEAT_SECONDS, state=state)


def client_of(exchange: Exchange) -> str:
    return exchange.request.client.host if exchange.request.client is not None else "?"


async def register(exchange: Exchange, worker: str, known: Registration, running: int = 0) -> WorkerState:
    """Beat for a worker, and remember what it can do."""
    beat = Beat(
        id=worker,
        host=known.host,
        pid=0,
        version=known.version,
        queues=known.queues,
        names=known.names,
        capabilities=known.capabilities,
        concurrency=known.capacity,
        running=running,
        lives_for=round(LIVES_FOR * BEAT_SECONDS * SECOND),
    )
    state: WorkerState = await guard_of(exchange).call("beat", beat)
    exchange.server.registrations.add(exchange.caller.worker(worker), structs.replace(known, state=state))
    return state


class Claiming(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much to take, and how long to wait for the first task. What is left out is as it was registered."""

    limit: Annotated[int, Meta(ge=1, le=MOST)] = 1
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] = 0.0
    """Seconds to wait for the first task."""
    lease_seconds: Annotated[float, Meta(ge=1, le=86_400)] | None = None
    """How long leases last, whatever tasks and queues say; otherwise 30 s, or what they say."""
    queues: Annotated[tuple[str, ...], Meta(min_length=1, max_length=MOST)] | None = None
    task_types: Annotated[tuple[str, ...], Meta(max_length=MOST)] | None = None
    capabilities: Annotated[tuple[str, ...], Meta(max_length=MOST)] | None = None
    sequence: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    """A number of its own for each claim of a worker; it must grow, also over restarts under the same name."""
    repeat: bool = False
    """The answer to the claim of this number was lost: tasks that it was given and still holds are given again. If it
    holds none, it claims as usual."""


class ClaimedTask(Struct, frozen=True, kw_only=True):
    """A task to run, under a lease. `trace_id` is that of the header `traceparent`, if it has one."""

    task_id: str
    task_type: str
    parameters: dict[str, Any]
    queue: str
    priority: int
    lease: int
    """To be sent with everything that is said about this run."""
    lease_seconds: float
    """How long the lease lasts from now, unless a heartbeat extends it."""
    lease_expires_at: datetime | None
    attempt: int
    """From 1; runs that were lost or handed back don't count."""
    timeout_seconds: float | None
    deadline: datetime | None
    metadata: dict[str, Any]
    headers: dict[str, str]
    trace_id: str | None


class Claimed(Struct, frozen=True, kw_only=True):
    """Tasks to run, the most urgent first, and the state that the worker must obey: only active ones get tasks."""

    tasks: list[ClaimedTask]
    state: WorkerState


def claimed_task(claim: Claim) -> ClaimedTask:
    task = claim.task
    timeout = timeout_for(task.options, task.attempts)
    return ClaimedTask(
        task_id=task.id,
        task_type=task.name,
        parameters=claim.args,
        queue=task.queue,
        priority=task.spec.priority,
        lease=task.lease,
        lease_seconds=max(0, task.lease_expires_at - task.claimed_at) / SECOND,
        lease_expires_at=claim.expires_at,
        attempt=task.attempt,
        timeout_seconds=None if timeout is None else timeout / SECOND,
        deadline=when(task.spec.deadline),
        metadata=task.spec.metadata,
        headers=task.spec.headers,
        trace_id=trace_of(task.spec.headers),
    )


def trace_of(headers: dict[str, str]) -> str | None:
    parts = headers.get("traceparent", "").split("-")
    return parts[1] if len(parts) == 4 else headers.get("trace_id")


@routes.post(f"{WORKER}/claim", Scope.CONSUME, Claimed, 404, body=Claiming, waits=LONGEST_WAIT)
async def claim_tasks(exchange: Exchange) -> Claimed:
    """Claim tasks, waiting for the first of them if asked to.

    If the client has gone before the answer, the tasks are handed back at once.
    """
    given, known = exchange.body, await registered(exchange)
    request = ClaimRequest(
        worker=exchange.path("worker"),
        sequence=given.sequence or time.time_ns() // 1000,
        queues=known.queues if given.queues is None else check_names(given.queues, "queues", QUEUES),
        limit=given.limit,
        names=known.names if given.task_types is None else check_names(given.task_types, "task_types", TASKS),
        capabilities=known.capabilities
        if given.capabilities is None
        else (check_names(given.capabilities, "capabilities", CAPABILITIES) if given.capabilities else ()),
        lease=None if given.lease_seconds is None else duration(given.lease_seconds, "lease_seconds"),
        repeat=given.repeat,
    )
    claims = await claim(exchange, request, given.wait)
    state = (await registered(exchange)).state
    return Claimed(tasks=[claimed_task(each) for each in claims], state=state)


class ErrorBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What a run raised."""

    type: Annotated[str, Meta(max_length=200)] = "Error"
    message: Annotated[str, Meta(max_length=100_000)] = ""
    traceback: Annotated[str, Meta(max_length=200_000)] = ""


class Result(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run ended. `failed` runs again if attempts are left, `permanent` does not; `released` and `snoozed` count
    no attempt.
    """

    task_id: str
    lease: Annotated[int, Meta(ge=0, le=2**53)]
    status: Outcome
    result: Any = None
    error: ErrorBody | str | None = None
    delay_seconds: Seconds | None = None
    """Until it may run again, for failed and snoozed."""
    timed_out: bool = False
    metadata: dict[str, Any] | None = None
    """Added to the task's own."""


class Results(Struct, frozen=True, forbid_unknown_fields=True):
    """How runs ended."""

    results: Annotated[tuple[Result, ...], Meta(min_length=1, max_length=MOST)]


class Report(Struct, frozen=True, kw_only=True):
    """What became of a task: `already` if this was said before, `refused` if the lease was lost."""

    task_id: str
    outcome: SettleOutcome
    status: State | None
    due_in_seconds: float | None
    reason: str = ""


class Reports(Struct, frozen=True):
    """In the order in which they were given."""

    results: list[Report]


REFUSED = "the lease is lost: the task has ended, or another worker has it"


@routes.post(f"{WORKER}/results", Scope.CONSUME, Reports, 409, 413, body=Results)
async def report_results(exchange: Exchange) -> Reports:
    """Report how runs ended.

    Each is answered by itself. If all leases are lost, the status is 409.
    """
    answers = await settle(exchange, exchange.path("worker"), exchange.body.results)
    if all(each.outcome is SettleOutcome.REFUSED for each in answers):
        raise LeaseLost(f"{REFUSED}.")
    return Reports(answers)


async def settle(exchange: Exchange, worker: str, results: tuple[Result, ...]) -> list[Report]:
    guard = guard_of(exchange)
    settlements = [await settlement_of(exchange, each) for each in results]
    owned = await guard.owned([each.lease for each in settlements], worker)
    mine = [each for each, is_mine in zip(settlements, owned, strict=True) if is_mine]
    found = iter(await guard.call("settle", mine) if mine else [])
    answers = [next(found) if is_mine else SettleAnswer(SettleOutcome.REFUSED) for is_mine in owned]
    return [
        Report(
            task_id=each.task_id,
            outcome=answer.outcome,
            status=answer.state,
            due_in_seconds=None if answer.due_in is None else answer.due_in / SECOND,
            reason=REFUSED if answer.outcome is SettleOutcome.REFUSED else "",
        )
        for each, answer in zip(results, answers, strict=True)
    ]


async def settlement_of(exchange: Exchange, given: Result) -> Settlement:
    hub, lease = exchange.app.hub, Lease(check_reference(given.task_id, "task_id"), given.lease)
    result = None
    if given.status is Outcome.COMPLETED and given.result is not None:
        payload = hub.codec.encode(given.result, "the result")
        result = await hub.payloads.astored(payload, lease.id, result_of(lease.number), "the result")
    return Settlement(
        lease=lease,
        outcome=given.status,
        result=result,
        delay=None if given.delay_seconds is None else duration(given.delay_seconds, "delay_seconds"),
        failure=failure_of(given),
        timed_out=given.timed_out,
        metadata=given.metadata,
    )


def failure_of(given: Result) -> Failure | None:
    error = given.error
    if isinstance(error, str):
        return Failure(type="Error", message=error)
    if error is None:
        failed = given.status in (Outcome.FAILED, Outcome.PERMANENT)
        return Failure(type="Error", message="the worker gave no reason") if failed else None
    return Failure(type=error.type, message=error.message, traceback=error.traceback)


class RunningTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task that still runs. `progress` is 0 to 1."""

    task_id: str
    lease: Annotated[int, Meta(ge=0, le=2**53)]
    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Annotated[str, Meta(max_length=1000)] = ""
    extend_seconds: Annotated[float, Meta(ge=1, le=86_400)] = LIVES_FOR * BEAT_SECONDS
    """How long the lease lasts from now on."""
    ran_seconds: Seconds = 0.0
    """How long it has run; after 24 hours a lease is no longer extended."""


class Heartbeat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """That a worker lives, and what it runs."""

    tasks: Annotated[tuple[RunningTask, ...], Meta(max_length=MOST)] = ()
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] = 0.0
    """Seconds to wait for news, such as a cancellation or another state, before the answer."""


class LeaseAnswer(Struct, frozen=True, kw_only=True):
    """What became of a lease: `held`, `cancel` (held, but stop), `exhausted` (held, no longer extended) or `lost`."""

    task_id: str
    lease: int
    outcome: ExtendOutcome
    lease_expires_at: datetime | None
    reason: str


class HeartbeatAnswer(Struct, frozen=True, kw_only=True):
    """The state to obey, and what became of each lease, in the order in which they were given."""

    state: WorkerState
    tasks: list[LeaseAnswer]


@routes.post(f"{WORKER}/heartbeat", Scope.CONSUME, HeartbeatAnswer, 404, body=Heartbeat, waits=LONGEST_WAIT)
async def beat_worker(exchange: Exchange) -> HeartbeatAnswer:
    """Beat: extend leases, tell progress, and learn of cancellations, lost leases and the worker's state.

    A worker that is silent for three beats counts as dead. With `wait`, the answer comes as soon as there are news.
    """
    worker, held = exchange.path("worker"), exchange.body.tasks
    await registered(exchange)
    subscription = await guard_of(exchange).listen([worker_topic(worker)])
    try:
        answer = await beaten(exchange, worker, held)
        calm = answer.state is WorkerState.ACTIVE and all(each.outcome is ExtendOutcome.HELD for each in answer.tasks)
        if calm and exchange.body.wait and await news(exchange, subscription, exchange.body.wait):
            answer = await beaten(exchange, worker, held)
        return answer
    finally:
        subscription.close()


async def news(exchange: Exchange, subscription: Subscription, seconds: float) -> bool:
    """Whether there are news before the time is up, the client goes, or the server stops."""
    gone = asyncio.ensure_future(exchange.request.receive())
    stops = asyncio.ensure_future(exchange.server.stopping.wait())
    woken = asyncio.ensure_future(subscription.wait(seconds))
    try:
        await asyncio.wait([gone, stops, woken], return_when=asyncio.FIRST_COMPLETED)
        return woken.done() and woken.result()
    finally:
        await end(gone, stops, woken)


async def beaten(exchange: Exchange, worker: str, held: tuple[RunningTask, ...]) -> HeartbeatAnswer:
    guard = guard_of(exchange)
    extensions = [
        Extension(
            Lease(check_reference(each.task_id, "task_id"), each.lease),
            round(each.extend_seconds * SECOND),
            each.progress,
            plain(each.message),
            round(each.ran_seconds * SECOND),
        )
        for each in held
    ]
    owned = await guard.owned([each.lease for each in extensions], worker)
    mine = [each for each, is_mine in zip(extensions, owned, strict=True) if is_mine]
    found = iter(await guard.call("extend", mine) if mine else [])
    answers = [next(found) if is_mine else ExtendAnswer(ExtendOutcome.LOST) for is_mine in owned]
    state = await register(exchange, worker, await registered(exchange), running=len(held))
    return HeartbeatAnswer(state=state, tasks=[lived(*each) for each in zip(held, answers, strict=True)])


def lived(held: RunningTask, answer: ExtendAnswer) -> LeaseAnswer:
    return LeaseAnswer(
        task_id=held.task_id,
        lease=held.lease,
        outcome=answer.outcome,
        lease_expires_at=when(answer.expires_at),
        reason=answer.reason or (REFUSED if answer.outcome is ExtendOutcome.LOST else ""),
    )


@routes.delete(WORKER, Scope.CONSUME, None, 404, status=204)
async def leave_worker(exchange: Exchange) -> None:
    """Leave: the worker has shut down."""
    await registered(exchange)
    worker = exchange.path("worker")
    await guard_of(exchange).call("leave", worker)
    exchange.server.registrations.drop(exchange.caller.worker(worker))
