"""The oracle with the face of an engine: verbs that are awaited, batches, chores, and what can be seen."""

from __future__ import annotations

from collections import Counter as Numbers
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from functools import partial
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from dibs.core import limits, moves
from dibs.core.policy import KEEP_AUDIT
from dibs.core.schedules import ScheduleRecord
from dibs.core.settings import Tier, tier_of
from dibs.core.states import ENDED, UNFINISHED, WAITING, State
from dibs.core.task import Edit, HistoryEntry, QueueRecord, TaskRecord
from dibs.core.times import DAY, Instant, day_of
from dibs.engines import figures, values
from dibs.engines.figures import Counter
from dibs.engines.values import Changed
from dibs.testing.model.oracle import PENDING, Oracle

__all__ = ["Model"]

ONE_BY_ONE = ("extend", "settle")
"""Verbs whose batches are no more than their items, one after the other."""
EDITABLE = ("priority", "deadline", "expires_at", "metadata")


class Model:
    """What is not here is a verb of the oracle."""

    def __init__(self) -> None:
        self.oracle = Oracle()

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        return partial(self.do, verb)

    async def do(self, verb: str, *args: Any, now: Instant, actor: str = "", **options: Any) -> Any:
        """What a verb causes is followed up before it answers."""
        self.oracle.now, self.oracle.actor = now, actor
        one = getattr(self.oracle, verb)
        answer = [one(item) for item in args[0]] if verb in ONE_BY_ONE else one(*args, **options)
        self.oracle.follow_up()
        return answer

    async def act(self, acts: Sequence[values.Act], *, actor: str, now: Instant) -> list[Changed]:
        """The log has one line for all that are alike, come in a row, and have changed something."""
        self.oracle.now, self.oracle.actor = now, actor
        answers: list[Changed] = []
        for (what, detail), alike in groupby(acts, what_and_how):
            changed = []
            for act in alike:
                before = self.oracle.tasks.get(act.id)
                answers.append(self.oracle.act(act))
                after = self.oracle.tasks.get(act.id)
                if answers[-1] is Changed.DONE or after is not before:
                    changed.append((act, before, after))
            if changed:
                target = changed[0][0].id if len(changed) == 1 else f"{len(changed)} tasks"
                self.oracle.log(what, target, detail, **same_for_all(changed))
        self.oracle.follow_up()
        return answers

    def members(self, workflow: str) -> list[TaskRecord]:
        return [task for task in self.oracle.tasks.values() if task.spec.workflow == workflow]

    def rerank(self, now: Instant) -> None:
        for task in self.oracle.tasks_in(WAITING):
            self.oracle.put(moves.reranked(task, self.oracle.settings(task), now))

    def prune(self, now: Instant) -> None:
        """Forget tasks that were kept long enough, keys that are free, workflows without tasks, old lines of the log,
        and buckets without a limit.
        """
        oracle = self.oracle
        for task in oracle.tasks_in(ENDED):
            keep = oracle.settings(task).keep_dead if task.state is State.DEAD else oracle.settings(task).keep
            if (day_of(task.finished_at or 0) + 1) * DAY <= now - keep:
                del oracle.tasks[task.id], oracle.histories[task.id], oracle.after[task.id]
        unfinished = {task.id for task in oracle.tasks_in(UNFINISHED)}
        oracle.keys = {key: held for key, held in oracle.keys.items() if now < held[2] or held[0] in unfinished}
        oracle.workflows = {key: each for key, each in oracle.workflows.items() if self.members(key)}
        oracle.audit = [entry for entry in oracle.audit if entry.at + KEEP_AUDIT > now]
        for queue, scope, whose in list(oracle.buckets):
            limit = limits.limit_of(oracle.queue(queue).settings, scope, whose)
            if limit is None or limit.rate is None:
                del oracle.buckets[queue, scope, whose]

    async def get(self, ids: Sequence[str]) -> list[TaskRecord | values.UnreadableTask | None]:
        return [self.oracle.tasks.get(task_id) for task_id in ids]

    async def history(self, task_id: str) -> list[HistoryEntry]:
        return self.oracle.histories.get(task_id, [])

    async def search(self, query: values.Query) -> values.Page:
        newest_first = sorted(self.oracle.tasks.values(), key=lambda task: task.id, reverse=True)
        return values.Page([task for task in newest_first if matches(query, task)])

    async def peek(self, queue: str, limit: int, *, until: str | None = None, now: Instant) -> values.Peeked:
        """What claims would give, one by one, if nothing were limited."""
        trial = copy(self.oracle)
        trial.now, trial.turns = now, copy(trial.turns)
        left, given = trial.tasks_in(PENDING, queue), []
        while left:
            given.append(trial.foremost(left))
            left.remove(given[-1])
            trial.take_turn(given[-1])
        ids = [task.id for task in given]
        return values.Peeked(given[:limit], values.Position(ids.index(until)) if until in ids else None)

    async def counts(self) -> figures.Counts:
        queues = {*self.oracle.queues, *(task.queue for task in self.oracle.tasks.values())}
        tasks = {queue: {state: len(self.oracle.tasks_in({state}, queue)) for state in State} for queue in queues}
        counters: dict[str, Numbers[Counter]] = {}
        kinds: dict[tuple[str, str, str], tuple[Numbers[State], Numbers[Counter]]] = {}
        errors: dict[str, dict[str, int]] = {}
        for task in self.oracle.tasks.values():
            kinds.setdefault((task.queue, task.name, tier(task)), (Numbers(), Numbers()))[0][task.state] += 1
        for (queue, name, its_tier, counter), number in self.oracle.counters.items():
            counters.setdefault(queue, Numbers())[counter] += number
            if name:
                kinds.setdefault((queue, name, its_tier), (Numbers(), Numbers()))[1][counter] += number
        for (queue, error), number in self.oracle.errors.items():
            errors.setdefault(queue, {})[error] = number
        counted = [
            figures.KindCounts(queue=kind[0], name=kind[1], tier=Tier(kind[2]), states=states, counters=events)
            for kind, (states, events) in sorted(kinds.items())
        ]
        return figures.Counts(tasks, {queue: dict(each) for queue, each in counters.items()}, counted, errors)

    async def backlog(self, *, now: Instant) -> list[figures.Backlog]:
        kinds: dict[tuple[str, str], list[Instant]] = {}
        for task in self.oracle.tasks_in(PENDING):
            kinds.setdefault((task.queue, tier(task)), []).append(task.ready_at or 0)
        return [
            figures.Backlog(queue=kind[0], tier=Tier(kind[1]), pending=len(ready), oldest=min(ready))
            for kind, ready in sorted(kinds.items())
        ]

    async def edges(self, ids: Sequence[str], *, followers: int = 0) -> list[values.Edges]:
        found = []
        for task_id in ids:
            edges = self.oracle.after.get(task_id, ())
            needs = [values.Need(edge.id, edge.rule, (task_id, edge.id) in self.oracle.open) for edge in edges]
            found.append(values.Edges(needs, self.oracle.followers(task_id)[:followers]))
        return found

    async def workflows(self) -> list[values.WorkflowRecord]:
        found = []
        for _, record in sorted(self.oracle.workflows.items(), reverse=True):
            states = Numbers(task.state for task in self.members(record.id))
            found.append(replace(record, counts={state: states[state] for state in State}))
        return found

    async def standing(
        self, queue: str, tasks: Sequence[str] = (), *, tenants: int = 0, now: Instant | None = None
    ) -> values.Standing:
        oracle = self.oracle
        oracle.now = oracle.now if now is None else now
        standing = [oracle.limits_of(oracle.tasks[each]) if each in oracle.tasks else [] for each in tasks]
        shares = Numbers(task.share for task in oracle.tasks_in(PENDING, queue)) if tenants else {}
        turns = sorted((oracle.turn(queue, share), share) for share in shares)
        found = [values.TenantRecord(tenant=share, pending=shares[share], virtual_time=turn) for turn, share in turns]
        return values.Standing(standing, found)

    async def queues(self) -> list[QueueRecord]:
        return [record for _, record in sorted(self.oracle.queues.items())]

    async def schedules(self) -> list[ScheduleRecord]:
        return [record for _, record in sorted(self.oracle.schedules.items())]

    async def audit(self) -> list[values.AuditEntry]:  # without numbers: engines count in their own way
        return self.oracle.audit[:-101:-1]


def tier(task: TaskRecord) -> str:
    """The tier of the priority that a task was submitted with."""
    return str(tier_of(task.spec.priority))


def what_and_how(act: values.Act) -> tuple[str, str]:
    """What the log says of an act."""
    return str(act.__struct_config__.tag), getattr(act, "note", "") or getattr(act, "queue", "") or ""


def same_for_all(changed: list[tuple[values.Act, TaskRecord | None, TaskRecord | None]]) -> dict[str, Any]:
    """What the log says of the tasks that acts have changed: which, and what they had in common before, and after."""
    ids = dict.fromkeys(act.id for act, before, _ in changed if before is not None)
    before = [logged(act, old, new) for act, old, new in changed]
    after = [logged(act, new, old) for act, old, new in changed]
    return {"ids": tuple(ids), "before": in_all(before), "after": in_all(after)}


def in_all(each: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: fact for name, fact in each[0].items() if all((name, fact) in [*other.items()] for other in each)}


def logged(act: values.Act, task: TaskRecord | None, other: TaskRecord | None) -> dict[str, Any]:
    """What the log has of a task before an act or after it, `other` being the task after it or before it."""
    if task is None:
        return {}
    if not isinstance(act, Edit) or other is None:
        status = {"state": task.state, "queue": task.queue}
        is_asked = task.state is State.RUNNING and task.cancel_reason is not None
        return status | ({"cancel_requested": True} if is_asked else {})
    names = [name for name in EDITABLE if getattr(task.spec, name) != getattr(other.spec, name)]
    due = {} if task.due_at == other.due_at else {"due_at": task.due_at}
    return due | {name: getattr(task.spec, name) for name in names}


def matches(query: values.Query, task: TaskRecord) -> bool:
    """Whether all that is asked for holds for a task."""
    facts = [(query.states, task.state), (query.queues, task.queue), (query.names, task.name)]
    exact = [(query.key, task.spec.key), (query.worker, task.worker), (query.tenant, task.spec.tenant)]
    exact.append((query.partition, task.spec.partition))
    after, before = query.created_after, query.created_before
    failure = [] if task.failure is None else [task.failure.type, task.failure.message]
    return (
        all(not wanted or fact in wanted for wanted, fact in facts)
        and all(wanted in (None, fact) for wanted, fact in exact)
        and (after is None or task.created_at >= after)
        and (before is None or task.created_at < before)
        and query.priority_min <= task.spec.priority <= query.priority_max
        and query.metadata.items() <= task.spec.metadata.items()
        and query.text.lower() in "\n".join([task.args.decode(), *failure, task.note]).lower()
    )
