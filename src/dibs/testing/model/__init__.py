"""Random programs, run on an engine and on the memory engine side by side, must never show a difference.

`engine_machine(make_engine)` gives a Hypothesis state machine; run it with `check_engine`, or as a `TestCase`::

    def test_model():
        check_engine(lambda: MyEngine(...))      # a new, empty store on each call

Each rule does the same to both engines at the same instant and compares the answers; after each rule all that may have
changed is compared too, and at the end everything. A worker's death is a claim that nobody ever settles.

The machine is made of layers: producing, working, changing, planning, and on top of them time and what can be seen.
"""

from __future__ import annotations

from functools import partial

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from dibs.core.times import Duration
from dibs.engines.base import Engine
from dibs.engines.values import Query
from dibs.testing.conformance.harness import EngineFactory
from dibs.testing.model.planning import Planning
from dibs.testing.programs import picks, queries, spans
from dibs.testing.side_by_side import all_pages, finish_chores

__all__ = ["PROFILE", "EngineMachine", "check_engine", "engine_machine"]


class EngineMachine(Planning):
    """All rules. `make_engine` is set by `engine_machine`."""

    # What happens by itself.

    @rule(span=spans)
    def time_passes(self, span: Duration) -> None:
        self.now += span

    @rule()
    def rerank(self) -> None:
        """Bring ranks up to date on both sides; then neither may say that anything is left."""
        self.both(lambda engine: finish_chores(engine, ("rerank",), self.now))
        subject, model = self.each(lambda engine: engine.queues())
        assert [record.stale for record in subject] == [record.stale for record in model] == [0] * len(model)

    @rule()
    def all_chores(self) -> None:
        self.both(lambda engine: finish_chores(engine, None, self.now))

    # What can be seen.

    @rule(query=queries)
    def search(self, query: Query) -> None:
        """All pages agree; where one ends is the engine's own business."""
        subject, model = self.each(lambda engine: all_pages(engine, query))
        assert subject == model

    @precondition(lambda self: self.ids)
    @rule(chosen=st.lists(picks, min_size=1, max_size=3))
    def look(self, chosen: list[int]) -> None:
        for task_id in self.some_ids(chosen):
            self.both(partial(self.closer, task_id))

    async def closer(self, task_id: str, engine: Engine) -> tuple[object, ...]:
        """What is told of one task only."""
        record = self.seen.get(task_id)
        queue = "" if record is None else record.queue
        peeked = await engine.peek(queue, 0, until=task_id, now=self.now)
        standing = await engine.standing(queue, [task_id], now=self.now)
        return await engine.edges([task_id], followers=100), peeked, standing

    @invariant()
    def agree(self) -> None:
        self.compare()


def engine_machine(make_engine: EngineFactory) -> type[EngineMachine]:
    """The state machine for one engine."""
    return type("Machine", (EngineMachine,), {"make_engine": staticmethod(make_engine)})


PROFILE = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def check_engine(make_engine: EngineFactory, profile: settings = PROFILE) -> None:
    """Run random programs; raises if the engine ever differs from the model."""
    run_state_machine_as_test(engine_machine(make_engine), settings=profile)
