"""The engine of `shard=queue`: each queue is a store of its own, and nothing spans two of them.

What concerns one queue is done by its part. What concerns all is asked of all at the same time, and put together here.
What would have to be one step over several queues is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from msgspec import structs

from dibs.core.recurrence import Recurrence
from dibs.core.schedules import ScheduleRecord, ScheduleState
from dibs.core.settings import QueueSettings
from dibs.core.task import HistoryEntry, NewTask, QueueRecord, QueueState, Settlement, WorkerState
from dibs.core.times import Instant
from dibs.engines.base import Engine
from dibs.engines.events import EventPage, EventRequest
from dibs.engines.figures import Backlog, Counts, Minute, PoolUse
from dibs.engines.port import Port, Stored
from dibs.engines.redis.sharding import claims, merging
from dibs.engines.redis.sharding.parts import Parts
from dibs.engines.redis.sharding.shards import AWAY, Shard, answers_of
from dibs.engines.steps import ActOnAll, StepRecord
from dibs.engines.topics import SCHEDULES
from dibs.engines.values import (
    ACCEPTED,
    About,
    Act,
    AuditEntry,
    Beat,
    CancelWorkflow,
    Changed,
    ChoreRecord,
    Claimed,
    ClaimRequest,
    Edges,
    EnqueueAnswer,
    ExtendAnswer,
    Extension,
    Finding,
    Fired,
    NewWorkflow,
    Page,
    Peeked,
    Query,
    Replay,
    ReplayWorkflow,
    Rescued,
    SettleAnswer,
    Standing,
    Term,
    WorkerRecord,
    WorkflowRecord,
)
from dibs.errors import UsageError

__all__ = ["ShardedEngine"]


def refusal(what: str, instead: str) -> UsageError:
    return UsageError(f"{what} with shard=queue in the store's URL: {instead}, or leave shard=queue out.")


class ShardedEngine(Parts):
    """Tasks in Redis or Valkey, with a hash tag for each queue."""

    def sibling(self) -> Engine:
        return ShardedEngine(self.address, self._memory)

    # Tasks: the hot verbs.

    async def enqueue(
        self,
        tasks: Sequence[NewTask],
        *,
        atomic: bool = False,
        workflow: NewWorkflow | None = None,
        now: Instant | None = None,
    ) -> list[EnqueueAnswer]:
        if not tasks and workflow is None:
            return []
        queues = [task.queue for task in tasks]
        if (atomic or workflow is not None) and len(set(queues)) != 1:
            what = "a batch that is all or nothing" if workflow is None else "a workflow"
            raise refusal(
                f"{what} can't span queues ({', '.join(sorted(set(queues)))})", "put its tasks into one queue"
            )
        await self._check_near(tasks, workflow)
        if workflow is not None:
            self._memory.put([workflow.id], queues[0])
        answers = await self._batch(
            tasks,
            queues,
            lambda engine, part: engine.enqueue(part, atomic=atomic, workflow=workflow, now=now),
            create=True,
        )
        for task, answer in zip(tasks, answers, strict=True):
            if answer.outcome in ACCEPTED:
                self._memory.put([answer.id], task.queue)
        return answers

    async def _check_near(self, tasks: Sequence[NewTask], workflow: NewWorkflow | None) -> None:
        """Refuse tasks that belong to others of another queue."""
        here = {task.id: task.queue for task in tasks}
        needed = {edge.id for task in tasks for edge in task.after if edge.id not in here}
        here |= await self._locate(needed) if needed else {}
        for task in tasks:
            if any(here[edge.id] not in ("", task.queue) for edge in task.after):
                raise refusal("a task can't wait for one of another queue", "put them into one queue")
            begun = task.spec.workflow
            if begun is not None and (workflow is None or begun != workflow.id):
                place = await self._workflow_place(begun)
                if place not in ("", task.queue):
                    raise refusal("a task can't join a workflow of another queue", "put them into one queue")

    async def claim(self, request: ClaimRequest, *, now: Instant | None = None) -> Claimed:
        return await claims.claim(self._opened(), request, now)

    async def settle(self, settlements: Sequence[Settlement], *, now: Instant | None = None) -> list[SettleAnswer]:
        places = await self._locate(each.lease.id for each in settlements)
        where = [places[each.lease.id] for each in settlements]
        return await self._batch(settlements, where, lambda engine, part: engine.settle(part, now=now))

    async def extend(self, extensions: Sequence[Extension], *, now: Instant | None = None) -> list[ExtendAnswer]:
        places = await self._locate(each.lease.id for each in extensions)
        where = [places[each.lease.id] for each in extensions]
        return await self._batch(extensions, where, lambda engine, part: engine.extend(part, now=now))

    # Workers: each is known in the parts that it serves.

    async def beat(self, beat: Beat, *, now: Instant | None = None) -> WorkerState:
        shards = self._opened()
        queues = dict.fromkeys([*beat.queues, *(minute.queue for minute in beat.minutes)]) or [""]

        async def one(shard: Shard) -> WorkerState:
            minutes = [*shard.unsent, *(each for each in beat.minutes if each.queue == shard.queue)]
            shard.unsent = minutes
            state = await shard.engine.beat(structs.replace(beat, minutes=minutes), now=now)
            shard.unsent = []
            return state

        asked = await shards.ask(map(shards.shard, queues), one, create=True)
        return merging.state_to_obey([state for _, state in answers_of(asked, some=True)])

    async def leave(self, worker: str, *, now: Instant | None = None) -> None:
        await self._all(lambda engine: engine.leave(worker, now=now), root=True)

    async def workers(self) -> list[WorkerRecord]:
        return merging.workers(await self._all(lambda engine: engine.workers(), root=True))

    async def set_worker_state(
        self, worker: str, state: WorkerState, *, actor: str = "", now: Instant | None = None
    ) -> Changed:
        return merging.first_known(
            await self._all(lambda engine: engine.set_worker_state(worker, state, actor=actor, now=now), root=True)
        )

    # What workers do for everyone. A part that can't be reached waits; the others go on.

    async def rescue(
        self, *, ended_by: Instant | None = None, not_after: Instant | None = None, now: Instant | None = None
    ) -> Rescued:
        async def one(shard: Shard) -> Rescued:
            """By the clock of its own server."""
            ended = ended_by and ended_by + shard.ahead
            latest = None if not_after is None else not_after + shard.ahead
            return await shard.engine.rescue(ended_by=ended, not_after=latest, now=now)

        found = await self._each(one, root=True, some=True)
        at = found[0][1].at
        for shard, rescued in found:
            shard.ahead = rescued.at - at
        answer = merging.rescued([rescued for _, rescued in found])
        if answer.workers:
            with suppress(*AWAY):
                await self._root()._change(end_terms, answer.workers, now=now)
        return answer

    async def fire(self, *, now: Instant | None = None) -> Fired:
        return merging.fired(await self._all(lambda engine: engine.fire(now=now), some=True))

    async def lead(self, worker: str, *, now: Instant | None = None) -> Term | None:
        async def one(shard: Shard) -> None:
            shard.term = await shard.engine.lead(worker, now=now)

        term = await self._root().lead(worker, now=now)
        if term is not None:
            await self._lenient(one)
        return term

    async def resign(self, term: Term) -> None:
        async def one(shard: Shard) -> None:
            if shard.term is not None and shard.term.worker == term.worker:
                await shard.engine.resign(shard.term)
                shard.term = None

        await self._lenient(one)
        await self._root().resign(term)

    async def chore(self, name: str, term: Term, *, now: Instant | None = None) -> ChoreRecord:
        async def one(shard: Shard) -> ChoreRecord:
            if shard.term is None or shard.term.worker != term.worker:
                shard.term = await shard.engine.lead(term.worker, now=now)
            if shard.term is None:
                return ChoreRecord(name=name, refused=True)
            record = await shard.engine.chore(name, shard.term, now=now)
            if record.refused:
                shard.term = None
            elif name == "prune_audit" and not record.more:
                await self._opened().drop(shard)
            return record

        first = await self._root().chore(name, term, now=now)
        if first.refused:
            return first
        return merging.chore([first, *(record for _, record in await self._lenient(one) if not record.refused)])

    # Schedules: each is in the part of its queue.

    async def set_schedule(
        self,
        name: str,
        recurrence: Recurrence,
        task: NewTask,
        *,
        declared: bool,
        actor: str = "",
        now: Instant | None = None,
    ) -> Changed:
        there = await self._each(lambda shard: shard.engine.schedules())
        engine = await self._of(task.queue)
        answer = await engine.set_schedule(name, recurrence, task, declared=declared, actor=actor, now=now)
        for shard, records in there:
            if shard.queue != task.queue and any(record.name == name for record in records):
                await shard.engine.set_schedule_state(name, ScheduleState.DELETED, actor=actor, now=now)
        await self._opened().root.engine._opened().tell([SCHEDULES])
        return answer

    async def set_schedule_state(
        self, name: str, state: ScheduleState, *, actor: str = "", now: Instant | None = None
    ) -> Changed:
        return merging.first_known(
            await self._all(lambda engine: engine.set_schedule_state(name, state, actor=actor, now=now))
        )

    async def schedules(self) -> list[ScheduleRecord]:
        return merging.by_name(await self._all(lambda engine: engine.schedules()))

    # Queues.

    async def queues(self) -> list[QueueRecord]:
        return merging.by_name(await self._all(lambda engine: engine.queues()))

    async def set_queue(
        self, name: str, settings: QueueSettings, *, expected: int, actor: str = "", now: Instant | None = None
    ) -> QueueRecord | None:
        return await (await self._of(name)).set_queue(name, settings, expected=expected, actor=actor, now=now)

    async def set_queue_state(
        self, name: str, state: QueueState, *, actor: str = "", now: Instant | None = None
    ) -> Changed:
        return await (await self._find_part(name)).set_queue_state(name, state, actor=actor, now=now)

    async def delete_queue(
        self, name: str, *, force: bool = False, actor: str = "", now: Instant | None = None
    ) -> Changed:
        return await (await self._find_part(name)).delete_queue(name, force=force, actor=actor, now=now)

    async def peek(self, queue: str, limit: int, *, until: str | None = None, now: Instant | None = None) -> Peeked:
        return await (await self._find_part(queue)).peek(queue, limit, until=until, now=now)

    async def standing(
        self, queue: str, tasks: Sequence[str] = (), *, tenants: int = 0, now: Instant | None = None
    ) -> Standing:
        return await (await self._find_part(queue)).standing(queue, tasks, tenants=tenants, now=now)

    # Viewing.

    async def get(self, ids: Sequence[str]) -> list[Stored | None]:
        places = self._memory.places
        known = [each for each in dict.fromkeys(ids) if each in places]
        missing = [each for each in dict.fromkeys(ids) if each not in places]
        found = await self._find(missing, lambda engine: engine.get(missing)) if missing else {}
        if known:
            answers = await self._batch(
                known, [places.get(each, "") for each in known], lambda engine, part: engine.get(part)
            )
            found |= dict(zip(known, answers, strict=True))
        return [found.get(each) for each in ids]

    async def history(self, task_id: str) -> list[HistoryEntry]:
        return await (await self._find_part((await self._locate([task_id]))[task_id])).history(task_id)

    async def edges(self, ids: Sequence[str], *, followers: int = 0) -> list[Edges]:
        places = await self._locate(ids)
        return await self._batch(
            ids, [places[each] for each in ids], lambda engine, part: engine.edges(part, followers=followers)
        )

    async def search(self, query: Query) -> Page:
        return merging.page(await self._all(lambda engine: engine.search(query), query.queues), query.limit)

    async def counts(self) -> Counts:
        return merging.counts(await self._all(lambda engine: engine.counts()))

    async def backlog(self, *, now: Instant | None = None) -> list[Backlog]:
        return merging.flat(await self._all(lambda engine: engine.backlog(now=now)))

    async def stats(self, queue: str | None, since: int, until: int) -> list[Minute]:
        found = await self._all(lambda engine: engine.stats(queue, since, until), () if queue is None else (queue,))
        return sorted(merging.flat(found), key=lambda minute: minute.minute)

    async def workflows(
        self, ids: Sequence[str] | None = None, *, limit: int = 50, before: str | None = None
    ) -> list[WorkflowRecord]:
        found = await self._all(lambda engine: engine.workflows(ids, limit=limit, before=before))
        return merging.records(found, ids, limit)

    async def steps(
        self, ids: Sequence[str] | None = None, *, limit: int = 50, before: str | None = None
    ) -> list[StepRecord]:
        found = await self._all(lambda engine: engine.steps(ids, limit=limit, before=before), root=True)
        return merging.records(found, ids, limit)

    async def audit(self, limit: int = 100, *, before: int | None = None) -> list[AuditEntry]:
        if before is not None:
            raise refusal("the audit log can't be read page by page", "ask for more entries at once")
        return merging.audit(await self._all(lambda engine: engine.audit(limit)), limit)

    async def events(self, request: EventRequest, *, now: Instant | None = None) -> EventPage:
        if len(set(request.queues)) != 1:
            raise refusal("events can be read of one queue at a time only", "name one queue")
        return await (await self._of(request.queues[0])).events(request, now=now)

    def pool_use(self) -> PoolUse | None:
        return None

    async def about(self) -> About:
        return merging.about(await self._all(lambda engine: engine.about(), root=True, some=True), self.features)

    async def check(self, *, full: bool = False) -> list[Finding]:
        shards = self._opened()
        asked = [shards.root, *await shards.all()]
        return merging.findings(await shards.ask(asked, lambda shard: shard.engine.check(full=full), patiently=True))

    # Operating.

    async def act(self, acts: Sequence[Act], *, actor: str = "", now: Instant | None = None) -> list[Changed]:
        tasks = await self._locate(each.id for each in acts if not isinstance(each, CancelWorkflow | ReplayWorkflow))
        places = []
        for each in acts:
            if isinstance(each, CancelWorkflow | ReplayWorkflow):
                place = await self._workflow_place(each.id)
            else:
                place = tasks[each.id]
            check_stays(each, place)
            places.append(place)
        return await self._batch(acts, places, lambda engine, part: engine.act(part, actor=actor, now=now))

    async def act_on(
        self, step: str, query: Query, act: ActOnAll, *, actor: str = "", now: Instant | None = None
    ) -> StepRecord:
        if len(set(query.queues)) != 1:
            raise refusal("all tasks that match can be acted on in one queue at a time only", "name one queue")
        queue = query.queues[0]
        check_stays(act, queue)
        shard = await self._opened().find(queue)
        self._memory.put([step], shard.queue)
        return await shard.engine.act_on(step, query, act, actor=actor, now=now)

    async def advance(self, step: str, *, now: Instant | None = None) -> StepRecord | None:
        place = await self._locate_record(step, lambda engine: engine.steps([step]))
        return await (await self._find_part(place)).advance(step, now=now)


def check_stays(act: Act, queue: str) -> None:
    if isinstance(act, Replay) and queue and act.queue not in (None, queue):
        raise refusal("a task can't be replayed in another queue", f"replay it in {queue}")


async def end_terms(port: Port, workers: list[str]) -> None:
    """The root does not see workers die; the parts that they serve do."""
    await port.write("end_term", workers)
