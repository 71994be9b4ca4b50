"""Random programs, run on an engine and on the memory engine side by side, must never show a difference.

`engine_machine(make_engine)` gives a Hypothesis state machine; run it with `check_engine`, or as a `TestCase`::

    def test_model():
        check_engine(lambda: MyEngine(...))      # a new, empty store on each call

Each rule does the same to both engines at the same instant and compares the answers; after each rule everything that
can be observed is compared too. A worker's death is a claim that nobody ever settles.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import structs

from dibs.core.ids import uuid7
from dibs.core.settings import QueueSettings, change_settings
from dibs.core.states import Reason, State
from dibs.core.task import Edit, Lease, LeasedTask, NewTask, Outcome, QueueState, Settlement
from dibs.core.times import HOUR, MINUTE, SECOND, Duration
from dibs.engines.base import ClaimRequest, EnqueueOutcome, Extension, Floor, Query
from dibs.testing.conformance.harness import START, EngineFactory
from dibs.testing.programs import (
    ACTORS,
    CHANGES,
    FAILURE,
    JACK_OF_ALL_TRADES,
    PROFILES,
    QUEUES,
    Profile,
    deadlines,
    delays,
    floors,
    new_tasks,
    outcomes,
    picks,
    queries,
    queue_states,
    queues,
    spans,
)
from dibs.testing.side_by_side import SideBySide, all_pages, by_id, finish_chore, without_stale

__all__ = ["PROFILE", "EngineMachine", "check_engine", "engine_machine"]

MANY = 100


class EngineMachine(SideBySide):
    """The rules. `make_engine` is set by `engine_machine`."""

    def __init__(self) -> None:
        super().__init__()
        self.enqueued: list[NewTask] = []
        self.leases: list[Lease] = []
        self.requests: dict[str, ClaimRequest] = {}
        self.settlements: list[Settlement] = []
        self.touched: set[str] = set()

    def some_ids(self, chosen: list[int]) -> list[str]:
        """Known ids, and now and then one that nobody knows."""
        ids = [self.ids[pick % len(self.ids)] if pick else self.id_of(0) for pick in chosen]
        self.touched.update(ids)
        return ids

    def lease(self, pick: int) -> Lease:
        """A lease that was given at some time, most likely a recent one."""
        lease = self.leases[-1 - pick % len(self.leases)]
        self.touched.add(lease.id)
        return lease

    @staticmethod
    def id_of(number: int) -> str:
        return uuid7(START // 1_000 + number, 0, number)

    # What producers do.

    @initialize(tasks=st.lists(st.tuples(new_tasks, deadlines), min_size=1, max_size=8))
    def begin(self, tasks: list[tuple[NewTask, Duration | None]]) -> None:
        """An empty store shows little."""
        self.enqueue(tasks, atomic=False)

    @rule(tasks=st.lists(st.tuples(new_tasks, deadlines), min_size=1, max_size=4), atomic=st.booleans())
    def enqueue(self, tasks: list[tuple[NewTask, Duration | None]], atomic: bool) -> None:
        batch = []
        for number, (task, left) in enumerate(tasks, len(self.enqueued) + 1):
            deadline = None if left is None else self.now + left
            batch.append(structs.replace(task, id=self.id_of(number), deadline=deadline))
        self.enqueued += batch
        self.store(batch, atomic)

    @precondition(lambda self: self.enqueued)
    @rule(pick=picks, other_name=st.booleans(), atomic=st.booleans())
    def enqueue_again(self, pick: int, other_name: bool, atomic: bool) -> None:
        task = self.enqueued[pick % len(self.enqueued)]
        self.store([structs.replace(task, name="index") if other_name else task], atomic)

    def store(self, batch: list[NewTask], atomic: bool) -> None:
        answers = self.both(lambda engine: engine.enqueue(batch, atomic=atomic, now=self.now))
        self.ids += [answer.id for answer in answers if answer.outcome is EnqueueOutcome.ENQUEUED]
        self.touched.update(answer.id for answer in answers)

    # What workers do.

    @rule(
        profile=st.sampled_from(PROFILES),
        served=st.permutations(QUEUES),
        width=st.integers(1, 2 * len(QUEUES)),
        limit=st.integers(0, 6),
        prefetch=st.sampled_from((0, 0, 2)),
        lease=st.sampled_from((None, None, SECOND, HOUR)),
        in_order=st.booleans(),
        floors=floors,
    )
    def claim(
        self,
        profile: Profile,
        served: list[str],
        width: int,
        limit: int,
        prefetch: int,
        lease: Duration | None,
        in_order: bool,
        floors: tuple[Floor, ...],
    ) -> None:
        self.take(
            profile,
            queues=tuple(served[:width]),
            limit=limit,
            prefetch=prefetch,
            lease=lease,
            in_order=in_order,
            floors=floors,
        )

    def take(self, profile: Profile, **facts: object) -> list[LeasedTask]:
        """Claim under the worker's next sequence number."""
        last = self.requests.get(profile.worker)
        request = ClaimRequest(
            worker=profile.worker,
            sequence=1 if last is None else last.sequence + 1,
            queues=QUEUES,
            limit=1,
            names=profile.names,
            capabilities=profile.capabilities,
        )
        request = self.requests[profile.worker] = structs.replace(request, **facts)
        tasks = self.both(lambda engine: engine.claim(request, now=self.now)).tasks
        self.remember(tasks)
        return tasks

    @rule(plan=st.lists(st.tuples(outcomes, delays), min_size=1, max_size=6))
    def work(self, plan: list[tuple[Outcome, Duration]]) -> None:
        """Claim and settle: what happens most often."""
        tasks = self.take(JACK_OF_ALL_TRADES, limit=len(plan))
        self.report(
            [
                self.settlement(Lease(task.id, task.lease), outcome, delay)
                for task, (outcome, delay) in zip(tasks, plan, strict=False)
            ]
        )

    @rule(limit=st.integers(1, 4), silent_for=spans)
    def die(self, limit: int, silent_for: Duration) -> None:
        """Claim and never be heard of again."""
        self.take(JACK_OF_ALL_TRADES, limit=limit, lease=10 * SECOND)
        self.now += silent_for
        self.rescue()

    @rule(limit=st.integers(1, 4), outcome=outcomes, heirs=st.booleans())
    def come_back(self, limit: int, outcome: Outcome, heirs: bool) -> None:
        """Be taken for dead, and then speak about runs that belong to others now."""
        leases = [Lease(task.id, task.lease) for task in self.take(JACK_OF_ALL_TRADES, limit=limit, lease=10 * SECOND)]
        self.now += MINUTE
        self.rescue()
        if heirs:
            self.take(JACK_OF_ALL_TRADES, limit=limit, lease=HOUR)
        self.both(lambda engine: engine.extend([Extension(lease, HOUR) for lease in leases], now=self.now))
        self.report([self.settlement(lease, outcome, SECOND) for lease in leases])

    @precondition(lambda self: self.requests)
    @rule(pick=picks)
    def claim_again(self, pick: int) -> None:
        request = structs.replace(list(self.requests.values())[pick % len(self.requests)], repeat=True)
        subject, model = self.each(lambda engine: engine.claim(request, now=self.now))
        assert subject.next_due_in == model.next_due_in
        assert by_id(subject.tasks) == by_id(model.tasks)
        self.remember(model.tasks)

    def remember(self, tasks: list[LeasedTask]) -> None:
        self.leases += [Lease(task.id, task.lease) for task in tasks]
        self.touched.update(task.id for task in tasks)

    @precondition(lambda self: self.leases)
    @rule(chosen=st.lists(picks, min_size=1, max_size=4), by=spans, progress=st.sampled_from((None, 0.0, 0.5)))
    def extend(self, chosen: list[int], by: Duration, progress: float | None) -> None:
        message = "" if progress is None else "on the way"
        extensions = [Extension(self.lease(pick), by, progress, message) for pick in chosen]
        self.both(lambda engine: engine.extend(extensions, now=self.now))

    @precondition(lambda self: self.leases)
    @rule(
        chosen=st.lists(st.tuples(picks, outcomes, delays), min_size=1, max_size=4),
        reason=st.sampled_from((None, Reason.EXHAUSTED)),
        timed_out=st.booleans(),
    )
    def settle(self, chosen: list[tuple[int, Outcome, Duration]], reason: Reason | None, timed_out: bool) -> None:
        """Report about runs of which some have long been settled, lost or taken over."""
        self.report(
            [self.settlement(self.lease(pick), outcome, delay, reason, timed_out) for pick, outcome, delay in chosen]
        )

    def report(self, settlements: list[Settlement]) -> None:
        self.settlements = (self.settlements + settlements)[-MANY:]
        self.touched.update(settlement.lease.id for settlement in settlements)
        self.both(lambda engine: engine.settle(settlements, now=self.now))

    @staticmethod
    def settlement(
        lease: Lease, outcome: Outcome, delay: Duration, reason: Reason | None = None, timed_out: bool = False
    ) -> Settlement:
        failed = outcome in (Outcome.RETRY, Outcome.DEAD)
        return Settlement(
            lease=lease,
            outcome=outcome,
            delay=delay if outcome in (Outcome.RETRY, Outcome.SNOOZED) else 0,
            reason=reason if outcome is Outcome.DEAD else None,
            result=b'{"sum":3}' if outcome is Outcome.COMPLETED else None,
            failure=FAILURE if failed else None,
            timed_out=failed and timed_out,
            note="as it went" if timed_out else "",
        )

    @precondition(lambda self: self.settlements)
    @rule(pick=picks)
    def settle_again(self, pick: int) -> None:
        settlement = self.settlements[-1 - pick % len(self.settlements)]
        self.touched.add(settlement.lease.id)
        self.both(lambda engine: engine.settle([settlement], now=self.now))

    @rule()
    def rescue(self) -> None:
        rescued = self.both(lambda engine: engine.rescue(now=self.now))
        self.touched.update(rescued.lost)

    # What people do.

    @precondition(lambda self: self.ids)
    @rule(
        chosen=st.lists(picks, min_size=1, max_size=3),
        note=st.sampled_from(("", "stop it")),
        actor=st.sampled_from(ACTORS),
    )
    def cancel(self, chosen: list[int], note: str, actor: str) -> None:
        ids = self.some_ids(chosen)
        self.both(lambda engine: engine.cancel(ids, note=note, actor=actor, now=self.now))

    @precondition(lambda self: self.ids)
    @rule(
        chosen=st.lists(picks, min_size=1, max_size=3),
        priority=st.none() | st.sampled_from((5, 50, 95)),
        due_in=st.none() | st.sampled_from((-HOUR, 0, SECOND, HOUR)),
        deadline_in=deadlines,
        metadata=st.sampled_from((None, {}, {"customer": 1})),
    )
    def edit(
        self,
        chosen: list[int],
        priority: int | None,
        due_in: Duration | None,
        deadline_in: Duration | None,
        metadata: dict[str, object] | None,
    ) -> None:
        edits = [
            Edit(
                id=task_id,
                priority=priority,
                due_at=None if due_in is None else self.now + due_in,
                deadline=None if deadline_in is None else self.now + deadline_in,
                metadata=metadata,
            )
            for task_id in self.some_ids(chosen)
        ]
        self.both(lambda engine: engine.edit(edits, actor="ada", now=self.now))

    @precondition(lambda self: self.ids)
    @rule(chosen=st.lists(picks, min_size=1, max_size=3), queue=st.none() | queues, reset=st.booleans())
    def replay(self, chosen: list[int], queue: str | None, reset: bool) -> None:
        ids = self.dead_ids() + self.some_ids(chosen)
        self.both(lambda engine: engine.replay(ids, queue=queue, reset=reset, actor="ada", now=self.now))

    def dead_ids(self) -> list[str]:
        ids = [
            record.id for record in self.runner.run(self.model.get(self.ids)) if record and record.state is State.DEAD
        ]
        self.touched.update(ids)
        return ids[:2]

    @precondition(lambda self: self.ids)
    @rule(chosen=st.lists(picks, min_size=1, max_size=2))
    def purge(self, chosen: list[int]) -> None:
        ids = self.some_ids(chosen)
        self.both(lambda engine: engine.purge(ids, actor="ada", now=self.now))

    @rule(queue=queues, state=queue_states)
    def set_queue_state(self, queue: str, state: QueueState) -> None:
        self.both(lambda engine: engine.set_queue_state(queue, state, actor="ada", now=self.now))

    @rule(queue=queues, change=st.sampled_from(CHANGES), stale_version=st.booleans())
    def set_queue(self, queue: str, change: dict[str, object], stale_version: bool) -> None:
        found = {record.name: record.settings for record in self.runner.run(self.model.queues())}
        old = found.get(queue)
        new = change_settings(old or QueueSettings(), change)
        expected = (0 if old is None else old.version) - (1 if stale_version and old is not None else 0)
        subject, model = self.each(
            lambda engine: engine.set_queue(queue, new, expected=expected, actor="ada", now=self.now)
        )
        assert without_stale(subject) == without_stale(model)

    @rule(queue=queues, force=st.sampled_from((False, False, True)))
    def delete_queue(self, queue: str, force: bool) -> None:
        self.both(lambda engine: engine.delete_queue(queue, force=force, actor="ada", now=self.now))
        self.touched.update(self.ids)

    # What happens by itself.

    @rule(span=spans)
    def time_passes(self, span: Duration) -> None:
        self.now += span

    @rule()
    def rerank(self) -> None:
        """Bring ranks up to date on both sides; then neither may say that anything is left."""
        for engine in (self.subject, self.model):
            self.runner.run(finish_chore(engine, "rerank", self.now))
        subject, model = self.each(lambda engine: engine.queues())
        assert [record.stale for record in subject] == [record.stale for record in model] == [0] * len(model)

    @rule()
    def all_chores(self) -> None:
        for engine in (self.subject, self.model):
            for name in engine.chore_names:
                self.runner.run(finish_chore(engine, name, self.now))
        self.touched.update(self.ids)

    # What can be seen.

    @rule(query=queries)
    def search(self, query: Query) -> None:
        """All pages agree; where one ends is the engine's own business."""
        subject, model = self.each(lambda engine: all_pages(engine, query))
        assert subject == model

    @precondition(lambda self: self.ids)
    @rule(pick=picks)
    def position(self, pick: int) -> None:
        (task_id,) = self.some_ids([pick])
        self.both(lambda engine: engine.position(task_id, now=self.now))

    @invariant()
    def agree(self) -> None:
        self.compare(sorted(self.touched))
        self.touched.clear()


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
