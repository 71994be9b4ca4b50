"""The oracle with the face of an engine: verbs that are awaited, and what can be seen of what it keeps."""

from __future__ import annotations

from collections import Counter as Numbers
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from functools import partial
from typing import Any

from msgspec import structs

from dibs.core.schedules import ScheduleRecord
from dibs.core.states import State
from dibs.core.task import HistoryEntry, QueueRecord, TaskRecord
from dibs.core.times import Instant
from dibs.engines import values
from dibs.engines.values import Counter, Need
from dibs.testing.model.oracle import PENDING, Oracle

__all__ = ["Model"]

ONE_BY_ONE = ("extend", "settle")


class Model:
    """What is not shown here is a verb of the oracle."""

    def __init__(self) -> None:
        self.oracle = Oracle()

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        return partial(self.do, verb)

    async def do(self, verb: str, *args: Any, now: Instant, actor: str = "", **options: Any) -> Any:
        """Whatever a verb causes is followed up before it answers."""
        self.oracle.now, self.oracle.actor = now, actor
        act = getattr(self.oracle, verb)
        answer = [act(item) for item in args[0]] if verb in ONE_BY_ONE else act(*args, **options)
        self.oracle.follow_up()
        return answer

    async def get(self, ids: Sequence[str]) -> list[TaskRecord | None]:
        return [self.oracle.tasks.get(task_id) for task_id in ids]

    async def history(self, task_id: str) -> list[HistoryEntry]:
        return self.oracle.histories.get(task_id, [])

    async def search(self, query: values.Query) -> values.Page:
        return values.Page([task for task in reversed(self.oracle.tasks_in(State)) if matches(query, task)])

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

    async def counts(self) -> values.Counts:
        queues = {*self.oracle.queues, *(task.queue for task in self.oracle.tasks.values())}
        tasks = {queue: {state: len(self.oracle.tasks_in({state}, queue)) for state in State} for queue in queues}
        counters: dict[str, dict[Counter, int]] = {}
        for (queue, counter), number in (+self.oracle.counters).items():
            counters.setdefault(queue, {})[counter] = number
        return values.Counts(tasks, counters)

    async def edges(self, ids: Sequence[str], *, followers: int = 0) -> list[values.Edges]:
        found = []
        for task_id in ids:
            edges = self.oracle.after.get(task_id, ())
            needs = [Need(edge.id, edge.rule, (task_id, edge.id) in self.oracle.open) for edge in edges]
            found.append(values.Edges(needs, self.oracle.followers(task_id)[:followers]))
        return found

    async def workflows(self) -> list[values.WorkflowRecord]:
        found = []
        for _, record in sorted(self.oracle.workflows.items(), reverse=True):
            states = Numbers(task.state for task in self.oracle.members(record.id))
            found.append(structs.replace(record, counts={state: states[state] for state in State}))
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

    async def audit(self) -> list[values.AuditEntry]:
        return self.oracle.audit[:-101:-1]


def matches(query: values.Query, task: TaskRecord) -> bool:
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
