"""Schedules: set, paused, deleted, and fired."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from dibs.core.recurrence import Recurrence
from dibs.core.schedules import ScheduleState
from dibs.core.task import NewTask
from dibs.core.times import Duration
from dibs.testing.model.changing import Changing
from dibs.testing.model.side_by_side import Side
from dibs.testing.programs import RECURRENCES, SCHEDULED, spans

__all__ = ["Planning"]

schedule_names = st.sampled_from(("nightly", "often"))


class Planning(Changing):
    """Recurring tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.has_schedules = False

    @rule(
        name=schedule_names,
        recurrence=st.sampled_from(RECURRENCES),
        task=st.sampled_from(SCHEDULED),
        declared=st.booleans(),
    )
    def set_schedule(self, name: str, recurrence: Recurrence, task: NewTask, declared: bool) -> None:
        self.has_schedules = True
        self.both(
            lambda engine: engine.set_schedule(name, recurrence, task, declared=declared, actor="ada", now=self.now)
        )

    @precondition(lambda self: self.has_schedules)
    @rule(name=schedule_names, state=st.sampled_from(ScheduleState))
    def set_schedule_state(self, name: str, state: ScheduleState) -> None:
        self.both(lambda engine: engine.set_schedule_state(name, state, actor="ada", now=self.now))

    @precondition(lambda self: self.has_schedules)
    @rule(name=schedule_names, span=spans)
    def pause_for_a_while(self, name: str, span: Duration) -> None:
        self.set_schedule_state(name, ScheduleState.PAUSED)
        self.now += span
        self.set_schedule_state(name, ScheduleState.ACTIVE)

    @precondition(lambda self: self.has_schedules)
    @rule(span=spans)
    def fire(self, span: Duration) -> None:
        self.now += span
        fired = self.both(lambda engine: engine.fire(now=self.now))
        self.ids += [task_id for task_id in fired.tasks if task_id not in self.ids]

    async def observe(self, engine: Side, ids: list[str], queues: list[str]) -> dict[str, object]:
        seen = await super().observe(engine, ids, queues)
        return seen | {"schedules": await engine.schedules()} if self.has_schedules else seen
