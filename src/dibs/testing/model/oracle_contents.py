"""What the oracle keeps, what can be seen of it, and what always follows when a task has changed.

Everything is in plain dicts and lists, and whatever is asked is found by looking at all of it. Records are values: a
change puts another record in the place of the old one. So a copy of the dicts is a copy of everything, and going back
to it undoes what was done since.
"""

from __future__ import annotations

from collections import Counter as Numbers
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial

from msgspec import Struct, structs

from dibs.core import limits, moves
from dibs.core.fairness import next_virtual_time, start_virtual_time
from dibs.core.graph import Verdict, judge
from dibs.core.limits import Bucket, LimitState, Scope
from dibs.core.priority import effective, merge_key
from dibs.core.schedules import ScheduleRecord
from dibs.core.settings import Limit, QueueSettings
from dibs.core.states import ENDED, UNFINISHED, State
from dibs.core.task import HISTORY_LIMIT, EndedBy, HistoryEntry, QueueRecord, QueueState, TaskRecord
from dibs.core.times import Instant
from dibs.engines.values import (
    AuditEntry,
    Counter,
    Counts,
    Edges,
    Need,
    Page,
    Peeked,
    Position,
    Query,
    Standing,
    TenantRecord,
    UnreadableTask,
    WorkflowRecord,
)

__all__ = ["Contents", "HeldKey"]

ANY = frozenset(State)


class HeldKey(Struct, frozen=True):
    """What an idempotency key stands for."""

    task: str
    fingerprint: str
    until: Instant


class Contents:
    """All that there is, and the verbs that look at it."""

    def __init__(self) -> None:
        self.now: Instant = 0
        self.tasks: dict[str, TaskRecord] = {}
        self.histories: dict[str, list[HistoryEntry]] = {}
        self.needs: dict[str, list[Need]] = {}
        self.keys: dict[tuple[str, str], HeldKey] = {}
        self.workflow_records: dict[str, WorkflowRecord] = {}
        self.queue_records: dict[str, QueueRecord] = {}
        self.clocks: Numbers[str] = Numbers()
        self.virtual_times: Numbers[tuple[str, str]] = Numbers()
        self.buckets: dict[tuple[str, Scope, str], Bucket] = {}
        self.schedule_records: dict[str, ScheduleRecord] = {}
        self.counters: Numbers[tuple[str, Counter]] = Numbers()
        self.audit_log: list[AuditEntry] = []
        self.steps: list[Callable[[], None]] = []
        """What is left to follow up."""

    @contextmanager
    def verb(self, now: Instant) -> Iterator[None]:
        """What a verb causes is followed up before it answers."""
        self.now = now
        yield
        self.follow_up()

    def snapshot(self) -> dict[str, object]:
        return {name: copy(value) for name, value in vars(self).items()}

    def settings(self, queue: str) -> QueueSettings:
        """A queue that does not exist has the default ones."""
        return self.settings_if_exists(queue) or QueueSettings()

    def settings_if_exists(self, queue: str) -> QueueSettings | None:
        return self.queue_records[queue].settings if queue in self.queue_records else None

    def is_in(self, queue: str, state: QueueState) -> bool:
        return queue in self.queue_records and self.queue_records[queue].state is state

    def tasks_in(self, states: Collection[State], queue: str | None = None) -> list[TaskRecord]:
        """The tasks in some states, by id; of one queue if it is given."""
        found = [task for task in self.tasks.values() if task.state in states and queue in (None, task.queue)]
        return sorted(found, key=lambda task: task.id)

    def pending(self, queue: str) -> list[TaskRecord]:
        return self.tasks_in({State.PENDING}, queue)

    def members(self, workflow: str) -> list[TaskRecord]:
        return [task for task in self.tasks_in(ANY) if task.spec.workflow == workflow]

    def make_queue(self, name: str) -> QueueRecord:
        return self.queue_records.setdefault(name, QueueRecord(name=name))

    def remove(self, task: TaskRecord) -> None:
        del self.tasks[task.id], self.needs[task.id]
        self.histories.pop(task.id, None)

    # What follows.

    def put(self, task: TaskRecord, entry: HistoryEntry | None = None) -> None:
        """Make a record the current one. A task that ends waits for nothing more; those that wait for it are judged."""
        old = self.tasks.get(task.id)
        self.tasks[task.id] = task
        if entry is not None:
            self.note(task.id, entry)
        if task.state in ENDED and (old is None or old.state not in ENDED):
            self.needs[task.id] = [structs.replace(need, is_open=False) for need in self.needs.get(task.id, [])]
            self.steps.append(partial(self.release, EndedBy(task.id, task.state)))

    def note(self, task_id: str, entry: HistoryEntry) -> None:
        self.histories[task_id] = [*self.histories.get(task_id, []), entry][-HISTORY_LIMIT:]

    def follow_up(self) -> None:
        while self.steps:
            self.steps.pop(0)()
        self.inherit()

    def release(self, cause: EndedBy) -> None:
        """Judge the open edges that lead to a task that has ended."""
        for dependent in sorted(self.needs):
            for slot, need in enumerate(self.needs[dependent]):
                if need.id == cause.id and self.needs[dependent][slot].is_open:
                    self.close(self.tasks[dependent], slot, judge(need.rule, cause.state), cause)

    def close(self, dependent: TaskRecord, slot: int, verdict: Verdict, cause: EndedBy) -> None:
        self.set_open(dependent.id, slot, False)
        if verdict is not Verdict.GO:
            self.put(*moves.ended_by(dependent, verdict, cause, self.now))
        elif not self.awaited(dependent.id):
            self.put(moves.unblocked(dependent, self.settings(dependent.queue), self.now))

    def set_open(self, dependent: str, slot: int, is_open: bool) -> None:
        needs = list(self.needs[dependent])
        needs[slot] = structs.replace(needs[slot], is_open=is_open)
        self.needs[dependent] = needs

    def awaited(self, dependent: str) -> list[str]:
        return [need.id for need in self.needs[dependent] if need.is_open]

    def inherit(self) -> None:
        """Each unfinished task has the urgency of the most urgent one that waits for it."""
        highest: Numbers[str] = Numbers()
        for dependent in self.needs:
            for task_id in self.awaited(dependent):
                highest[task_id] = max(highest[task_id], self.tasks[dependent].urgency)
        heirs = [task for task in self.tasks_in(UNFINISHED) if task.inherited != highest[task.id]]
        for task in heirs:
            self.put(moves.inherits(task, highest[task.id], self.settings(task.queue), self.now))
        if heirs:  # what these wait for may inherit from them
            self.inherit()

    # Limits, shares and order.

    def bucket(self, queue: str, scope: Scope, whose: str, limit: Limit) -> Bucket:
        return limits.refill(self.buckets.get((queue, scope, whose)), limit, self.now)

    def limits_of(self, task: TaskRecord) -> list[LimitState]:
        """The limits that a task's start stands under, as they are now."""
        found = []
        for scope, whose, limit in limits.limits_for(self.settings(task.queue), task.name, task.spec.partition):
            running = sum(counts_for(scope, whose, each) for each in self.tasks_in({State.RUNNING}, task.queue))
            bucket = self.bucket(task.queue, scope, whose, limit)
            found.append(limits.limit_state(scope, whose, limit, running, bucket, self.now))
        return found

    def turn(self, queue: str, share: str) -> int:
        return start_virtual_time(self.clocks[queue], self.virtual_times[queue, share])

    def charge(self, task: TaskRecord) -> None:
        """A task has been given out: in a fair queue, the turn of its share is over."""
        settings, whose = self.settings(task.queue), (task.queue, task.share)
        if settings.fair:
            self.clocks[task.queue] = self.turn(*whose)
            self.virtual_times[whose] = next_virtual_time(settings, task.share, self.clocks[task.queue])

    def foremost(self, tasks: list[TaskRecord]) -> TaskRecord:
        """Of these tasks of one queue: in the share whose turn it is, the first of each lane, and the best of them."""
        _, share = min((self.turn(task.queue, task.share), task.share) for task in tasks)
        by_rank = sorted((task for task in tasks if task.share == share), key=lambda task: (task.rank, task.id))
        heads = {task.lane: task for task in reversed(by_rank)}
        return min(heads.values(), key=self.order)

    def order(self, head: TaskRecord, place: int = 0) -> tuple[float, ...]:
        """How the heads of lanes are merged, and those of queues, which are served in the order of their places."""
        return (*merge_key(self.effective(head), head.ready_at or 0, place), head.lane)

    def effective(self, task: TaskRecord) -> float:
        return effective(task.rank, task.lane, self.settings(task.queue), self.now)

    # Viewing.

    async def get(self, ids: Sequence[str]) -> list[TaskRecord | UnreadableTask | None]:
        return [self.tasks.get(task_id) for task_id in ids]

    async def history(self, task_id: str) -> list[HistoryEntry]:
        return self.histories.get(task_id, [])

    async def search(self, query: Query) -> Page:
        return Page([task for task in reversed(self.tasks_in(ANY)) if matches(query, task)])

    async def peek(self, queue: str, limit: int, *, until: str | None = None, now: Instant) -> Peeked:
        """What claims would give, one by one, if nothing were limited; in the end none of it was given."""
        self.now, before = now, self.snapshot()
        left, given = self.pending(queue), []
        while left:
            given.append(self.foremost(left))
            left.remove(given[-1])
            self.charge(given[-1])
        vars(self).update(before)
        ids = [task.id for task in given]
        return Peeked(given[:limit], Position(ids.index(until)) if until in ids else None)

    async def counts(self) -> Counts:
        queues = {*self.queue_records, *(task.queue for task in self.tasks.values())}
        tasks = {queue: {state: len(self.tasks_in({state}, queue)) for state in State} for queue in queues}
        counters: dict[str, dict[Counter, int]] = {}
        for (queue, counter), number in (+self.counters).items():
            counters.setdefault(queue, {})[counter] = number
        return Counts(tasks, counters)

    async def edges(self, ids: Sequence[str], *, followers: int = 0) -> list[Edges]:
        waiting = [sorted(each for each in self.needs if task_id in self.awaited(each)) for task_id in ids]
        return [
            Edges(self.needs.get(task_id, []), found[:followers]) for task_id, found in zip(ids, waiting, strict=True)
        ]

    async def workflows(self) -> list[WorkflowRecord]:
        return [self.counted(record) for _, record in sorted(self.workflow_records.items(), reverse=True)]

    def counted(self, record: WorkflowRecord) -> WorkflowRecord:
        states = Numbers(task.state for task in self.members(record.id))
        return structs.replace(record, counts={state: states[state] for state in State})

    async def standing(
        self, queue: str, tasks: Sequence[str] = (), *, tenants: int = 0, now: Instant | None = None
    ) -> Standing:
        self.now = self.now if now is None else now
        found = [self.tasks.get(task_id) for task_id in tasks]
        standing = [self.limits_of(task) if task is not None and task.queue == queue else [] for task in found]
        return Standing(standing, self.tenants(queue)[:tenants] if self.settings(queue).fair else [])

    def tenants(self, queue: str) -> list[TenantRecord]:
        shares = Numbers(task.share for task in self.pending(queue))
        turns = sorted((self.turn(queue, share), share) for share in shares)
        return [TenantRecord(tenant=share, pending=shares[share], virtual_time=turn) for turn, share in turns]

    async def queues(self) -> list[QueueRecord]:
        return [record for _, record in sorted(self.queue_records.items())]

    async def schedules(self) -> list[ScheduleRecord]:
        return [record for _, record in sorted(self.schedule_records.items())]

    async def audit(self, limit: int = 100) -> list[AuditEntry]:
        return self.audit_log[: -limit - 1 : -1]


def counts_for(scope: Scope, whose: str, task: TaskRecord) -> bool:
    """Whether a running task takes a slot of a limit of its queue."""
    return scope is Scope.QUEUE or whose == (task.name if scope is Scope.TASK else task.spec.partition)


def matches(query: Query, task: TaskRecord) -> bool:
    """Whether all that is asked for holds for a task."""
    facts = [(query.states, task.state), (query.queues, task.queue), (query.names, task.name)]
    exact = [(query.key, task.spec.key), (query.worker, task.worker), (query.tenant, task.spec.tenant)]
    failure = [] if task.failure is None else [task.failure.type, task.failure.message]
    return (
        all(not wanted or fact in wanted for wanted, fact in facts)
        and all(wanted in (None, fact) for wanted, fact in exact)
        and query.priority_min <= task.spec.priority <= query.priority_max
        and query.metadata.items() <= task.spec.metadata.items()
        and query.text.lower() in "\n".join([task.args.decode(), *failure, task.note]).lower()
    )
