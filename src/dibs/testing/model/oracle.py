"""The oracle: what each verb of the seam should come to, by the simplest code that says it.

`dibs.core` says what becomes of one task. The rest is decided here, apart from the engines and from the decisions that
they share: which task is let in, which goes first, which may start, whose report about a run counts. The oracle looks
at all tasks whenever it wants to know something, bounds nothing and keeps no index. `oracle_contents` is what it
keeps and shows, `oracle_acts` what operators do to it; here is what producers, workers and time do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec import structs

from dibs.core import limits, moves
from dibs.core.graph import Verdict, judge
from dibs.core.lease import is_exhausted, span_left, taken_until
from dibs.core.limits import Scope
from dibs.core.policy import KEEP_AUDIT
from dibs.core.recurrence import Overlap, Recurrence, first_fire
from dibs.core.schedules import ScheduleRecord, ScheduleState, fire_id, plan, task_of
from dibs.core.settings import Limit
from dibs.core.states import ENDED, UNFINISHED, WAITING, State
from dibs.core.task import EndedBy, HistoryEntry, HistoryEvent, Lease, NewTask, QueueState, Settlement, TaskRecord
from dibs.core.times import DAY, Instant, day_of
from dibs.engines.values import (
    ACCEPTED,
    REJECTED,
    Changed,
    Claimed,
    ClaimRequest,
    Counter,
    EnqueueAnswer,
    EnqueueOutcome,
    ExtendAnswer,
    ExtendOutcome,
    Extension,
    Fired,
    Need,
    NewWorkflow,
    Rescued,
    SettleAnswer,
    SettleOutcome,
    WorkflowRecord,
    settle_answer,
)
from dibs.testing.model.oracle_acts import Acts
from dibs.testing.model.oracle_contents import HeldKey

__all__ = ["Oracle"]

DELAYED = (State.SCHEDULED, State.RETRYING)
SCHEDULER = "schedule"
"""The client of the tasks that schedules enqueue; no limit on enqueueing holds for it."""


class Oracle(Acts):
    """All verbs that the model test compares, named and answered as in an engine."""

    # Producing.

    async def enqueue(
        self, tasks: Sequence[NewTask], *, atomic: bool = False, workflow: NewWorkflow | None = None, now: Instant
    ) -> list[EnqueueAnswer]:
        with self.verb(now):
            before = self.snapshot()
            if workflow is not None and workflow.id not in self.workflow_records:
                begun = WorkflowRecord(id=workflow.id, name=workflow.name, created_at=now, total=0, counts={})
                self.workflow_records[workflow.id] = begun
            answers = [self.enqueue_one(new) for new in tasks]
            if atomic and any(answer.outcome not in ACCEPTED for answer in answers):
                vars(self).update(before)
                abandoned = EnqueueOutcome.ABANDONED
                answers = [a if a.outcome not in ACCEPTED else EnqueueAnswer(abandoned, a.id) for a in answers]
            for new, answer in zip(tasks, answers, strict=True):
                self.counters[new.queue, Counter.REJECTED] += answer.outcome in REJECTED
                self.counters[new.queue, Counter.DUPLICATES] += answer.outcome is EnqueueOutcome.DUPLICATE
            return answers

    def enqueue_one(self, new: NewTask) -> EnqueueAnswer:
        """The first check that objects answers. If none does, the task is stored."""
        checks = (self.known_id, self.unknown_need, self.held_key, self.draining, self.too_fast, self.full)
        return next((answer for check in checks if (answer := check(new)) is not None), None) or self.store(new)

    def known_id(self, new: NewTask) -> EnqueueAnswer | None:
        if (there := self.tasks.get(new.id)) is None:
            return None
        same = (there.name, there.queue, there.args) == (new.name, new.queue, new.args)
        return EnqueueAnswer(EnqueueOutcome.EXISTS if same else EnqueueOutcome.TAKEN, new.id, there.state)

    def unknown_need(self, new: NewTask) -> EnqueueAnswer | None:
        unknown = [edge.id for edge in new.after if edge.id not in self.tasks]
        return EnqueueAnswer(EnqueueOutcome.UNKNOWN, unknown[0]) if unknown else None

    def held_key(self, new: NewTask) -> EnqueueAnswer | None:
        """A key is held until its window has passed, and for as long as its task is unfinished."""
        held = self.keys.get((new.queue, new.spec.key or ""))
        task = None if held is None else self.tasks.get(held.task)
        if held is None or not (self.now < held.until or (task is not None and task.state in UNFINISHED)):
            return None
        if new.replace:
            return self.replace(task, new) if task is not None and task.state in WAITING else None
        outcome = EnqueueOutcome.DUPLICATE if held.fingerprint == new.fingerprint else EnqueueOutcome.CONFLICT
        return EnqueueAnswer(outcome, held.task, None if task is None else task.state)

    def replace(self, task: TaskRecord, new: NewTask) -> EnqueueAnswer:
        if task.name != new.name:
            return EnqueueAnswer(EnqueueOutcome.CONFLICT, task.id, task.state)
        self.put(*moves.replaced(task, new, self.settings(task.queue), self.now))
        self.hold_key(new, task.id)
        return EnqueueAnswer(EnqueueOutcome.REPLACED, task.id, self.tasks[task.id].state)

    def hold_key(self, new: NewTask, task_id: str) -> None:
        if new.spec.key is not None:
            self.keys[new.queue, new.spec.key] = HeldKey(task_id, new.fingerprint, self.now + new.window)

    def draining(self, new: NewTask) -> EnqueueAnswer | None:
        is_draining = self.is_in(new.queue, QueueState.DRAINING)
        return EnqueueAnswer(EnqueueOutcome.DRAINING, new.id) if is_draining else None

    def too_fast(self, new: NewTask) -> EnqueueAnswer | None:
        if (limit := self.client_limit(new)) is None:
            return None
        bucket = self.bucket(new.queue, Scope.CLIENT, new.client, limit)
        wait = None if limits.tokens(bucket) else limits.until_token(bucket, limit)
        return None if wait is None else EnqueueAnswer(EnqueueOutcome.LIMITED, new.id, retry_in=wait)

    def client_limit(self, new: NewTask) -> Limit | None:
        return None if new.client == SCHEDULER else limits.client_limit(self.settings(new.queue))

    def full(self, new: NewTask) -> EnqueueAnswer | None:
        """Only what would be pending at once can be too much."""
        most = self.settings(new.queue).max_depth
        if most is None or len(self.pending(new.queue)) < most or self.admitted(new).state is not State.PENDING:
            return None
        return EnqueueAnswer(EnqueueOutcome.FULL, new.id)

    def admitted(self, new: NewTask) -> TaskRecord:
        blocked = self.verdict(new)[0] is not Verdict.GO
        return moves.admit(new, self.settings(new.queue), self.now, blocked=blocked)

    def verdict(self, new: NewTask) -> tuple[Verdict, EndedBy | None]:
        """What the edges of a new task say together: the first that ends it, else any that makes it wait."""
        found = [(judge(edge.rule, self.tasks[edge.id].state), self.tasks[edge.id]) for edge in new.after]
        for verdict, task in found:
            if verdict in (Verdict.CANCEL, Verdict.BURY):
                return verdict, EndedBy(task.id, task.state)
        return Verdict.WAIT if any(verdict is Verdict.WAIT for verdict, _ in found) else Verdict.GO, None

    def store(self, new: NewTask) -> EnqueueAnswer:
        verdict, cause = self.verdict(new)
        waits = verdict is Verdict.WAIT
        self.make_queue(new.queue)
        self.put(self.admitted(new))
        self.needs[new.id] = [Need(e.id, e.rule, waits and self.tasks[e.id].state in UNFINISHED) for e in new.after]
        if cause is not None:
            self.put(*moves.ended_by(self.tasks[new.id], verdict, cause, self.now))
        self.hold_key(new, new.id)
        self.counters[new.queue, Counter.ENQUEUED] += 1
        self.spend(new.queue, Scope.CLIENT, new.client, self.client_limit(new))
        if (workflow := self.workflow_records.get(new.spec.workflow or "")) is not None:
            self.workflow_records[workflow.id] = structs.replace(workflow, total=workflow.total + 1)
        return EnqueueAnswer(EnqueueOutcome.ENQUEUED, new.id, self.tasks[new.id].state)

    def spend(self, queue: str, scope: Scope, whose: str, limit: Limit | None) -> None:
        if limit is not None and limit.rate is not None:
            self.buckets[queue, scope, whose] = limits.spend(self.bucket(queue, scope, whose, limit), 1)

    # Consuming.

    async def claim(self, request: ClaimRequest, *, now: Instant) -> Claimed:
        with self.verb(now):
            given = self.given_before(request) if request.repeat else []
            if not given:
                self.bring_up_to_date()
                given = self.choose(request)
            tasks = [moves.leased(task, self.settings(task.queue)) for task in given]
            return Claimed(tasks, self.next_due_in(request))

    def given_before(self, request: ClaimRequest) -> list[TaskRecord]:
        """What the same claim took when it was made first, as far as it still runs."""
        asked, running = (request.worker, request.sequence), self.tasks_in({State.RUNNING})
        return [task for task in running if (task.worker, task.sequence) == asked]

    def bring_up_to_date(self) -> None:
        """End what has expired, promote what is due, and follow up."""
        for task in self.overdue(WAITING, lambda task: task.spec.expires_at, self.now):
            self.put(*moves.expired(task, self.now))
        for task in self.overdue(DELAYED, lambda task: task.due_at, self.now):
            self.put(moves.promoted(task))
        self.follow_up()

    def overdue(
        self, states: Collection[State], instant: Callable[[TaskRecord], Instant | None], now: Instant
    ) -> list[TaskRecord]:
        """The tasks in some states whose time has come, in the order in which it came."""
        found = [(at, task.id) for task in self.tasks_in(states) if (at := instant(task)) is not None and at <= now]
        return [self.tasks[task_id] for _, task_id in sorted(found)]

    def choose(self, request: ClaimRequest) -> list[TaskRecord]:
        """Again and again the best of those that the queues would give next."""
        given: list[TaskRecord] = []
        while len(given) < request.limit + request.prefetch:
            heads = []
            for place, queue in enumerate(self.served(request)):
                if eligible := [task for task in self.pending(queue) if self.may_start(task, request, given)]:
                    heads.append((place if request.in_order else 0, place, self.foremost(eligible)))
            if not heads:
                break
            _, _, best = min(heads, key=lambda each: (each[0], self.order(each[2], each[1])))
            given.append(self.start(best, request))
        return given

    def served(self, request: ClaimRequest) -> list[str]:
        names = [name for name in dict.fromkeys(request.queues) if name in self.queue_records]
        return [name for name in names if not self.is_in(name, QueueState.PAUSED)]

    def may_start(self, task: TaskRecord, request: ClaimRequest, given: list[TaskRecord]) -> bool:
        if request.names is not None and task.name not in request.names:
            return False
        if not set(task.requires) <= set(request.capabilities):
            return False
        if len(given) >= request.limit and self.settings(task.queue).limits_starts:
            return False  # more than asked for is taken only where nobody else would miss it
        below = [floor for floor in request.floors if self.effective(task) < floor.effective]
        if any(sum(self.effective(each) < floor.effective for each in given) >= floor.below for floor in below):
            return False
        return not any(limit.is_full for limit in self.limits_of(task))

    def start(self, task: TaskRecord, request: ClaimRequest) -> TaskRecord:
        for scope, whose, limit in limits.limits_for(self.settings(task.queue), task.name, task.spec.partition):
            self.spend(task.queue, scope, whose, limit)
        self.charge(task)
        self.counters[task.queue, Counter.CLAIMED] += 1
        self.put(moves.claimed(task, request.worker, request.sequence, request.lease, self.now))
        return self.tasks[task.id]

    def next_due_in(self, request: ClaimRequest) -> int | None:
        """Until a task is due or expires, or a limit that holds one up has a token again."""
        instants = [task.due_at for task in self.tasks_in(DELAYED)]
        instants += [task.spec.expires_at for task in self.tasks_in(WAITING)]
        waits = [max(0, at - self.now) for at in instants if at is not None]
        pending = [task for queue in self.served(request) for task in self.pending(queue)]
        waits += [limit.opens_in for task in pending for limit in self.limits_of(task) if limit.opens_in is not None]
        return min(waits, default=None)

    def holds(self, lease: Lease) -> bool:
        """The fence."""
        task = self.tasks.get(lease.id)
        return task is not None and task.state is State.RUNNING and task.lease == lease.number

    async def extend(self, extensions: Sequence[Extension], *, now: Instant) -> list[ExtendAnswer]:
        with self.verb(now):
            return [self.extend_one(each) for each in extensions]

    def extend_one(self, extension: Extension) -> ExtendAnswer:
        if not self.holds(extension.lease):
            return ExtendAnswer(ExtendOutcome.LOST)
        until = self.now + span_left(extension.by, extension.ran)
        task = structs.replace(self.tasks[extension.lease.id], lease_expires_at=until)
        if extension.progress is not None:
            task = structs.replace(task, progress=extension.progress, progress_message=extension.message)
        self.put(task)
        if task.cancel_reason is not None:
            return ExtendAnswer(ExtendOutcome.CANCEL, until, task.cancel_reason)
        return ExtendAnswer(ExtendOutcome.EXHAUSTED if is_exhausted(extension.ran) else ExtendOutcome.HELD, until)

    async def settle(self, settlements: Sequence[Settlement], *, now: Instant) -> list[SettleAnswer]:
        with self.verb(now):
            return [self.settle_one(settlement) for settlement in settlements]

    def settle_one(self, settlement: Settlement) -> SettleAnswer:
        lease, task = settlement.lease, self.tasks.get(settlement.lease.id)
        if task is not None and self.holds(lease):
            after, entry = moves.settled(task, settlement, self.settings_if_exists(task.queue), self.now)
            self.put(after, entry)
            self.counters[task.queue, Counter.RETRIES] += after.state is State.RETRYING
            return settle_answer(SettleOutcome.DONE, after, self.now)
        if task is not None and task.settled_lease == lease.number > 0:
            return settle_answer(SettleOutcome.ALREADY, task, self.now)
        self.counters[task.queue if task else "", Counter.REFUSED] += 1
        if task is not None and task.state in UNFINISHED:
            note = f"a late {settlement.outcome} by lease {lease.number}"
            self.note(task.id, HistoryEntry(at=self.now, event=HistoryEvent.REFUSED, lease=lease.number, note=note))
        return SettleAnswer(SettleOutcome.REFUSED)

    async def rescue(self, *, ended_by: Instant | None, not_after: Instant | None, now: Instant) -> Rescued:
        with self.verb(now):
            until = taken_until(now, ended_by, not_after)
            if until is None:
                return Rescued(at=now, stalled=True)
            lost = self.overdue({State.RUNNING}, lambda task: task.lease_expires_at, until)
            for task in lost:
                self.put(*moves.lost(task, self.settings_if_exists(task.queue), now))
                self.counters[task.queue, Counter.LOSSES] += 1
            return Rescued([task.id for task in lost], at=now)

    # Schedules.

    async def set_schedule(
        self, name: str, recurrence: Recurrence, task: NewTask, *, declared: bool, actor: str, now: Instant
    ) -> Changed:
        """Another recurrence starts again; with the same one, the next fire stays."""
        with self.verb(now):
            first, old = first_fire(recurrence, now), self.schedule_records.get(name)
            new = old or ScheduleRecord(name=name, recurrence=recurrence, task=task, next_fire_at=first, created_at=now)
            if new.recurrence != recurrence:
                new = structs.replace(new, recurrence=recurrence, next_fire_at=first)
            if declared:
                new = structs.replace(new, declared=True, declared_at=now)
            self.schedule_records[name] = structs.replace(new, task=task)
            is_same = old is not None and (old.recurrence, old.task) == (recurrence, task)
            return Changed.UNCHANGED if is_same else self.log(actor, "set schedule", name)

    async def set_schedule_state(self, name: str, state: ScheduleState, *, actor: str, now: Instant) -> Changed:
        with self.verb(now):
            if (old := self.schedule_records.get(name)) is None:
                return Changed.UNKNOWN
            if state is ScheduleState.DELETED:
                del self.schedule_records[name]
                return self.log(actor, "delete schedule", name)
            paused = state is ScheduleState.PAUSED
            if old.paused is paused:
                return Changed.UNCHANGED
            next_fire_at = old.next_fire_at if paused else first_fire(old.recurrence, now)
            self.schedule_records[name] = structs.replace(old, paused=paused, next_fire_at=next_fire_at)
            return self.log(actor, "pause schedule" if paused else "resume schedule", name)

    async def fire(self, *, now: Instant) -> Fired:
        active = [record for record in self.schedule_records.values() if not record.paused]
        due = [record for record in active if record.next_fire_at <= now]
        fired = [await self.fire_one(record, now) for record in sorted(due, key=lambda r: (r.next_fire_at, r.name))]
        upcoming = [max(0, self.schedule_records[record.name].next_fire_at - now) for record in active]
        tasks = [task_id for each in fired for task_id in each.tasks]
        return Fired(tasks, sum(each.skipped for each in fired), min(upcoming, default=None))

    async def fire_one(self, record: ScheduleRecord, now: Instant) -> Fired:
        """Enqueue what is due and move on, or leave it all for when the queue takes it."""
        planned, last = plan(record, now), self.tasks.get(record.last_task or "")
        overlaps = record.recurrence.overlap is Overlap.SKIP and last is not None and last.state in UNFINISHED
        fires = () if overlaps else planned.fires
        tasks = [structs.replace(task_of(record, at, fire_id(record.name, at)), client=SCHEDULER) for at in fires]
        answers = await self.enqueue(tasks, atomic=True, now=now)
        if any(answer.outcome in REJECTED for answer in answers):
            return Fired()
        skipped = planned.skipped + len(planned.fires) - len(fires)
        self.schedule_records[record.name] = structs.replace(
            record,
            next_fire_at=planned.next_fire_at,
            last_fire_at=fires[-1] if fires else record.last_fire_at,
            last_task=answers[-1].id if answers else record.last_task,
            fired=record.fired + len(fires),
            skipped=record.skipped + skipped,
        )
        return Fired([answer.id for answer in answers], skipped)

    # Keeping: what the chores of an engine come to when they are done.

    def rerank(self, now: Instant) -> None:
        for task in self.tasks_in(WAITING):
            self.put(moves.reranked(task, self.settings(task.queue), now))

    def prune(self, now: Instant) -> None:
        """Forget tasks that were kept long enough, workflows without tasks, old log lines, buckets without a limit."""
        for task in self.tasks_in(ENDED):
            settings = self.settings(task.queue)
            keep = settings.keep_dead if task.state is State.DEAD else settings.keep
            if (day_of(task.finished_at or 0) + 1) * DAY <= now - keep:
                self.remove(task)
        self.workflow_records = {key: each for key, each in self.workflow_records.items() if self.members(key)}
        self.audit_log = [entry for entry in self.audit_log if entry.at + KEEP_AUDIT > now]
        self.buckets = {whose: bucket for whose, bucket in self.buckets.items() if self.has_rate(*whose)}

    def has_rate(self, queue: str, scope: Scope, whose: str) -> bool:
        limit = limits.limit_of(self.settings(queue), scope, whose)
        return limit is not None and limit.rate is not None
