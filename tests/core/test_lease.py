"""Leases: arithmetic, and that only waiting ages a task."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dibs.core.lease import LONGEST_RUN, heartbeat_interval, is_exhausted, rewound, span_left, taken_until
from dibs.core.moves import admit, claimed, lost, promoted, settled
from dibs.core.settings import Defaults, QueueSettings
from dibs.core.states import State
from dibs.core.task import Lease, NewTask, Outcome, Settlement, TaskRecord
from dibs.core.times import DAY, HOUR, SECOND, Duration, Instant

START: Instant = 1_760_000_000 * SECOND
SETTINGS = QueueSettings()
spans = st.integers(0, 3 * DAY)


def test_two_beats_may_fail() -> None:
    assert heartbeat_interval(30 * SECOND) == 10 * SECOND
    assert heartbeat_interval(1) == SECOND // 10


@given(ran=spans, by=spans)
def test_an_extended_lease_ends_within_the_longest_run(ran: Duration, by: Duration) -> None:
    span = span_left(by, ran)
    assert 0 <= span <= by
    assert ran + span <= max(ran, LONGEST_RUN)
    assert span == by or is_exhausted(ran + span)


def test_a_look_for_lost_tasks_that_was_held_up_takes_nothing() -> None:
    assert taken_until(START, None, None) == START
    assert taken_until(START, START - SECOND, START) == START - SECOND
    assert taken_until(START, START - SECOND, START - 1) is None
    assert taken_until(START, START + SECOND, None) == START, "the clock was set back"


@given(waited=spans, ran=spans, delay=spans)
def test_what_was_waited_counts_and_what_ran_does_not(waited: Duration, ran: Duration, delay: Duration) -> None:
    claimed_at = START + waited
    due_at = claimed_at + ran + delay
    assert due_at - rewound(due_at, claimed_at, START) == waited


def new_record(delay: Duration = 0) -> TaskRecord:
    return admit(NewTask(id="1", queue="q", name="n", delay=delay, options=Defaults(retries=9)), SETTINGS, START)


def run(record: TaskRecord, outcome: Outcome, begun: Instant, ended: Instant, delay: Duration) -> TaskRecord:
    running = claimed(record, "w", 1, None, begun)
    settlement = Settlement(lease=Lease(record.id, running.lease), outcome=outcome, delay=delay)
    return settled(running, settlement, SETTINGS, ended)[0]


@given(
    rounds=st.lists(st.tuples(spans, spans, spans, st.sampled_from((Outcome.FAILED, Outcome.SNOOZED))), max_size=6),
    last_wait=spans,
)
def test_only_waiting_ages(rounds: list[tuple[Duration, Duration, Duration, Outcome]], last_wait: Duration) -> None:
    """However often a task runs and comes back, its age is the time it could have run and did not."""
    now, record, waited = START, new_record(), 0
    for wait, ran, delay, outcome in rounds:
        now += wait
        waited += wait
        record = run(record, outcome, now, now + ran, delay)
        now += ran + delay
        assert record.due_at == now
        record = promoted(record)
    now += last_wait
    assert record.ready_at is not None
    assert now - record.ready_at == waited + last_wait


@given(wait=spans, ran=spans)
def test_released_and_lost_tasks_keep_their_age(wait: Duration, ran: Duration) -> None:
    begun = START + wait
    released = run(new_record(), Outcome.RELEASED, begun, begun + ran, 0)
    again, _ = lost(claimed(new_record(), "w", 1, None, begun), SETTINGS, begun + ran)
    for record in (released, again):
        assert record.state is State.PENDING
        assert record.ready_at == begun + ran - wait


def test_a_scheduled_task_ages_from_its_due_time() -> None:
    record = promoted(new_record(delay=HOUR))
    assert record.ready_at == START + HOUR
