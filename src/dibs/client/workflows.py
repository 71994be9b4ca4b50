"""`app.workflows`, and the workflow object that its producer gets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from dibs.attempt.context import Context
from dibs.client.blocking import Admin, blocking
from dibs.client.dependencies import Flow
from dibs.client.graph import WorkflowGraph, pages, read_graph
from dibs.client.handle import Handle
from dibs.client.producer import enqueue_many
from dibs.client.task import Call, check_own
from dibs.client.workflow_batch import assemble
from dibs.core.ids import check_id
from dibs.core.options import PAGE_LIMIT, check_label, check_note, check_number, check_reference, shown
from dibs.core.states import UNFINISHED, State
from dibs.core.times import patience, when
from dibs.engines.base import Engine
from dibs.engines.topics import ended_topic
from dibs.engines.values import (
    CancelWorkflow,
    Changed,
    EnqueueOutcome,
    NewWorkflow,
    Query,
    ReplayWorkflow,
    WorkflowRecord,
)
from dibs.errors import InvalidOption, UnknownWorkflow, WrongThread
from dibs.runtime.environment import actor

if TYPE_CHECKING:
    from dibs.client.app import Dibs

__all__ = ["Workflow", "WorkflowInfo", "WorkflowState", "Workflows", "begin"]

R = TypeVar("R")

WORKFLOW = "a workflow's id"
PAGE = 500

LOOK_AGAIN = 1.0
"""Seconds after which a wait looks even without a notification."""

APART = 0.02
"""Seconds between two looks: each task that ends notifies, and a workflow may have thousands."""


class WorkflowState(StrEnum):
    """The state of a workflow as a whole."""

    RUNNING = "running"
    """Some task is unfinished."""
    COMPLETED = "completed"
    """All have completed, or ended as was meant."""
    FAILED = "failed"
    """All have ended, some are dead."""
    CANCELLED = "cancelled"
    """All have ended, none is dead, some were cancelled for other reasons than `if_failed`."""


class WorkflowInfo(Struct, frozen=True, kw_only=True):
    """A workflow as it was when it was read. Tasks that retention has pruned are in `total` and in no count."""

    id: str
    """Its id."""
    name: str
    """As given to `enqueue_workflow`."""
    state: WorkflowState
    """Its state."""
    created_at: datetime | None
    """When it was made."""
    total: int
    """How many tasks it was made of."""
    ended: int
    """How many have ended."""
    counts: dict[State, int]
    """Tasks by state."""

    @property
    def is_done(self) -> bool:
        """No task is unfinished."""
        return self.state is not WorkflowState.RUNNING

    @property
    def progress(self) -> float:
        """The part of its tasks that have ended, from 0 to 1."""
        return self.ended / self.total if self.total else 1.0


WorkflowInfos = list[WorkflowInfo]
"""Named here, because inside the class `list` is a method."""


class Workflows(Admin):
    """Reading and changing workflows."""

    async def alist(self, limit: int = 50, before: str | None = None) -> WorkflowInfos:
        """Workflows, newest first; `before` is the id after which an earlier page ended."""
        check_number(limit, "limit", 1, PAGE_LIMIT)
        below = None if before is None else check_before(before)
        records = await self._ask(self.hub.engine.workflows(limit=limit, before=below))
        return [await self._info(record) for record in records]

    list = blocking(alist)

    async def aget(self, workflow_id: str) -> WorkflowInfo:
        """One workflow."""
        wanted = check_reference(workflow_id, WORKFLOW)
        records = await self._ask(self.hub.engine.workflows([wanted]))
        if not records:
            raise unknown(wanted)
        return await self._info(records[0])

    get = blocking(aget)

    async def _info(self, record: WorkflowRecord) -> WorkflowInfo:
        unfinished = sum(record.counts.get(state, 0) for state in UNFINISHED)
        return WorkflowInfo(
            id=record.id,
            name=record.name,
            state=await self._state(record, unfinished),
            created_at=when(record.created_at),
            total=record.total,
            ended=record.total - unfinished,
            counts={state: record.counts.get(state, 0) for state in State},
        )

    async def _state(self, record: WorkflowRecord, unfinished: int) -> WorkflowState:
        if unfinished:
            return WorkflowState.RUNNING
        if record.counts.get(State.DEAD):
            return WorkflowState.FAILED
        if not record.counts.get(State.CANCELLED):
            return WorkflowState.COMPLETED
        needed = await self._ask(any_needed(self.hub.engine, record.id))
        return WorkflowState.CANCELLED if needed else WorkflowState.COMPLETED

    async def acancel(self, workflow_id: str, reason: str = "") -> bool:
        """Cancel all its unfinished tasks; False if there are none."""
        wanted, note = check_reference(workflow_id, WORKFLOW), check_note(reason, "reason")
        return await self._act(CancelWorkflow(wanted, note))

    cancel = blocking(acancel)

    async def _act(self, act: CancelWorkflow | ReplayWorkflow) -> bool:
        """True if something changed, False if there was nothing to change."""
        asked = self.hub.engine.act([act], actor=actor(), now=self._now)
        (answer,) = await self._ask(asked)
        if answer is Changed.UNKNOWN:
            raise unknown(act.id)
        return answer is Changed.DONE

    async def areplay(self, workflow_id: str) -> bool:
        """Run its dead tasks again, and let those wait again that ended because of them; False if there are none."""
        return await self._act(ReplayWorkflow(check_reference(workflow_id, WORKFLOW)))

    replay = blocking(areplay)

    async def agraph(self, workflow_id: str) -> WorkflowGraph:
        """Its tasks and what each waits for."""
        info = await self.aget(workflow_id)
        return await self._ask(read_graph(self.hub.engine, info.id, info.name))

    graph = blocking(agraph)

    async def await_end(self, workflow_id: str, timeout: float | None = None) -> WorkflowInfo:
        """Wait until all its tasks have ended, however they ended; TimeoutError if that takes too long."""
        wanted, longest = check_reference(workflow_id, WORKFLOW), patience(timeout, "timeout")

        async def within() -> WorkflowInfo:
            try:
                async with asyncio.timeout(longest):
                    return await self._ended(wanted)
            except TimeoutError:
                info = await self.aget(wanted)
                had = f"{info.ended:,} of {info.total:,} tasks had"
                raise TimeoutError(f"workflow {wanted} had not ended after {longest:g} s: {had}.") from None

        return await self._ask(within())

    def wait(self, workflow_id: str, timeout: float | None = None) -> WorkflowInfo:
        """Wait until all its tasks have ended, however they ended; TimeoutError if that takes too long.

        Blocks; `await_end` is the async form. Inside a task it raises: it would hold a slot.
        """
        if Context.current_or_none() is not None:
            raise WrongThread("a blocking wait() inside a task would hold a slot: let a task wait with using(after=…).")
        self.hub.runner.serve()
        return self.hub.runner.run(self.await_end(workflow_id, timeout))

    async def _ended(self, workflow_id: str) -> WorkflowInfo:
        engine = self.hub.engine
        subscription = engine.subscribe([ended_topic(queue.name) for queue in await engine.queues()])
        try:
            while not (info := await self.aget(workflow_id)).is_done:
                await subscription.wait(LOOK_AGAIN)
                await asyncio.sleep(APART)
            return info
        finally:
            subscription.close()


class Workflow:
    """A workflow that was enqueued here. ``workflow[call]`` is the handle of one of its calls."""

    def __init__(self, workflows: Workflows, begun: NewWorkflow, handles: dict[str, Handle[Any]]) -> None:
        self.id = begun.id
        self.name = begun.name
        self.hub = workflows.hub
        self._workflows = workflows
        self._handles = handles

    def __repr__(self) -> str:
        return f"<Workflow {self.id} of {len(self._handles):,} tasks>"

    @property
    def handles(self) -> Sequence[Handle[Any]]:
        """The handles of its tasks, in the order of the flow."""
        return [*self._handles.values()]

    def __getitem__(self, call: Call[R]) -> Handle[R]:
        handle = self._handles.get(getattr(call, "id", ""))
        if handle is None:
            raise InvalidOption(f"{shown(call)} is not part of this workflow.")
        return handle

    async def astatus(self) -> WorkflowInfo:
        """Its present state and counts."""
        return await self._workflows.aget(self.id)

    status = blocking(astatus)

    async def acancel(self, reason: str = "") -> bool:
        """Cancel all its unfinished tasks; False if there are none."""
        return await self._workflows.acancel(self.id, reason)

    cancel = blocking(acancel)

    async def areplay(self) -> bool:
        """Run its dead tasks again, and let those wait again that ended because of them; False if there are none."""
        return await self._workflows.areplay(self.id)

    replay = blocking(areplay)

    async def agraph(self) -> WorkflowGraph:
        """Its tasks and what each waits for, to be drawn."""
        return await self._workflows.agraph(self.id)

    graph = blocking(agraph)

    async def await_end(self, timeout: float | None = None) -> WorkflowInfo:
        """Wait until all its tasks have ended, however they ended; TimeoutError if that takes too long."""
        return await self._workflows.await_end(self.id, timeout)

    def wait(self, timeout: float | None = None) -> WorkflowInfo:
        """Wait until all its tasks have ended, however they ended; TimeoutError if that takes too long."""
        return self._workflows.wait(self.id, timeout)


def check_before(before: object) -> str:
    try:
        return check_id(before)
    except InvalidOption:
        raise InvalidOption(f"before must be the id of a workflow, not {shown(before)}.") from None


async def begin(app: Dibs, flow: Flow[Any], name: str) -> Workflow:
    """Enqueue all calls of a flow, or none of them."""
    if name != "":
        check_label(name, "a workflow's name")
    batch = assemble(flow)
    for call in batch.calls:
        check_own(app, call.task)
    begun = NewWorkflow(batch.workflow, name)
    answers = await app.hub.runner.arun(enqueue_many(app.hub, batch.tasks, begun))
    there = {answer.id for answer in answers if answer.outcome is not EnqueueOutcome.ENQUEUED}
    handles = {
        call.id: app._handle(call.id, call.new.queue, call.task.definition, duplicate=call.id in there)
        for call in batch.calls
    }
    return Workflow(app.workflows, begun, handles)


async def any_needed(engine: Engine, workflow_id: str) -> bool:
    """Whether a cancelled task was needed: all are but those that were to clean up after a failure that never came."""
    members: set[str] = set()
    failed: set[str] = set()
    async for page in pages(engine, Query(workflow=workflow_id, states=(State.CANCELLED,), limit=PAGE)):
        for record in page.records:
            if record.ended_by is None:
                return True
            members.add(record.id)
            if record.ended_by.state is not State.COMPLETED:
                failed.add(record.ended_by.id)
    return not failed <= members


def unknown(workflow_id: str) -> UnknownWorkflow:
    return UnknownWorkflow(f"no workflow has the id {workflow_id}: it was never committed, or it has been pruned.")
