"""Random programs, run on an engine and on the oracle side by side, must never show a difference.

`engine_machine(make_engine)` gives a Hypothesis state machine; run it with `check_engine`, or as a `TestCase`::

    def test_model():
        check_engine(lambda: MyEngine(...))      # a new, empty store on each call

Each rule does the same to both at the same instant and compares the answers. After each rule all records are compared,
after some of them and at the end everything that can be seen. A worker's death is a claim that nobody ever settles.

The `oracle` is the executable specification of the seam, by lists and `sorted`; `face` gives it the face of an engine.
`side_by_side` drives an engine and the oracle as one. The rules come in layers: `producing`, `workers`, `changing`,
`planning`, and here time and what can be seen. The oracle uses `dibs.core`, and nothing of what engines share.
"""

from __future__ import annotations

from functools import partial

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from dibs.core.times import Duration
from dibs.engines.values import Query
from dibs.testing.conformance.harness import EngineFactory
from dibs.testing.model.planning import Planning
from dibs.testing.model.side_by_side import Side, all_pages, finish_chores
from dibs.testing.programs import picks, queries, spans

__all__ = ["PROFILE", "EngineMachine", "check_engine", "engine_machine"]


class EngineMachine(Planning):
    """All rules. `make_engine` is set by `engine_machine`."""

    def __init__(self) -> None:
        super().__init__()
        self.kept_until = self.now

    # What happens by itself.

    @rule(span=spans)
    def time_passes(self, span: Duration) -> None:
        self.now += span

    @rule()
    def rerank(self) -> None:
        """Bring ranks up to date on both sides; then the engine may not say that anything is left."""
        self.run(finish_chores(self.subject, ("rerank",), self.now))
        self.model.rerank(self.now)
        assert not any(record.stale for record in self.run(self.subject.queues()))

    @precondition(lambda self: self.now > self.kept_until)
    @rule()
    def all_chores(self) -> None:
        """Once per instant: they prune what has become old."""
        self.kept_until = self.now
        self.run(finish_chores(self.subject, None, self.now))
        self.model.rerank(self.now)
        self.model.prune(self.now)

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

    async def closer(self, task_id: str, engine: Side) -> tuple[object, ...]:
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
