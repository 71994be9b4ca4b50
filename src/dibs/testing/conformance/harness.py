"""What the tests share: an engine, a clock that the test turns, and short ways to say common things."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from msgspec import structs

from dibs.core.graph import Edge, Rule
from dibs.core.ids import uuid7
from dibs.core.limits import LimitState
from dibs.core.settings import QueueSettings, change_settings
from dibs.core.states import State
from dibs.core.task import (
    HistoryEvent,
    Lease,
    LeasedTask,
    NewTask,
    Outcome,
    QueueRecord,
    Settlement,
    TaskRecord,
    with_spec,
)
from dibs.core.times import SECOND, Duration, Instant
from dibs.engines.base import Engine
from dibs.engines.figures import Counter
from dibs.engines.values import (
    Beat,
    ChoreRecord,
    Claimed,
    ClaimRequest,
    EnqueueOutcome,
    Need,
    NewWorkflow,
    Position,
    SettleOutcome,
    TenantRecord,
    Term,
    WorkerRecord,
    WorkflowRecord,
)
from dibs.testing.tasks import changed

__all__ = ["QUEUE", "START", "WORKER", "EngineFactory", "Harness", "edges", "lease_of"]

EngineFactory = Callable[[], Engine]
"""Makes an engine, not yet opened, on a new and empty store."""

START: Instant = 1_760_000_000 * SECOND
QUEUE = "default"
WORKER = "worker-1"
ENOUGH_STEPS = 1_000


def lease_of(task: LeasedTask) -> Lease:
    """The lease that a claimed task came with."""
    return Lease(task.id, task.lease)


def edges(*ids: str, rule: Rule = Rule.CANCEL) -> tuple[Edge, ...]:
    """Wait for these tasks."""
    return tuple(Edge(task_id, rule) for task_id in ids)


class Harness:
    """An open engine and the present moment."""

    def __init__(self, engine: Engine, now: Instant = START) -> None:
        self.engine = engine
        self.now = now
        self.made = 0
        self.sequence = 0

    def later(self, span: Duration) -> Instant:
        """Let time pass."""
        self.now += span
        return self.now

    def new_id(self) -> str:
        """A task id; each is greater than the one before."""
        self.made += 1
        return uuid7(START // 1_000 + self.made, 0, self.made)

    def new(self, **facts: object) -> NewTask:
        """A task not yet enqueued."""
        return changed(NewTask(id=self.new_id(), queue=QUEUE, name="work"), **facts)

    async def enqueue(self, *tasks: NewTask) -> list[str]:
        """Enqueue tasks that must all be accepted as new."""
        answers = await self.engine.enqueue(tasks, now=self.now)
        assert [answer.outcome for answer in answers] == [EnqueueOutcome.ENQUEUED] * len(tasks)
        assert [answer.id for answer in answers] == [task.id for task in tasks]
        return [answer.id for answer in answers]

    @asynccontextmanager
    async def blocking(self) -> AsyncIterator[Engine]:
        """Another engine on this store, as a caller that blocks has it."""
        engine = self.engine.sibling()
        await engine.open(lambda: True)
        try:
            yield engine
        finally:
            await engine.close()

    async def add(self, **facts: object) -> str:
        """Enqueue one new task."""
        return (await self.enqueue(self.new(**facts)))[0]

    async def add_many(self, count: int, **facts: object) -> list[str]:
        """Enqueue several like tasks at once."""
        return await self.enqueue(*(self.new(**facts) for _ in range(count)))

    async def follow(self, *needs: str, rule: Rule = Rule.CANCEL, **facts: object) -> str:
        """Enqueue one new task that waits for others."""
        return await self.add(after=edges(*needs, rule=rule), **facts)

    async def begin(self, *tasks: NewTask, name: str = "") -> str:
        """Enqueue tasks as the members of a new workflow."""
        workflow = NewWorkflow(self.new_id(), name)
        members = [with_spec(task, workflow=workflow.id) for task in tasks]
        answers = await self.engine.enqueue(members, atomic=True, workflow=workflow, now=self.now)
        assert [answer.outcome for answer in answers] == [EnqueueOutcome.ENQUEUED] * len(tasks)
        return workflow.id

    async def outcomes(self, *tasks: NewTask, atomic: bool = False) -> list[EnqueueOutcome]:
        """Enqueue tasks that may be refused."""
        return [answer.outcome for answer in await self.engine.enqueue(tasks, atomic=atomic, now=self.now)]

    def request(self, limit: int = 1, **facts: object) -> ClaimRequest:
        """A claim under the next sequence number."""
        self.sequence += 1
        plain = ClaimRequest(worker=WORKER, sequence=self.sequence, queues=(QUEUE,), limit=limit)
        return structs.replace(plain, **facts)

    async def claims(self, limit: int = 1, **facts: object) -> Claimed:
        """Claim, with the whole answer."""
        return await self.engine.claim(self.request(limit, **facts), now=self.now)

    async def claim(self, limit: int = 1, **facts: object) -> list[LeasedTask]:
        """Claim, with the tasks only."""
        return (await self.claims(limit, **facts)).tasks

    async def claim_ids(self, limit: int = 1, **facts: object) -> list[str]:
        """Claim, with the ids only."""
        return [task.id for task in await self.claim(limit, **facts)]

    async def start(self, **facts: object) -> LeasedTask:
        """Enqueue one new task and claim it."""
        task_id = await self.add(**facts)
        return await self.take(task_id)

    async def take(self, task_id: str) -> LeasedTask:
        """Claim the only task that can be claimed."""
        record = await self.record(task_id)
        tasks = await self.claim(queues=(record.queue,), capabilities=record.requires)
        assert [task.id for task in tasks] == [task_id]
        return tasks[0]

    async def settle(
        self, task: LeasedTask | Lease, outcome: Outcome = Outcome.COMPLETED, **facts: object
    ) -> SettleOutcome:
        """Report about one run."""
        lease = lease_of(task) if isinstance(task, LeasedTask) else task
        settlement = structs.replace(Settlement(lease=lease, outcome=outcome, delay=0), **facts)
        return (await self.engine.settle([settlement], now=self.now))[0].outcome

    async def ended(self, outcome: Outcome = Outcome.COMPLETED, **facts: object) -> str:
        """A new task that has been run and settled."""
        task = await self.start(**facts)
        assert await self.settle(task, outcome) is SettleOutcome.DONE
        return task.id

    async def finish(self, task_id: str, outcome: Outcome = Outcome.COMPLETED) -> None:
        """Claim the most urgent task, which must be this one, and settle it."""
        assert await self.settle(await self.take(task_id), outcome) is SettleOutcome.DONE

    async def run_follow_ups(self, most: int = ENOUGH_STEPS) -> int:
        """Claim nothing until no step has anything left to do; how many claims that took."""
        for steps in range(most):
            if (await self.claims(queues=("nowhere",))).next_due_in != 0:
                return steps
        raise AssertionError("there is always something left to do")

    async def record(self, task_id: str) -> TaskRecord:
        """A task that must be there."""
        (record,) = await self.engine.get([task_id])
        assert isinstance(record, TaskRecord)
        return record

    async def records(self, ids: Sequence[str]) -> list[TaskRecord]:
        """Tasks that must be there."""
        return [await self.record(task_id) for task_id in ids]

    async def state(self, task_id: str) -> State:
        return (await self.record(task_id)).state

    async def states(self, *ids: str) -> list[State]:
        return [await self.state(task_id) for task_id in ids]

    async def is_open(self, task_id: str) -> list[bool]:
        """Which edges of a task are open, in their order."""
        needs = await self.needs(task_id)
        return [need.is_open for need in needs]

    async def needs(self, task_id: str) -> list[Need]:
        """What a task waits or waited for."""
        return (await self.engine.edges([task_id]))[0].needs

    async def followers(self, task_id: str) -> list[str]:
        """Some tasks that wait for this one."""
        return (await self.engine.edges([task_id], followers=100))[0].followers

    async def workflow(self, workflow_id: str) -> WorkflowRecord | None:
        return next(iter(await self.engine.workflows([workflow_id])), None)

    async def position(self, task_id: str, queue: str = QUEUE) -> Position | None:
        """How many tasks of its queue go before it."""
        return (await self.engine.peek(queue, 0, until=task_id, now=self.now)).position

    async def limits(self, task_id: str, queue: str = QUEUE) -> list[LimitState]:
        """The limits that its start stands under."""
        return (await self.engine.standing(queue, [task_id], now=self.now)).limits[0]

    async def tenants(self, queue: str = QUEUE) -> list[TenantRecord]:
        return (await self.engine.standing(queue, tenants=100)).tenants

    async def events(self, task_id: str) -> list[HistoryEvent]:
        """What happened to a task, oldest first."""
        return [entry.event for entry in await self.engine.history(task_id)]

    async def counts(self, queue: str = QUEUE) -> dict[State, int]:
        """How many tasks a queue has by state, without zeros."""
        counts = (await self.engine.counts()).tasks
        return {state: count for state, count in counts.get(queue, {}).items() if count}

    async def counter(self, counter: Counter, queue: str = QUEUE) -> int:
        return ((await self.engine.counts()).counters).get(queue, {}).get(counter, 0)

    async def queue(self, name: str = QUEUE) -> QueueRecord | None:
        """A queue's record, if there is such a queue."""
        return next((record for record in await self.engine.queues() if record.name == name), None)

    async def peek(self, queue: str = QUEUE, limit: int = 100) -> list[str]:
        """The next tasks of a queue."""
        return [record.id for record in (await self.engine.peek(queue, limit, now=self.now)).tasks]

    async def set_queue(self, name: str = QUEUE, **changes: object) -> QueueRecord:
        """Change settings, given as people give them."""
        there = await self.queue(name)
        settings = change_settings(QueueSettings() if there is None else there.settings, changes)
        expected = 0 if there is None else there.settings.version
        changed = await self.engine.set_queue(name, settings, expected=expected, now=self.now)
        assert changed is not None
        return changed

    async def beat(self, worker: str = WORKER, **facts: object) -> None:
        """A sign of life."""
        await self.engine.beat(self.new_beat(worker, **facts), now=self.now)

    async def worker(self, worker: str) -> WorkerRecord | None:
        """A worker's record, if the store knows it."""
        return next((record for record in await self.engine.workers() if record.id == worker), None)

    def new_beat(self, worker: str = WORKER, **facts: object) -> Beat:
        beat = Beat(id=worker, host="here", pid=1, version="1", queues=(QUEUE,), names=None)
        return structs.replace(beat, **facts)

    async def lead(self, worker: str = "leader") -> Term:
        """Take or renew leadership, which must be free."""
        term = await self.engine.lead(worker, now=self.now)
        assert term is not None
        return term

    async def chore(self, name: str) -> ChoreRecord:
        """Do one step of a chore as the leader."""
        return await self.engine.chore(name, await self.lead(), now=self.now)

    async def finish_chore(self, name: str) -> None:
        """Do a chore until nothing is left of it."""
        for _ in range(ENOUGH_STEPS):
            record = await self.chore(name)
            assert not record.refused
            if not record.more:
                return
        raise AssertionError(f"the chore {name} never comes to an end")

    async def rerank(self) -> None:
        """Bring all ranks up to date."""
        await self.finish_chore("rerank")

    async def all_chores(self) -> None:
        """Do everything that a leader does."""
        for name in await self.chore_names():
            await self.finish_chore(name)

    async def chore_names(self) -> list[str]:
        return [record.name for record in (await self.engine.about()).chores]
