"""The oracle: what each verb of the seam comes to, by the simplest code that says it.

`dibs.core` says what becomes of one task. The rest is decided here, apart from the engines and from what they share:
which task is let in, which goes first, which may start, whose report about a run counts, what follows when one ends.
It looks at everything whenever it is asked, bounds nothing and has no index. `Model` gives it the face of an engine.
"""

from __future__ import annotations

from collections import Counter as Numbers
from collections.abc import Collection, Sequence
from copy import copy
from operator import attrgetter
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from dibs.core import fairness, limits, moves, priority, schedules
from dibs.core import task as core
from dibs.core.graph import Edge, Verdict, judge
from dibs.core.lease import is_exhausted, span_left, taken_until
from dibs.core.limits import LimitState, Scope
from dibs.core.recurrence import Overlap, Recurrence, first_fire
from dibs.core.schedules import ScheduleRecord, ScheduleState
from dibs.core.settings import Limit, QueueSettings, tier_of
from dibs.core.states import ENDED, UNFINISHED, WAITING, Reason, State
from dibs.core.task import EndedBy, HistoryEntry, NewTask, QueueRecord, QueueState, Settlement, TaskRecord
from dibs.core.times import Instant
from dibs.engines import values
from dibs.engines.figures import Counter
from dibs.engines.values import ACCEPTED, REJECTED, Changed, EnqueueAnswer, EnqueueOutcome

__all__ = ["PENDING", "Oracle"]

Lane = tuple[str, str, int]  # its queue, its share and its number
PENDING, RUNNING, DELAYED = {State.PENDING}, {State.RUNNING}, {State.SCHEDULED, State.RETRYING}
CHANGED_BY = {values.Cancel: UNFINISHED, core.Edit: WAITING, values.Replay: {State.DEAD}, values.Purge: ENDED}
COUNTED = {EnqueueOutcome.DUPLICATE: Counter.DUPLICATES, EnqueueOutcome.LIMITED: Counter.LIMITED}
COUNTED |= dict.fromkeys((EnqueueOutcome.FULL, EnqueueOutcome.DRAINING), Counter.REJECTED)
SCHEDULER = "schedule"  # the client of the tasks that schedules enqueue; no limit on enqueueing holds for it


class Oracle:
    """All that there is, and the verbs that change it."""

    def __init__(self) -> None:
        self.now, self.actor = 0, ""
        self.tasks: dict[str, TaskRecord] = {}
        self.histories: dict[str, list[HistoryEntry]] = {}
        self.after: dict[str, tuple[Edge, ...]] = {}
        self.open: set[tuple[str, str]] = set()  # which task waits for which
        self.ended: list[EndedBy] = []  # what waits for them has not been judged yet
        self.keys: dict[tuple[str, str], tuple[str, str, Instant]] = {}  # the holder, its fingerprint, its window's end
        self.workflows: dict[str, values.WorkflowRecord] = {}
        self.queues: dict[str, QueueRecord] = {}
        self.turns: Numbers[tuple[str, ...]] = Numbers()  # clocks by (queue,), virtual times by (queue, share)
        self.buckets: dict[tuple[str, Scope, str], limits.Bucket] = {}
        self.schedules: dict[str, ScheduleRecord] = {}
        self.counters: Numbers[tuple[str, str, str, Counter]] = Numbers()  # by queue, and name and tier of a task
        self.errors: Numbers[tuple[str, str]] = Numbers()
        self.audit: list[values.AuditEntry] = []

    def queue(self, name: str) -> QueueRecord:
        """A queue that does not exist is active and has the default settings."""
        return self.queues.get(name, QueueRecord(name=name))

    def settings(self, task: TaskRecord) -> QueueSettings:
        return self.queue(task.queue).settings

    def tasks_in(self, states: Collection[State], queue: str | None = None) -> list[TaskRecord]:
        found = [task for task in self.tasks.values() if task.state in states and queue in (None, task.queue)]
        return sorted(found, key=lambda task: task.id)

    def overdue(self, states: Collection[State], instant: str, now: Instant) -> list[TaskRecord]:
        """The tasks in some states whose time has come, in the order in which it came."""
        at = attrgetter(instant)
        return sorted((task for task in self.tasks_in(states) if at(task) is not None and at(task) <= now), key=at)

    def put(self, task: TaskRecord, entry: HistoryEntry | None = None) -> None:
        """Make a record the current one. A task that has ended waits for nothing more."""
        self.count_move(self.tasks[task.id], task)
        self.tasks[task.id] = task
        if entry is not None:
            self.histories[task.id] = [*self.histories[task.id], entry][-core.HISTORY_LIMIT :]
        if task.state in ENDED:
            self.open = {edge for edge in self.open if edge[0] != task.id}
            self.ended.append(EndedBy(task.id, task.state))

    def count(self, counter: Counter, task: TaskRecord | None, queue: str = "") -> None:
        """Count what happened to a task or, if it is not stored, in a queue."""
        whose = (queue, "", "") if task is None else (task.queue, task.name, str(tier_of(task.spec.priority)))
        self.counters[*whose, counter] += 1

    def count_move(self, old: TaskRecord, new: TaskRecord) -> None:
        """Count how a task has ended, and the tiers that it has climbed by waiting."""
        if new.state in ENDED and old.state not in ENDED:
            name = "completions" if new.state is State.COMPLETED else f"{new.state}_{new.reason}"
            self.count(Counter(name), new)
        if old.state not in ENDED and old.urgency == new.urgency and None not in (old.ready_at, new.ready_at):
            for tier in priority.tiers_climbed(self.settings(new), old.rank_offset, new.rank_offset):
                self.count(Counter(f"promoted_{tier}"), new)

    def follow_up(self) -> None:
        """Before a verb answers: judge what waits for what has ended, and pass on the urgency of what still waits."""
        while self.ended:
            cause = self.ended.pop(0)
            for task in [self.tasks[dependent] for dependent in self.followers(cause.id)]:
                self.open.remove((task.id, cause.id))
                verdicts = [judge(edge.rule, cause.state) for edge in self.after[task.id] if edge.id == cause.id]
                if final := [verdict for verdict in verdicts if verdict is not Verdict.GO]:
                    self.put(*moves.ended_by(task, final[0], cause, self.now))
                elif not any(dependent == task.id for dependent, _ in self.open):
                    self.put(moves.unblocked(task, self.settings(task), self.now))
        for task in self.tasks_in(UNFINISHED):
            if task.inherited != (inherited := self.inherited(task.id)):
                self.put(moves.inherits(task, inherited, self.settings(task), self.now))

    def followers(self, task_id: str) -> list[str]:
        return sorted(dependent for dependent, needed in self.open if needed == task_id)

    def inherited(self, task_id: str) -> int:
        """The highest priority among the tasks that wait for a task, and among those that wait for them."""
        waiting = [self.tasks[dependent] for dependent in self.followers(task_id)]
        return max((max(task.spec.priority, self.inherited(task.id)) for task in waiting), default=0)

    def enqueue(
        self, tasks: Sequence[NewTask], atomic: bool = False, workflow: values.NewWorkflow | None = None
    ) -> list[EnqueueAnswer]:
        before = {name: copy(value) for name, value in vars(self).items()}
        if workflow is not None:
            begun = values.WorkflowRecord(id=workflow.id, name=workflow.name, created_at=self.now, total=0, counts={})
            self.workflows.setdefault(workflow.id, begun)
        answers = [self.enqueue_one(new) for new in tasks]
        if atomic and any(answer.outcome not in ACCEPTED for answer in answers):
            vars(self).update(before)
            answers = [EnqueueAnswer(EnqueueOutcome.ABANDONED, a.id) if a.outcome in ACCEPTED else a for a in answers]
        for new, answer in zip(tasks, answers, strict=True):
            if answer.outcome in COUNTED and not (new.waits and answer.outcome in REJECTED):
                self.count(COUNTED[answer.outcome], None, new.queue)
        return answers

    def enqueue_one(self, new: NewTask) -> EnqueueAnswer:
        """The first that objects answers. If nothing does, the task is stored."""
        if (there := self.tasks.get(new.id)) is not None:
            same = (there.name, there.queue, there.args) == (new.name, new.queue, new.args)
            return EnqueueAnswer(EnqueueOutcome.EXISTS if same else EnqueueOutcome.TAKEN, new.id, there.state)
        if unknown := [edge.id for edge in new.after if edge.id not in self.tasks]:
            return EnqueueAnswer(EnqueueOutcome.UNKNOWN, unknown[0])
        if (answer := self.ask_holder(new)) is not None:
            return answer
        queue = self.queue(new.queue)
        if queue.state is QueueState.DRAINING:
            return EnqueueAnswer(EnqueueOutcome.DRAINING, new.id)
        limit = None if new.client == SCHEDULER else limits.client_limit(queue.settings)
        if limit is not None and (state := self.limit_state(new.queue, Scope.CLIENT, new.client, limit)).is_full:
            return EnqueueAnswer(EnqueueOutcome.LIMITED, new.id, retry_in=state.opens_in)
        verdicts = {judge(edge.rule, self.tasks[edge.id].state) for edge in new.after}
        task = moves.admit(new, queue.settings, self.now, blocked=not verdicts <= {Verdict.GO})
        most, pending = queue.settings.max_depth, self.tasks_in(PENDING, new.queue)
        if task.state is State.PENDING and most is not None and len(pending) >= most:
            return EnqueueAnswer(EnqueueOutcome.FULL, new.id)
        self.spend(new.queue, Scope.CLIENT, new.client, limit)
        return self.store(new, task)

    def ask_holder(self, new: NewTask) -> EnqueueAnswer | None:
        """A key is held until its window has passed, and for as long as its task is unfinished."""
        holder, fingerprint, until = self.keys.get((new.queue, new.spec.key or ""), ("", "", 0))
        task = self.tasks.get(holder)
        state = None if task is None else task.state
        if (self.now >= until and state not in UNFINISHED) or (new.replace and state not in WAITING):
            return None
        if new.replace and task is not None and task.name == new.name:
            self.put(*moves.replaced(task, new, self.settings(task), self.now))
            return self.hold_key(new, EnqueueOutcome.REPLACED, task.id)
        is_repeat = fingerprint == new.fingerprint and not new.replace
        return EnqueueAnswer(EnqueueOutcome.DUPLICATE if is_repeat else EnqueueOutcome.CONFLICT, holder, state)

    def hold_key(self, new: NewTask, outcome: EnqueueOutcome, task_id: str) -> EnqueueAnswer:
        if new.spec.key is not None:
            self.keys[new.queue, new.spec.key] = (task_id, new.fingerprint, self.now + new.window)
        return EnqueueAnswer(outcome, task_id, self.tasks[task_id].state)

    def store(self, new: NewTask, task: TaskRecord) -> EnqueueAnswer:
        """What has ended already lets a task go that would wait for it, or ends it."""
        self.tasks[new.id], self.histories[new.id], self.after[new.id] = task, [], new.after
        self.count(Counter.ENQUEUED, task)
        if task.state is State.BLOCKED:
            needed = [self.tasks[edge.id] for edge in new.after]
            self.open |= {(new.id, each.id) for each in needed}
            self.ended = [EndedBy(each.id, each.state) for each in needed if each.state in ENDED]
            self.follow_up()
        self.queues[new.queue] = self.queue(new.queue)
        if (workflow := self.workflows.get(new.spec.workflow or "")) is not None:
            self.workflows[workflow.id] = replace(workflow, total=workflow.total + 1)
        return self.hold_key(new, EnqueueOutcome.ENQUEUED, new.id)

    def limit_state(self, queue: str, scope: Scope, whose: str, limit: Limit) -> LimitState:
        named = [(task.name if scope is Scope.TASK else task.spec.partition) for task in self.tasks_in(RUNNING, queue)]
        running = len(named) if scope is Scope.QUEUE else named.count(whose)
        return limits.limit_state(scope, whose, limit, running, self.buckets.get((queue, scope, whose)), self.now)

    def limits_of(self, task: TaskRecord) -> list[LimitState]:
        found = limits.limits_for(self.settings(task), task.name, task.spec.partition)
        return [self.limit_state(task.queue, *each) for each in found]

    def spend(self, queue: str, scope: Scope, whose: str, limit: Limit | None) -> None:
        if limit is not None and limit.rate is not None:
            bucket = limits.refill(self.buckets.get((queue, scope, whose)), limit, self.now)
            self.buckets[queue, scope, whose] = limits.spend(bucket, 1)

    def turn(self, queue: str, share: str) -> int:
        return fairness.start_virtual_time(self.turns[queue,], self.turns[queue, share])

    def take_turn(self, task: TaskRecord) -> None:
        """In a fair queue, the turn of a share is over when one of its tasks has been given out."""
        if (settings := self.settings(task)).fair:
            start = self.turns[task.queue,] = self.turn(task.queue, task.share)
            self.turns[task.queue, task.share] = fairness.next_virtual_time(settings, task.share, start)

    def foremost(self, tasks: list[TaskRecord]) -> TaskRecord:
        """Of these tasks of one queue: in the share whose turn it is, the first of each lane, and the best of them."""
        _, share = min((self.turn(task.queue, task.share), task.share) for task in tasks)
        by_rank = sorted((task for task in tasks if task.share == share), key=lambda task: (task.rank, task.id))
        return min({task.lane: task for task in reversed(by_rank)}.values(), key=self.order)

    def order(self, head: TaskRecord, place: int = 0) -> tuple[float, ...]:
        """How the heads of lanes are merged, and those of queues, which are served in the order of their places."""
        return (*priority.merge_key(self.effective(head), head.ready_at or 0, place), head.lane)

    def effective(self, task: TaskRecord) -> float:
        return priority.effective(task.rank, task.lane, self.settings(task), self.now)

    def claim(self, request: values.ClaimRequest) -> values.Claimed:
        """A repeated claim is given what it was given at first, as far as that still runs."""
        asked = (request.worker, request.sequence) if request.repeat else None
        given = [task for task in self.tasks_in(RUNNING) if (task.worker, task.sequence) == asked]
        served = [name for name in dict.fromkeys(request.queues) if self.queue(name).state is not QueueState.PAUSED]
        if not given:
            for task in self.overdue(WAITING, "spec.expires_at", self.now):
                self.put(*moves.expired(task, self.now))
            for task in self.overdue(DELAYED, "due_at", self.now):
                self.put(moves.promoted(task))
            self.follow_up()
            closed: set[Lane] = set()
            while len(given) < request.limit + request.prefetch and (best := self.choose(served, request, closed)):
                if self.is_reserved(best, request, given):
                    closed.add((best.queue, best.share, best.lane))
                    continue
                for each in limits.limits_for(self.settings(best), best.name, best.spec.partition):
                    self.spend(best.queue, *each)
                self.take_turn(best)
                self.count(Counter.CLAIMED, best)
                given.append(moves.claimed(best, request.worker, request.sequence, request.lease, self.now))
                self.put(given[-1])
        return values.Claimed([moves.leased(task, self.settings(task)) for task in given], self.next_due_in(served))

    def choose(self, served: list[str], request: values.ClaimRequest, closed: Collection[Lane]) -> TaskRecord | None:
        heads = []
        for place, queue in enumerate(served):
            if able := [task for task in self.tasks_in(PENDING, queue) if self.may_start(task, request, closed)]:
                head = self.foremost(able)
                heads.append((place if request.in_order else 0, self.order(head, place), head.id))
        return self.tasks[min(heads)[-1]] if heads else None

    def may_start(self, task: TaskRecord, request: values.ClaimRequest, closed: Collection[Lane]) -> bool:
        names = [task.name] if request.names is None else request.names
        if (task.queue, task.share, task.lane) in closed or task.name not in names:
            return False
        return {*task.requires} <= {*request.capabilities} and not any(each.is_full for each in self.limits_of(task))

    def is_reserved(self, task: TaskRecord, request: values.ClaimRequest, given: list[TaskRecord]) -> bool:
        """Whether a claim leaves a task to others, and with it the rest of its lane: it has enough of such tasks."""
        if len(given) >= request.limit and self.settings(task).limits_starts:
            return True
        below = [floor for floor in request.floors if self.effective(task) < floor.effective]
        return any(sum(self.effective(each) < floor.effective for each in given) >= floor.below for floor in below)

    def next_due_in(self, served: list[str]) -> int | None:
        """Until a task is due or expires, or a limit that holds one up has a token again."""
        instants = [task.due_at for task in self.tasks_in(DELAYED)]
        instants += [task.spec.expires_at for task in self.tasks_in(WAITING)]
        waits = [max(0, at - self.now) for at in instants if at is not None]
        pending = [task for queue in served for task in self.tasks_in(PENDING, queue)]
        waits += [limit.opens_in for task in pending for limit in self.limits_of(task) if limit.opens_in is not None]
        return min(waits, default=None)

    def held(self, lease: core.Lease) -> TaskRecord | None:
        """The fence: the task that runs under a lease."""
        task = self.tasks.get(lease.id)
        return task if task is not None and (task.state, task.lease) == (State.RUNNING, lease.number) else None

    def extend(self, extension: values.Extension) -> values.ExtendAnswer:
        if (task := self.held(extension.lease)) is None:
            return values.ExtendAnswer(values.ExtendOutcome.LOST)
        task = replace(task, lease_expires_at=self.now + span_left(extension.by, extension.ran))
        if extension.progress is not None:
            task = replace(task, progress=extension.progress, progress_message=extension.message)
        self.put(task)
        if task.cancel_reason is not None:
            return values.ExtendAnswer(values.ExtendOutcome.CANCEL, task.lease_expires_at, task.cancel_reason)
        outcome = values.ExtendOutcome.EXHAUSTED if is_exhausted(extension.ran) else values.ExtendOutcome.HELD
        return values.ExtendAnswer(outcome, task.lease_expires_at)

    def settle(self, settlement: Settlement) -> values.SettleAnswer:
        lease, task = settlement.lease, self.tasks.get(settlement.lease.id)
        if task is not None and self.held(lease):
            settings = self.settings(task) if task.queue in self.queues else None
            after, entry = moves.settled(task, settlement, settings, self.now)
            self.put(after, entry)
            self.count_run(task, after, settlement)
            return values.settle_answer(values.SettleOutcome.DONE, after, self.now)
        if task is not None and task.settled_lease == lease.number > 0:
            return values.settle_answer(values.SettleOutcome.ALREADY, task, self.now)
        self.count(Counter.REFUSED, task)
        if task is not None and task.state in UNFINISHED:
            note, event = f"a late {settlement.outcome}, by a lease that is over", core.HistoryEvent.REFUSED
            self.put(task, HistoryEntry(at=self.now, event=event, lease=lease.number, note=note))
        return values.SettleAnswer(values.SettleOutcome.REFUSED)

    def count_run(self, task: TaskRecord, after: TaskRecord, settlement: Settlement) -> None:
        """An attempt that fails is counted, and how; unless the task was asked to stop before."""
        if after.attempts > task.attempts:
            self.errors[task.queue, settlement.failure.type if settlement.failure else ""] += 1
            again, late = after.state is State.RETRYING, settlement.timed_out
            what = {Counter.FAILURES: True, Counter.RETRIES: again}
            what |= {Counter.TIMEOUTS: late, Counter.TIMEOUT_RETRIES: late and again}
        else:
            back = (settlement.outcome, after.state)
            what = {Counter.RELEASES: back == (core.Outcome.RELEASED, State.PENDING)}
            what |= {Counter.SNOOZES: back == (core.Outcome.SNOOZED, State.SCHEDULED)}
        for counter in (counter for counter, happened in what.items() if happened):
            self.count(counter, task)

    def rescue(self, ended_by: Instant | None, not_after: Instant | None) -> values.Rescued:
        if (until := taken_until(self.now, ended_by, not_after)) is None:
            return values.Rescued(at=self.now, stalled=True)
        lost = []
        for task in self.overdue(RUNNING, "lease_expires_at", until):
            after, entry = moves.lost(task, self.settings(task) if task.queue in self.queues else None, self.now)
            self.put(after, entry)
            self.count(Counter.LOSSES, task)
            lost.append(values.lost_task(task, after, self.now))
        return values.Rescued(lost, at=self.now)

    def log(self, act: str, target: str, detail: str = "", **facts: Any) -> Changed:
        entry = values.AuditEntry(at=self.now, actor=self.actor, act=act, target=target, detail=detail, **facts)
        self.audit.append(entry)
        return Changed.DONE

    def log_change(self, act: str, target: str, detail: str, old: dict[str, Any], new: dict[str, Any]) -> Changed:
        """Log what differs."""
        names = [name for name in old | new if old.get(name) != new.get(name)]
        before, after = ({name: facts.get(name) for name in names} for facts in (old, new))
        return self.log(act, target, detail, before=before, after=after)

    def act(self, act: values.Act) -> Changed:
        if isinstance(act, values.CancelWorkflow | values.ReplayWorkflow):
            return self.act_on_workflow(act)
        if (task := self.tasks.get(act.id)) is None:
            return Changed.UNKNOWN
        if task.state not in CHANGED_BY[type(act)]:
            return Changed.WRONG_STATE
        if isinstance(act, values.Cancel):
            if task.cancel_reason is None:
                self.put(*moves.cancelled(task, act.note, self.actor, self.now))
            return Changed.REQUESTED if task.state is State.RUNNING else Changed.DONE
        if isinstance(act, core.Edit):
            after, entry = moves.edited(task, act, self.settings(task), self.actor, self.now)
            self.put(after, entry)
            return Changed.UNCHANGED if entry is None else Changed.DONE
        if isinstance(act, values.Replay):
            return self.replay(task, act.queue, act.reset)
        del self.tasks[task.id], self.histories[task.id], self.after[task.id]
        self.keys = {place: held for place, held in self.keys.items() if (place[0], held[0]) != (task.queue, task.id)}
        return Changed.DONE

    def replay(self, task: TaskRecord, queue: str | None = None, reset: bool = True) -> Changed:
        name = queue or task.queue
        target = self.queues[name] = self.queue(name)
        if target.state is QueueState.DRAINING:
            return Changed.DRAINING
        self.put(*moves.replayed(task, target.settings, queue, reset, self.actor, self.now))
        self.count(Counter.REPLAYED, self.tasks[task.id])
        return Changed.DONE

    def act_on_workflow(self, act: values.CancelWorkflow | values.ReplayWorkflow) -> Changed:
        if act.id not in self.workflows:
            return Changed.UNKNOWN
        members = [task for task in self.tasks_in(UNFINISHED | ENDED) if task.spec.workflow == act.id]
        if isinstance(act, values.CancelWorkflow):
            found = [task for task in members if task.state in UNFINISHED and task.cancel_reason is None]
            for task in found:
                self.put(*moves.cancelled(task, act.note, self.actor, self.now))
        else:
            found = [task for task in members if task.state is State.DEAD or task.reason is Reason.DEPENDENCY]
            for task in found:
                self.replay_member(task, {each.id for each in found})
        return Changed.DONE if found else Changed.UNCHANGED

    def replay_member(self, task: TaskRecord, replayed: Collection[str]) -> None:
        """A dead member starts again; one that ended because of a dependency waits for what is replayed as well."""
        needed = [(edge.rule, self.tasks[edge.id]) for edge in self.after[task.id] if edge.id in self.tasks]
        awaited = [each.id for _, each in needed if each.state in UNFINISHED or each.id in replayed]
        self.queues[task.queue] = self.queue(task.queue)
        if task.reason is not Reason.DEPENDENCY:
            self.replay(task)
        elif all(judge(rule, each.state) is Verdict.GO for rule, each in needed if each.id not in awaited):
            self.put(*moves.reblocked(task, self.settings(task), self.actor, self.now))
            self.open |= {(task.id, each) for each in awaited}
            self.count(Counter.REPLAYED, task)
            if not awaited:
                self.put(moves.unblocked(self.tasks[task.id], self.settings(task), self.now))
        if self.tasks[task.id] is task:  # it stays as it ended; nothing that is replayed may wait for it for ever
            self.put(task)

    def set_queue(self, name: str, settings: QueueSettings, expected: int) -> QueueRecord | None:
        old, wanted = self.queue(name), replace(settings, version=expected + 1)
        if name in self.queues and old.settings == wanted:
            return old
        if expected != (old.settings.version if name in self.queues else 0):
            return None
        kept = asdict(replace(old.settings, version=wanted.version))
        changed = [f"{each}={value}" for each, value in asdict(wanted).items() if value != kept[each]]
        self.log_change("set queue", name, ", ".join(changed), to_builtins(kept), to_builtins(asdict(wanted)))
        self.queues[name] = replace(old, settings=wanted)
        return self.queues[name]

    def set_queue_state(self, name: str, state: QueueState) -> Changed:
        if name not in self.queues:
            return Changed.UNKNOWN
        if self.queues[name].state is state:
            return Changed.UNCHANGED
        old = self.queues[name]
        self.queues[name] = replace(old, state=state)
        return self.log_change(f"set queue {state}", name, "", {"state": old.state}, {"state": state})

    def delete_queue(self, name: str, force: bool) -> Changed:
        if name not in self.queues:
            return Changed.UNKNOWN
        if self.tasks_in(UNFINISHED, name) and not force:
            return Changed.WRONG_STATE
        for task in self.tasks_in(WAITING, name):
            self.put(*moves.buried(task, Reason.QUEUE, self.actor, self.now))
        gone, plain = self.queues.pop(name), asdict(QueueSettings())
        own = {each: to_builtins(value) for each, value in asdict(gone.settings).items() if value != plain[each]}
        own.pop("version", None)
        self.turns = Numbers({whose: at for whose, at in self.turns.items() if whose[0] != name})
        self.buckets = {whose: bucket for whose, bucket in self.buckets.items() if whose[0] != name}
        return self.log("delete queue", name, "force" if force else "", before={"state": gone.state, **own})

    def set_schedule(self, name: str, recurrence: Recurrence, task: NewTask, declared: bool) -> Changed:
        """Another recurrence starts again; with the same one, the next fire stays."""
        old, first = self.schedules.get(name), first_fire(recurrence, self.now)
        new = old or ScheduleRecord(name=name, recurrence=recurrence, task=task, next_fire_at=0, created_at=self.now)
        if old is None or old.recurrence != recurrence:
            new = replace(new, recurrence=recurrence, next_fire_at=first)
        if declared:
            new = replace(new, declared=True, declared_at=self.now)
        self.schedules[name] = replace(new, task=task)
        if old is not None and (old.recurrence, old.task) == (recurrence, task):
            return Changed.UNCHANGED
        return self.log_change("set schedule", name, "", facts_of(old), facts_of(self.schedules[name]))

    def set_schedule_state(self, name: str, state: ScheduleState) -> Changed:
        """A schedule that goes on does not make up for what it missed."""
        old, paused = self.schedules.get(name), state is ScheduleState.PAUSED
        if old is None:
            return Changed.UNKNOWN
        if state is ScheduleState.DELETED:
            del self.schedules[name]
            return self.log("delete schedule", name, before=facts_of(old))
        if old.paused is paused:
            return Changed.UNCHANGED
        next_fire_at = old.next_fire_at if paused else first_fire(old.recurrence, self.now)
        self.schedules[name] = new = replace(old, paused=paused, next_fire_at=next_fire_at)
        act = "pause schedule" if paused else "resume schedule"
        return self.log_change(act, name, "", facts_of(old), facts_of(new))

    def fire(self) -> values.Fired:
        """Enqueue what is due and move on; what a queue rejects is left for when it does not."""
        fired = values.Fired()
        active = [record for record in self.schedules.values() if not record.paused]
        for record in sorted(active, key=lambda record: (record.next_fire_at, record.name)):
            plan, last = schedules.plan(record, self.now), self.tasks.get(record.last_task or "")
            overlaps = last is not None and last.state in UNFINISHED and record.recurrence.overlap is Overlap.SKIP
            fires = () if overlaps else plan.fires
            tasks = [schedules.task_of(record, at, schedules.fire_id(record.name, at)) for at in fires]
            answers = self.enqueue([replace(task, client=SCHEDULER) for task in tasks], atomic=True)
            if any(answer.outcome in REJECTED for answer in answers):
                continue
            missed = plan.skipped + len(plan.fires) - len(fires)
            new = replace(record, next_fire_at=plan.next_fire_at, skipped=record.skipped + missed)
            if fires:
                new = replace(new, last_fire_at=fires[-1], last_task=answers[-1].id, fired=record.fired + len(fires))
            self.schedules[record.name] = new
            fired = values.Fired([*fired.tasks, *(answer.id for answer in answers)], fired.skipped + missed)
        upcoming = [max(0, self.schedules[record.name].next_fire_at - self.now) for record in active]
        return replace(fired, next_due_in=min(upcoming, default=None))


def facts_of(schedule: ScheduleRecord | None) -> dict[str, Any]:
    """What the log has of a schedule."""
    if schedule is None:
        return {}
    task, state = schedule.task, "paused" if schedule.paused else "active"
    about = {"task": task.name, "queue": task.queue, "priority": task.spec.priority, "args": task.args.decode()[:200]}
    return {"state": state, "recurrence": to_builtins(schedule.recurrence), **about}
