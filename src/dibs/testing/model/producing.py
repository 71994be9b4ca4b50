"""What producers do: tasks, batches, prerequisites, keys that replace, and workflows."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from dibs.core.graph import Edge
from dibs.core.ids import uuid7
from dibs.core.task import NewTask
from dibs.engines.values import EnqueueOutcome, NewWorkflow
from dibs.testing.conformance.harness import START
from dibs.testing.model.side_by_side import Side, SideBySide
from dibs.testing.programs import Draft, drafts, picks
from dibs.testing.tasks import changed

__all__ = ["Producing"]


class Producing(SideBySide):
    """Enqueue, once or again."""

    def __init__(self) -> None:
        super().__init__()
        self.enqueued: list[NewTask] = []
        self.workflow_ids: list[str] = []

    def some_ids(self, chosen: list[int]) -> list[str]:
        """Known ids, and now and then one that nobody knows."""
        ids = [self.ids[pick % len(self.ids)] if pick else self.id_of(0) for pick in chosen]
        self.touched.update(ids)
        return ids

    @staticmethod
    def id_of(number: int) -> str:
        return uuid7(START // 1_000 + number, 0, number)

    @initialize(batch=st.lists(drafts, min_size=4, max_size=10))
    def begin(self, batch: list[Draft]) -> None:
        """An empty store shows little."""
        self.enqueue(batch, atomic=False)

    @rule(batch=st.lists(drafts, min_size=1, max_size=4), atomic=st.booleans())
    def enqueue(self, batch: list[Draft], atomic: bool) -> None:
        self.store(self.written(batch), atomic)

    @rule(batch=st.lists(drafts, min_size=2, max_size=5), joins=st.sampled_from((False, False, True)))
    def enqueue_workflow(self, batch: list[Draft], joins: bool) -> None:
        """Begin a workflow, or join one that was begun before."""
        if joins and self.workflow_ids:
            members = [changed(task, workflow=self.workflow_ids[-1]) for task in self.written(batch)]
            self.store(members, atomic=False)
            return
        new = NewWorkflow(self.id_of(len(self.workflow_ids) + 500_000), "w")
        self.workflow_ids.append(new.id)
        self.store([changed(task, workflow=new.id) for task in self.written(batch)], True, new)

    def written(self, batch: list[Draft]) -> list[NewTask]:
        """The tasks of a batch, with ids, and with instants and prerequisites as of now."""
        ids, tasks = self.ids[-5:], []
        for number, draft in enumerate(batch, len(self.enqueued) + 1):
            task = changed(
                draft.task,
                id=self.id_of(number),
                deadline=None if draft.deadline_in is None else self.now + draft.deadline_in,
                expires_at=None if draft.expires_in is None else self.now + draft.expires_in,
                after=tuple(
                    Edge(ids[-back] if back else self.id_of(0), rule) for back, rule in draft.needs if back <= len(ids)
                ),
            )
            ids.append(task.id)
            tasks.append(task)
        self.enqueued += tasks
        return tasks

    @precondition(lambda self: self.enqueued)
    @rule(pick=picks, other_name=st.booleans(), atomic=st.booleans())
    def enqueue_again(self, pick: int, other_name: bool, atomic: bool) -> None:
        task = self.enqueued[pick % len(self.enqueued)]
        self.store([changed(task, name="index") if other_name else task], atomic)

    def store(self, batch: list[NewTask], atomic: bool, workflow: NewWorkflow | None = None) -> None:
        answers = self.both(lambda engine: engine.enqueue(batch, atomic=atomic, workflow=workflow, now=self.now))
        self.ids += [answer.id for answer in answers if answer.outcome is EnqueueOutcome.ENQUEUED]
        self.touched.update(answer.id for answer in answers)

    async def observe(self, engine: Side, ids: list[str], queues: list[str]) -> dict[str, object]:
        seen = await super().observe(engine, ids, queues)
        return seen | {"workflows": await engine.workflows()} if self.workflow_ids else seen
