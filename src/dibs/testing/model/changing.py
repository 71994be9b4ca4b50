"""What people do: cancel, edit, replay, purge, workflows as a whole, and queues."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from dibs.core.settings import QueueSettings, change_settings
from dibs.core.states import State
from dibs.core.task import Edit, QueueState
from dibs.core.times import HOUR, SECOND, Duration
from dibs.engines.values import Cancel, CancelWorkflow, Purge, Replay, ReplayWorkflow
from dibs.testing.model.side_by_side import without_stale
from dibs.testing.model.workers import Working
from dibs.testing.programs import ACTORS, CHANGES, deadlines, expiries, picks, queue_states, queues

__all__ = ["Changing"]

KINDS = (Cancel, Replay, Purge)


class Changing(Working):
    """The admin verbs."""

    @precondition(lambda self: self.ids)
    @rule(
        chosen=st.lists(picks, min_size=1, max_size=3),
        note=st.sampled_from(("", "stop it")),
        actor=st.sampled_from(ACTORS),
    )
    def cancel(self, chosen: list[int], note: str, actor: str) -> None:
        ids = self.some_ids(chosen)
        self.both(lambda engine: engine.act([Cancel(each, note) for each in ids], actor=actor, now=self.now))

    @precondition(lambda self: self.ids)
    @rule(
        chosen=st.lists(picks, min_size=1, max_size=3),
        priority=st.none() | st.sampled_from((5, 50, 95)),
        due_in=st.none() | st.sampled_from((-HOUR, 0, SECOND, HOUR)),
        deadline_in=deadlines,
        expires_in=expiries,
        metadata=st.sampled_from((None, {}, {"customer": 1})),
    )
    def edit(
        self,
        chosen: list[int],
        priority: int | None,
        due_in: Duration | None,
        deadline_in: Duration | None,
        expires_in: Duration | None,
        metadata: dict[str, object] | None,
    ) -> None:
        edits = [
            Edit(
                id=task_id,
                priority=priority,
                due_at=None if due_in is None else self.now + due_in,
                deadline=None if deadline_in is None else self.now + deadline_in,
                expires_at=None if expires_in is None else self.now + expires_in,
                metadata=metadata,
            )
            for task_id in self.some_ids(chosen)
        ]
        self.both(lambda engine: engine.act(edits, actor="ada", now=self.now))

    @precondition(lambda self: self.ids)
    @rule(chosen=st.lists(picks, min_size=1, max_size=3), queue=st.none() | queues, reset=st.booleans())
    def replay(self, chosen: list[int], queue: str | None, reset: bool) -> None:
        ids = self.dead_ids() + self.some_ids(chosen)
        acts = [Replay(each, queue, reset) for each in ids]
        self.both(lambda engine: engine.act(acts, actor="ada", now=self.now))

    def dead_ids(self) -> list[str]:
        ids = [task_id for task_id in self.ids if (record := self.seen.get(task_id)) and record.state is State.DEAD]
        self.touched.update(ids)
        return ids[:2]

    @precondition(lambda self: self.ids)
    @rule(chosen=st.lists(picks, min_size=1, max_size=2))
    def purge(self, chosen: list[int]) -> None:
        ids = self.some_ids(chosen)
        self.both(lambda engine: engine.act([Purge(each) for each in ids], actor="ada", now=self.now))

    @precondition(lambda self: self.ids)
    @rule(chosen=st.lists(st.tuples(picks, st.sampled_from(KINDS)), min_size=2, max_size=6))
    def several(self, chosen: list[tuple[int, type[Cancel | Replay | Purge]]]) -> None:
        """Acts of several kinds in one call."""
        acts = [kind(self.some_ids([pick])[0]) for pick, kind in chosen]
        self.both(lambda engine: engine.act(acts, actor="ada", now=self.now))

    @precondition(lambda self: self.workflow_ids)
    @rule(pick=picks, cancels=st.booleans())
    def whole_workflow(self, pick: int, cancels: bool) -> None:
        """Cancel or replay all tasks of a workflow."""
        workflow_id = self.workflow_ids[-1 - pick % len(self.workflow_ids)]
        if cancels:
            self.both(lambda engine: engine.act([CancelWorkflow(workflow_id, "stop it")], actor="ada", now=self.now))
        else:
            self.both(lambda engine: engine.act([ReplayWorkflow(workflow_id)], actor="ada", now=self.now))

    @rule(queue=queues, state=queue_states)
    def set_queue_state(self, queue: str, state: QueueState) -> None:
        self.both(lambda engine: engine.set_queue_state(queue, state, actor="ada", now=self.now))

    @rule(queue=queues, change=st.sampled_from(CHANGES), stale_version=st.booleans())
    def set_queue(self, queue: str, change: dict[str, object], stale_version: bool) -> None:
        old = self.model.oracle.queues.get(queue)
        new = change_settings(QueueSettings() if old is None else old.settings, change)
        expected = 0 if old is None else old.settings.version - stale_version
        subject, model = self.each(
            lambda engine: engine.set_queue(queue, new, expected=expected, actor="ada", now=self.now)
        )
        assert without_stale(subject) == without_stale(model)

    @rule(queue=queues, force=st.sampled_from((False, False, True)))
    def delete_queue(self, queue: str, force: bool) -> None:
        self.both(lambda engine: engine.delete_queue(queue, force=force, actor="ada", now=self.now))
