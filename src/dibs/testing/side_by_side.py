"""Two engines driven as one: the same is done to both at the same instant, and nothing observable may differ."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hypothesis.stateful import RuleBasedStateMachine
from msgspec import structs

from dibs.core.settings import QueueSettings, change_settings
from dibs.core.states import UNFINISHED, State
from dibs.core.task import LeasedTask, QueueRecord, TaskRecord
from dibs.engines.base import Engine
from dibs.engines.memory import MemoryEngine
from dibs.engines.values import Edges, Query, UnreadableTask
from dibs.testing.conformance.harness import START, EngineFactory
from dibs.testing.programs import SETTINGS

__all__ = ["SideBySide", "all_pages", "by_id", "finish_chores", "without_stale"]

Answer = TypeVar("Answer")
Act = Callable[[Engine], Awaitable[Answer]]

MANY = 100
CHORE_STEPS = 20


class SideBySide(RuleBasedStateMachine):
    """The engine under test, the memory engine as its model, and the present moment of both.

    `ids` are all tasks that were ever stored; `seen` are their records as they were at the last look; `touched` are
    tasks that may have a new history entry although their record is the same.
    """

    make_engine: EngineFactory

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.subject, self.model = self.make_engine(), MemoryEngine()
        self.now = START
        self.ids: list[str] = []
        self.touched: set[str] = set()
        self.seen: dict[str, TaskRecord | None] = {}
        self.both(lambda engine: engine.open())
        self.both(self.set_up_queues)

    async def set_up_queues(self, engine: Engine) -> None:
        for name, changes in SETTINGS.items():
            wanted = change_settings(QueueSettings(), changes)
            await engine.set_queue(name, wanted, expected=0, now=self.now)

    def teardown(self) -> None:
        try:
            self.compare(everything=True)
        finally:
            self.runner.run(self.subject.close())
            self.runner.close()

    def each(self, act: Act[Answer]) -> tuple[Answer, Answer]:
        """Do the same to both: the answers of the engine under test and of the model."""
        return self.runner.run(self.pair(act))

    async def pair(self, act: Act[Answer]) -> tuple[Answer, Answer]:
        return await act(self.subject), await act(self.model)

    def both(self, act: Act[Answer]) -> Answer:
        """Do the same to both, demand the same answer, and give it."""
        subject, model = self.each(act)
        assert subject == model, f"the engine answered {subject!r}, the model {model!r}"
        return model

    def compare(self, *, everything: bool = False) -> None:
        """What has changed since the last look is the same on both sides, and what both say is consistent."""
        found = zip(self.ids, self.both(lambda engine: engine.get(self.ids)), strict=True)
        records = {task_id: record for task_id, record in found if not isinstance(record, UnreadableTask)}
        assert set(records) == set(self.ids), "a task can't be read"
        changed = [task_id for task_id, record in records.items() if everything or self.seen.get(task_id) != record]
        moved = [record for task_id in changed for record in (self.seen.get(task_id), records[task_id])]
        self.seen = records
        looked_at = sorted(self.touched.union(changed))
        self.touched.clear()
        queues = {record.queue for record in moved if record is not None}
        subject, model = self.each(lambda engine: self.observe(engine, looked_at, queues))
        for what, seen in model.items():
            assert subject[what] == seen, f"{what}: the engine has {subject[what]!r}, the model {seen!r}"
        edges = dict(zip(self.ids, self.both(lambda engine: engine.edges(self.ids)), strict=True))
        check_edges(records, edges)

    async def observe(self, engine: Engine, looked_at: list[str], changed: set[str]) -> dict[str, object]:
        """All that can be seen of a store, histories of these tasks, and the order of these queues."""
        queues = await engine.queues()
        fair = [queue.name for queue in queues if queue.settings.fair and queue.name in changed]
        return {
            "counts": await engine.counts(),
            "queues": [without_stale(queue) for queue in queues],
            "peek": {name: (await engine.peek(name, MANY, now=self.now)).tasks for name in changed},
            "tenants": {name: (await engine.standing(name, tenants=100)).tenants for name in fair},
            "history": {task_id: await engine.history(task_id) for task_id in looked_at},
            "audit": await engine.audit(),
        }


def check_edges(records: dict[str, TaskRecord | None], edges: dict[str, Edges]) -> None:
    """Whoever is blocked waits for something unfinished, nobody else does, and urgency has gone all the way."""
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


def without_stale(record: QueueRecord | None) -> QueueRecord | None:
    """A queue's record but for how many ranks are stale: engines find out in their own time."""
    return record and structs.replace(record, stale=0)


def by_id(tasks: list[LeasedTask]) -> list[LeasedTask]:
    return sorted(tasks, key=lambda task: task.id)


async def all_pages(engine: Engine, query: Query) -> list[str]:
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
