"""An engine and the oracle driven as one: the same is done to both at the same instant, and nothing may differ."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from hypothesis.stateful import RuleBasedStateMachine
from msgspec import structs

from dibs.core.settings import QueueSettings, change_settings
from dibs.core.states import UNFINISHED, State
from dibs.core.task import HistoryEntry, Lease, LeasedTask, QueueRecord, TaskRecord
from dibs.engines.base import Engine
from dibs.engines.values import AuditEntry, Edges, Query, Rescued, UnreadableTask
from dibs.testing.conformance.harness import START, EngineFactory
from dibs.testing.model.face import Model
from dibs.testing.programs import SETTINGS

__all__ = ["Side", "SideBySide", "all_pages", "by_id", "finish_chores", "without_stale"]

Answer = TypeVar("Answer")
Side = Engine | Model
Act = Callable[[Side], Awaitable[Answer]]

MANY = 100
LOOK_EVERY = 8
"""Rules after which all that can be seen is compared. What differs stays so: it is found a few rules later, or at the
end, for a fraction of the time."""
CHORE_STEPS = 20


class SideBySide(RuleBasedStateMachine):
    """The engine under test, the oracle as its model, and the present moment of both.

    `ids` are all tasks that were ever stored, `seen` their records by now, `looked_at` their records at the last look
    around; `touched` are tasks that may have a new history entry although their record is the same.
    """

    make_engine: EngineFactory

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.subject, self.model = self.make_engine(), Model()
        self.now = START
        self.ids: list[str] = []
        self.touched: set[str] = set()
        self.seen: dict[str, TaskRecord | None] = {}
        self.looked_at: dict[str, TaskRecord | None] = {}
        self.rules_done = 0
        self.numbers: defaultdict[str, dict[int, int]] = defaultdict(dict)
        """By task: the numbers of its leases in the model, and those of the engine under test."""
        self.run(self.subject.open())
        self.both(self.set_up_queues)

    async def set_up_queues(self, engine: Side) -> None:
        for name, changes in SETTINGS.items():
            wanted = change_settings(QueueSettings(), changes)
            await engine.set_queue(name, wanted, expected=0, now=self.now)

    def teardown(self) -> None:
        try:
            self.compare_records()
            self.look_around(self.ids)
        finally:
            self.run(self.subject.close())
            self.runner.close()

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Without what `Runner.run` does about Ctrl-C: that takes longer than most verbs."""
        return self.runner.get_loop().run_until_complete(work)

    # Each engine numbers its leases in its own way. Here a lease is known by its number in the model.

    def match_leases(self, subject: list[LeasedTask], model: list[LeasedTask]) -> None:
        """Learn which lease of the engine under test is which of the model's; its numbers must grow."""
        for theirs, ours in zip(by_id(subject), by_id(model), strict=True):
            known = self.numbers[ours.id]
            assert known.setdefault(ours.lease, theirs.lease) == theirs.lease, "another lease than before"
            assert list(known.values()) == sorted(set(known.values())), f"the leases of {ours.id} do not grow: {known}"

    def subjects(self, lease: Lease) -> Lease:
        """The lease of the engine under test that stands for one of the model."""
        return Lease(lease.id, self.numbers[lease.id].get(lease.number, lease.number))

    def models(self, task_id: str, number: int, unknown: int = -1) -> int:
        """The number in the model of a lease of the engine under test; `unknown` if it never gave that one."""
        known = {theirs: ours for ours, theirs in self.numbers[task_id].items()}
        return known.get(number, unknown) if number else 0

    def record_of(self, record: TaskRecord | UnreadableTask | None) -> TaskRecord | UnreadableTask | None:
        """What the engine under test stores of a task, in the model's lease numbers."""
        if not isinstance(record, TaskRecord):
            return record
        lease, settled = self.models(record.id, record.lease), self.models(record.id, record.settled_lease)
        return structs.replace(record, lease=lease, settled_lease=settled)

    def rescued_of(self, rescued: Rescued) -> Rescued:
        """What the engine under test took back, in the model's lease numbers."""
        lost = [structs.replace(each, lease=self.models(each.id, each.lease)) for each in rescued.lost]
        return structs.replace(rescued, lost=lost)

    def history_of(self, task_id: str, entries: list[HistoryEntry]) -> list[HistoryEntry]:
        """A report about a lease that was never given, or in an earlier life of the id, is told by its own number."""
        return [structs.replace(each, lease=self.models(task_id, each.lease, each.lease)) for each in entries]

    def each(self, act: Act[Answer]) -> tuple[Answer, Answer]:
        """Do the same to both: the answers of the engine under test and of the model."""
        return self.run(self.pair(act))

    async def pair(self, act: Act[Answer]) -> tuple[Answer, Answer]:
        return await act(self.subject), await act(self.model)

    def both(self, act: Act[Answer]) -> Answer:
        """Do the same to both, demand the same answer, and give it."""
        subject, model = self.each(act)
        assert subject == model, f"the engine answered {subject!r}, the model {model!r}"
        return model

    def compare(self) -> None:
        """After each rule the records are the same, and now and then everything that can be seen."""
        self.compare_records()
        self.rules_done += 1
        if self.rules_done % LOOK_EVERY == 0:
            self.look_around(self.changed_since())

    def compare_records(self) -> None:
        subject, model = self.each(lambda engine: engine.get(self.ids))
        ours = [as_compared(record) for record in model]
        theirs = [as_compared(self.record_of(record)) for record in subject]
        assert theirs == ours, "\n".join(differences(theirs, ours))
        self.seen = dict(zip(self.ids, ours, strict=True))
        for task_id in [task_id for task_id, record in self.seen.items() if record is None]:
            self.numbers.pop(task_id, None)  # its id may be used again, and its leases are numbered from the beginning

    def changed_since(self) -> list[str]:
        """The tasks that have changed, or may have, since the last look around."""
        changed = [task_id for task_id, record in self.seen.items() if self.looked_at.get(task_id) != record]
        return sorted(self.touched.union(changed))

    def look_around(self, ids: list[str]) -> None:
        """All that can be seen is the same, of these tasks and their queues in detail, and consistent in itself."""
        records = [places.get(task_id) for places in (self.looked_at, self.seen) for task_id in ids]
        queues = sorted({record.queue for record in records if record is not None})
        observed, expected = self.each(lambda engine: self.observe(engine, ids, queues))
        for what, ours in expected.items():
            assert observed[what] == ours, f"{what}: the engine has {observed[what]!r}, the model {ours!r}"
        edges = dict(zip(self.ids, self.both(lambda engine: engine.edges(self.ids)), strict=True))
        check_edges(self.seen, edges)
        self.looked_at = self.seen
        self.touched.clear()

    async def observe(self, engine: Side, ids: list[str], queues: list[str]) -> dict[str, object]:
        """All that can be seen of a store, histories of these tasks, and the order of these queues."""
        found = await engine.queues()
        fair = [queue.name for queue in found if queue.settings.fair and queue.name in queues]
        return {
            "counts": await engine.counts(),
            "backlog": await engine.backlog(now=self.now),
            "queues": [without_stale(queue) for queue in found],
            "peek": {name: await self.peeked(engine, name) for name in queues},
            "tenants": {name: (await engine.standing(name, tenants=MANY)).tenants for name in fair},
            "history": {task_id: await self.history(engine, task_id) for task_id in ids},
            "audit": numbered(await engine.audit()),
        }

    async def peeked(self, engine: Side, queue: str) -> list[TaskRecord | None]:
        tasks = (await engine.peek(queue, MANY, now=self.now)).tasks
        return [as_compared(self.record_of(record) if engine is self.subject else record) for record in tasks]

    async def history(self, engine: Side, task_id: str) -> list[HistoryEntry]:
        entries = await engine.history(task_id)
        return self.history_of(task_id, entries) if engine is self.subject else entries


def as_compared(record: TaskRecord | UnreadableTask | None) -> TaskRecord | None:
    """A record but for what an ended task inherited: that is kept true for unfinished ones only. And what happens to a
    task in the moment of its enqueue may be part of it, or a change.
    """
    assert not isinstance(record, UnreadableTask), "a task can't be read"
    if record is None:
        return None
    inherited = record.inherited if record.state in UNFINISHED else 0
    return structs.replace(record, inherited=inherited, changed_at=record.updated_at)


def differences(subject: list[TaskRecord | None], model: list[TaskRecord | None]) -> Iterator[str]:
    """In what the records of the engine differ from those of the model."""
    for theirs, ours in zip(subject, model, strict=True):
        if theirs is None or ours is None:
            if theirs is not ours:
                yield f"the engine has {theirs!r}, the model {ours!r}"
            continue
        for name in TaskRecord.__struct_fields__:
            if getattr(theirs, name) != getattr(ours, name):
                yield f"{ours.id}: the engine has {name}={getattr(theirs, name)!r}, the model {getattr(ours, name)!r}"


def check_edges(records: dict[str, TaskRecord | None], edges: dict[str, Edges]) -> None:
    """A task is blocked if and only if it waits for something unfinished, and urgency was passed on all the way."""
    heaviest: dict[str, int] = {}
    for task_id, record in records.items():
        awaited = [need.id for need in edges[task_id].needs if need.is_open]
        is_blocked = record is not None and record.state is State.BLOCKED
        assert bool(awaited) == is_blocked, f"{record!r} waits for {awaited!r}"
        for need_id in awaited:
            need = records.get(need_id)
            assert need is not None and need.state in UNFINISHED, f"{task_id} waits for {need!r}"
            assert record is not None
            heaviest[need_id] = max(heaviest.get(need_id, 0), record.urgency)
    for task_id, record in records.items():
        if record is not None and record.state in UNFINISHED:
            assert record.inherited == heaviest.get(task_id, 0), f"{record!r} should inherit {heaviest.get(task_id)}"


def numbered(entries: list[AuditEntry]) -> list[AuditEntry]:
    """The audit log without its numbers, which are the engine's own, but must grow."""
    numbers = [entry.n for entry in entries]
    assert len(set(numbers)) in (0, 1, len(numbers)) and numbers == sorted(numbers, reverse=True), f"{numbers}"
    return [structs.replace(entry, n=0) for entry in entries]


def without_stale(record: QueueRecord | None) -> QueueRecord | None:
    """A queue's record but for how many ranks are stale: engines find out in their own time."""
    return record and structs.replace(record, stale=0)


def by_id(tasks: list[LeasedTask]) -> list[LeasedTask]:
    return sorted(tasks, key=lambda task: task.id)


async def all_pages(engine: Side, query: Query) -> list[str]:
    """The ids that a search finds, newest first."""
    found: list[str] = []
    while True:
        page = await engine.search(query)
        found += [record.id for record in page.tasks]
        if page.cursor is None:
            return found
        query = structs.replace(query, cursor=page.cursor)


async def finish_chores(engine: Engine, names: tuple[str, ...] | None, now: int) -> None:
    """Do these chores, or all, until nothing is left of them."""
    names = names or tuple(chore.name for chore in (await engine.about()).chores)
    term = await engine.lead("leader", now=now)
    assert term is not None
    for name in names:
        for _ in range(CHORE_STEPS):
            record = await engine.chore(name, term, now=now)
            assert not record.refused
            if not record.more:
                break
        else:
            raise AssertionError(f"the chore {name} never comes to an end")
