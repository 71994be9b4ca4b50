"""What workers do: claim, extend, settle, die, and come back from the dead."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec import structs

from dibs.core.task import Lease, LeasedTask, Outcome, Settlement
from dibs.core.times import HOUR, MINUTE, SECOND, Duration
from dibs.engines.values import ClaimRequest, Extension, Floor
from dibs.testing.model.producing import Producing
from dibs.testing.model.side_by_side import by_id
from dibs.testing.programs import (
    FAILURE,
    JACK_OF_ALL_TRADES,
    PROFILES,
    QUEUES,
    Profile,
    delays,
    floors,
    outcomes,
    picks,
    spans,
)

__all__ = ["Working"]

MANY = 100


class Working(Producing):
    """Runs, and reports about them that may come late."""

    def __init__(self) -> None:
        super().__init__()
        self.leases: list[Lease] = []
        self.requests: dict[str, ClaimRequest] = {}
        self.settlements: list[Settlement] = []

    def lease(self, pick: int) -> Lease:
        """A lease that was given at some time, most likely a recent one."""
        lease = self.leases[-1 - pick % len(self.leases)]
        self.touched.add(lease.id)
        return lease

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
        subject, model = self.each(lambda engine: engine.claim(request, now=self.now))
        assert subject.next_due_in == model.next_due_in
        tasks = self.same_tasks(subject.tasks, model.tasks)
        self.remember(tasks)
        self.keep_within_limits(tasks)
        return tasks

    def same_tasks(self, subject: list[LeasedTask], model: list[LeasedTask]) -> list[LeasedTask]:
        """Both were given the same, but for the numbers of their leases."""
        unnumbered = [[structs.replace(task, lease=0) for task in tasks] for tasks in (subject, model)]
        assert unnumbered[0] == unnumbered[1], f"the engine gave {subject!r}, the model {model!r}"
        self.match_leases(subject, model)
        return model

    def keep_within_limits(self, tasks: list[LeasedTask]) -> None:
        """What has just been started under a limit does not exceed it, whatever the limit was before."""
        for task in tasks:
            for limit in self.model.oracle.limits_of(self.model.oracle.tasks[task.id]):
                assert limit.max_concurrent is None or limit.running <= limit.max_concurrent, limit

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
        self.extend_all([Extension(lease, HOUR) for lease in leases])
        self.report([self.settlement(lease, outcome, SECOND) for lease in leases])

    @precondition(lambda self: self.requests)
    @rule(pick=picks)
    def claim_again(self, pick: int) -> None:
        request = structs.replace(list(self.requests.values())[pick % len(self.requests)], repeat=True)
        subject, model = self.each(lambda engine: engine.claim(request, now=self.now))
        assert subject.next_due_in == model.next_due_in
        self.remember(self.same_tasks(by_id(subject.tasks), by_id(model.tasks)))

    def remember(self, tasks: list[LeasedTask]) -> None:
        self.leases += [Lease(task.id, task.lease) for task in tasks]
        self.touched.update(task.id for task in tasks)

    @precondition(lambda self: self.leases)
    @rule(
        chosen=st.lists(picks, min_size=1, max_size=4),
        by=spans,
        progress=st.sampled_from((None, 0.0, 0.5)),
        ran=st.sampled_from((0, 24 * HOUR - SECOND, 24 * HOUR)),
    )
    def extend(self, chosen: list[int], by: Duration, progress: float | None, ran: Duration) -> None:
        message = "" if progress is None else "on the way"
        extensions = [Extension(self.lease(pick), by, progress, message, ran) for pick in chosen]
        self.extend_all(extensions)

    def extend_all(self, extensions: list[Extension]) -> None:
        theirs = [structs.replace(each, lease=self.subjects(each.lease)) for each in extensions]
        self.both(lambda engine: engine.extend(theirs if engine is self.subject else extensions, now=self.now))

    @precondition(lambda self: self.leases)
    @rule(
        chosen=st.lists(st.tuples(picks, outcomes, delays), min_size=1, max_size=4),
        timed_out=st.booleans(),
    )
    def settle(self, chosen: list[tuple[int, Outcome, Duration]], timed_out: bool) -> None:
        """Report about runs of which some have long been settled, lost or taken over."""
        self.report([self.settlement(self.lease(pick), outcome, delay, timed_out) for pick, outcome, delay in chosen])

    def report(self, settlements: list[Settlement]) -> None:
        self.settlements = (self.settlements + settlements)[-MANY:]
        self.touched.update(settlement.lease.id for settlement in settlements)
        self.settle_all(settlements)

    def settle_all(self, settlements: list[Settlement]) -> None:
        theirs = [structs.replace(each, lease=self.subjects(each.lease)) for each in settlements]
        self.both(lambda engine: engine.settle(theirs if engine is self.subject else settlements, now=self.now))

    @staticmethod
    def settlement(lease: Lease, outcome: Outcome, delay: Duration, timed_out: bool = False) -> Settlement:
        failed = outcome in (Outcome.FAILED, Outcome.PERMANENT)
        return Settlement(
            lease=lease,
            outcome=outcome,
            delay=delay if outcome is Outcome.SNOOZED or (outcome is Outcome.FAILED and delay) else None,
            result=b'{"sum":3}' if outcome is Outcome.COMPLETED else None,
            failure=FAILURE if failed else None,
            timed_out=failed and timed_out,
            note="as it went" if timed_out else "",
            metadata={"customer": 2, "timed out": True} if timed_out else None,
        )

    @precondition(lambda self: self.settlements)
    @rule(pick=picks)
    def settle_again(self, pick: int) -> None:
        settlement = self.settlements[-1 - pick % len(self.settlements)]
        self.touched.add(settlement.lease.id)
        self.settle_all([settlement])

    @rule(ended=st.sampled_from((None, 0, SECOND, MINUTE)), late=st.sampled_from((None, -SECOND, 0, 1)))
    def rescue(self, ended: Duration | None = None, late: Duration | None = None) -> None:
        ended_by = None if ended is None else self.now - ended
        not_after = None if late is None else self.now - late
        subject, rescued = self.each(lambda engine: engine.rescue(ended_by=ended_by, not_after=not_after, now=self.now))
        assert self.rescued_of(subject) == rescued, f"the engine took back {subject!r}, the model {rescued!r}"
        self.touched.update(rescued.ids)
