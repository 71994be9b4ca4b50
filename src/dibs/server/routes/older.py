"""Workers of an older shape, which poll, and send no lease number.

The store knows which worker holds a task and under which lease: that is looked up with each message. A beat extends all
leases of the worker, and a lease lasts three beats. If a worker loses a task and is given it again, a late result of
the first run counts for the second: workers that send lease numbers don't have this gap.
"""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from dibs.core.options import CAPABILITIES, check_names, check_reference
from dibs.core.states import State
from dibs.core.task import Lease, Outcome, TaskRecord, WorkerState
from dibs.core.times import SECOND
from dibs.engines.http.protocol import Scope
from dibs.engines.values import ClaimRequest, Extension, Query, SettleOutcome
from dibs.errors import LeaseLost, UnknownTask
from dibs.server.http import Exchange, Routes
from dibs.server.registrations import Registration
from dibs.server.routes.consuming import BEAT_SECONDS, ClaimedTask, Result, claimed_task, client_of, register, settle
from dibs.server.routes.polling import claim, guard_of, registered

__all__ = ["routes"]

WORKER = "/internal/workers/{worker}"
POLL_INTERVAL_MS = 1000
LEASE = round(3 * BEAT_SECONDS * SECOND)
MOST_HELD = 1000
routes = Routes("older workers", __doc__ or "")

Names = Annotated[tuple[str, ...], Meta(max_length=1000)]
Capacity = Annotated[int, Meta(ge=0, le=100_000)]


class OlderRegistering(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker offers, and how many tasks it runs at once."""

    capabilities: Names = ()
    capacity: Annotated[int, Meta(ge=1, le=100_000)] = 1


class OlderRegistered(Struct, frozen=True, kw_only=True):
    """Under which name to speak, and how often to poll."""

    worker_id: str
    poll_interval_ms: int


@routes.post("/internal/workers/register", Scope.CONSUME, OlderRegistered, body=OlderRegistering, status=201)
async def register_older(exchange: Exchange) -> OlderRegistered:
    """Register a worker that serves all queues its token may use."""
    worker = f"http-{secrets.token_hex(6)}"
    given = exchange.body
    known = Registration(
        queues=await all_queues(exchange),
        names=None,
        capabilities=offered(given.capabilities),
        capacity=given.capacity,
        host=client_of(exchange),
        version="http",
    )
    await register(exchange, worker, known)
    return OlderRegistered(worker_id=worker, poll_interval_ms=POLL_INTERVAL_MS)


def offered(capabilities: tuple[str, ...]) -> tuple[str, ...]:
    return check_names(capabilities, "capabilities", CAPABILITIES) if capabilities else ()


async def all_queues(exchange: Exchange) -> tuple[str, ...]:
    """The queues that there are now; `default` if there is none."""
    hub = guard_of(exchange).hub
    names = [each.name for each in await hub.runner.arun(hub.engine.queues())]
    mine = tuple(name for name in names if exchange.caller.serves(name))
    return mine or tuple(sorted(exchange.caller.queues or ("default",)))


class Polling(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker offers, and how many tasks it can take now."""

    capabilities: Names | None = None
    available_capacity: Capacity = 1


class Polled(Struct, frozen=True):
    """Tasks to run, the most urgent first."""

    tasks: list[ClaimedTask]


@routes.post(f"{WORKER}/poll", Scope.CONSUME, Polled, 404, body=Polling)
async def poll_tasks(exchange: Exchange) -> Polled:
    """Take tasks to run."""
    given, known = exchange.body, await registered(exchange)
    if not given.available_capacity or known.state is not WorkerState.ACTIVE:
        return Polled([])
    request = ClaimRequest(
        worker=exchange.path("worker"),
        sequence=time.time_ns() // 1000,
        queues=await all_queues(exchange),
        limit=min(given.available_capacity, MOST_HELD),
        capabilities=known.capabilities if given.capabilities is None else offered(given.capabilities),
        lease=LEASE,
    )
    return Polled([claimed_task(each) for each in await claim(exchange, request, 0.0)])


class OlderResult(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run ended: completed, failed, cancelled, or one of the other outcomes."""

    task_id: str
    status: Outcome
    result: Any = None
    error: str | None = None


class Accepted(Struct, frozen=True, kw_only=True):
    """What the task is now."""

    task_id: str
    status: State | None


@routes.post(f"{WORKER}/result", Scope.CONSUME, Accepted, 404, 409, 413, body=OlderResult)
async def report_older(exchange: Exchange) -> Accepted:
    """Report how a run ended."""
    given, worker = exchange.body, exchange.path("worker")
    await registered(exchange)
    hub = guard_of(exchange).hub
    (record,) = await hub.runner.arun(hub.engine.get([check_reference(given.task_id, "task_id")]))
    if not isinstance(record, TaskRecord) or not exchange.caller.serves(record.queue):
        raise UnknownTask(f"no task has the id {given.task_id}.")
    lease = record.lease if record.worker == exchange.caller.worker(worker) else 0
    result = Result(task_id=given.task_id, lease=lease, status=given.status, result=given.result, error=given.error)
    (answer,) = await settle(exchange, worker, (result,))
    if answer.outcome is SettleOutcome.REFUSED:
        raise LeaseLost(f"{answer.reason}.")
    return Accepted(task_id=given.task_id, status=answer.status)


class OlderHeartbeat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many tasks a worker runs, and in what state it is."""

    current_load: Capacity = 0
    status: str = "active"


class Acknowledged(Struct, frozen=True, kw_only=True):
    """The beat was heard; `status` is the state to obey."""

    acknowledged: bool
    status: WorkerState


@routes.post(f"{WORKER}/heartbeat", Scope.CONSUME, Acknowledged, 404, body=OlderHeartbeat)
async def beat_older(exchange: Exchange) -> Acknowledged:
    """Beat: extends all leases of the worker."""
    worker, guard, known = exchange.path("worker"), guard_of(exchange), await registered(exchange)
    hub = guard.hub
    stored = exchange.caller.worker(worker)
    query = Query(worker=stored, states=(State.RUNNING,), limit=MOST_HELD)
    page = await hub.runner.arun(hub.engine.search(query))
    held = [Extension(Lease(task.id, task.lease), LEASE) for task in page.records if task.worker == stored]
    if held:
        await guard.call("extend", held)
    known = structs.replace(known, queues=await all_queues(exchange))
    state = await register(exchange, worker, known, running=exchange.body.current_load)
    return Acknowledged(acknowledged=True, status=state)
