"""What a task becomes: the moves of tasks that wait for others, expire, are replaced or replayed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dibs.core.graph import Edge
from dibs.core.moves import (
    admit,
    buried,
    cancelled,
    claimed,
    edited,
    expired,
    inherits,
    leased,
    promoted,
    reblocked,
    replaced,
    replayed,
    reranked,
    settled,
    unblocked,
)
from dibs.core.settings import Defaults, Policy, QueueSettings
from dibs.core.states import Reason, State
from dibs.core.task import (
    Edit,
    Failure,
    HistoryEvent,
    Lease,
    NewTask,
    Outcome,
    Settlement,
    TaskRecord,
)
from dibs.core.times import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from dibs.testing.tasks import changed, new_task

START: Instant = 1_760_000_000 * SECOND
PLAIN = QueueSettings()
FAIR = QueueSettings(fair=True)
NEW = new_task("t", "q", "work", tenant="acme")
AFTER = changed(NEW, after=(Edge("p"),))


def running(new: NewTask = NEW, settings: QueueSettings = PLAIN, now: Instant = START) -> TaskRecord:
    return claimed(admit(new, settings, now), "w", 1, None, now)


def dead(new: NewTask = NEW, now: Instant = START) -> TaskRecord:
    taken = running(new, now=now)
    settlement = Settlement(lease=Lease(taken.id, taken.lease), outcome=Outcome.PERMANENT)
    return settled(taken, settlement, PLAIN, now)[0]


def test_everything_that_decides_is_kept() -> None:
    new = changed(AFTER, partition="p-1", expires_at=START + DAY, workflow="w", takes=True)
    record = admit(new, PLAIN, START, inherited=70)
    assert record.spec == new.spec
    assert (record.inherited, record.urgency) == (70, 70)
    told = leased(claimed(record, "w", 1, None, START), PLAIN)
    assert told.spec == new.spec


def test_a_blocked_task_has_no_rank_and_remembers_its_time() -> None:
    record = admit(changed(AFTER, delay=HOUR, deadline=START + MINUTE), PLAIN, START, blocked=True)
    assert (record.state, record.due_at, record.ready_at) == (State.BLOCKED, START + HOUR, None)
    assert (record.lane, record.rank_offset, record.rerank_at) == (0, 0, None)


@given(delay=st.integers(0, 2 * HOUR), wait=st.integers(0, 3 * HOUR))
def test_unblocked_is_ready_from_now_on_or_at_its_time(delay: Duration, wait: Duration) -> None:
    now = START + wait
    record = unblocked(admit(changed(AFTER, delay=delay), PLAIN, START, blocked=True), PLAIN, now)
    if delay > wait:
        assert (record.state, record.due_at, record.ready_at) == (State.SCHEDULED, START + delay, START + delay)
    else:
        assert (record.state, record.due_at, record.ready_at) == (State.PENDING, None, now)
    assert record.rank == admit(NEW, PLAIN, record.ready_at or 0).rank, "it ages from then on, like a new one"


@given(priority=st.integers(0, 100), inherited=st.integers(0, 100), policy=st.sampled_from(Policy))
def test_an_heir_ranks_like_the_more_urgent(priority: int, inherited: int, policy: Policy) -> None:
    settings = QueueSettings(policy=policy)
    record = inherits(admit(changed(NEW, priority=priority), settings, START), inherited, settings, START)
    like = admit(changed(NEW, priority=max(priority, inherited)), settings, START)
    assert (record.rank, record.lane, record.rerank_at) == (like.rank, like.lane, like.rerank_at)
    assert (record.spec.priority, record.inherited) == (priority, inherited)


def test_a_running_heir_keeps_its_run() -> None:
    record = running()
    assert structs.replace(inherits(record, 90, PLAIN, START), inherited=0, changed_at=None) == record


def test_an_heir_that_comes_back_waits_as_such() -> None:
    record = inherits(running(), 90, PLAIN, START)
    released = Settlement(lease=Lease("t", 1), outcome=Outcome.RELEASED)
    back, _ = settled(record, released, PLAIN, START)
    assert back.rank == admit(changed(NEW, priority=90), PLAIN, START).rank


def test_the_share_follows_the_ranking() -> None:
    record = admit(NEW, PLAIN, START)
    assert record.share == ""
    assert reranked(record, FAIR, START).share == "acme"
    assert reranked(reranked(record, FAIR, START), PLAIN, START) == record
    assert admit(AFTER, FAIR, START, blocked=True).share == "acme"


def test_expiry_cancels() -> None:
    for record in (admit(NEW, PLAIN, START), admit(AFTER, PLAIN, START, blocked=True)):
        ended, entry = expired(record, START + HOUR)
        assert (ended.state, ended.reason, ended.finished_at) == (State.CANCELLED, Reason.EXPIRED, START + HOUR)
        assert entry is not None
        assert (entry.event, entry.note) == (HistoryEvent.CANCELLED, ended.note)
        assert "expired" in ended.note


def test_a_dependency_buries_with_its_note() -> None:
    ended, entry = buried(admit(AFTER, PLAIN, START, blocked=True), Reason.DEPENDENCY, "", START, "p is dead")
    assert (ended.state, ended.reason, ended.note) == (State.DEAD, Reason.DEPENDENCY, "p is dead")
    assert entry is not None
    assert (entry.event, entry.note) == (HistoryEvent.DEAD, "p is dead")


def test_editing_the_time_of_a_blocked_task_leaves_it_blocked() -> None:
    record = admit(AFTER, PLAIN, START, blocked=True)
    later, entry = edited(record, Edit(id="t", due_at=START + HOUR), PLAIN, "ada", START)
    assert entry is not None
    assert (later.state, later.due_at, later.ready_at) == (State.BLOCKED, START + HOUR, None)
    soon, _ = edited(later, Edit(id="t", due_at=START - HOUR), PLAIN, "ada", START)
    assert soon == structs.replace(record, changed_at=START)
    assert edited(record, Edit(id="t", due_at=START), PLAIN, "ada", START) == (record, None)


def test_expiry_can_be_edited() -> None:
    record = admit(NEW, PLAIN, START)
    changed, entry = edited(record, Edit(id="t", expires_at=START + DAY), PLAIN, "ada", START)
    assert changed.spec.expires_at == START + DAY
    assert entry is not None
    assert f"expires_at={START + DAY}" in entry.note
    assert edited(changed, Edit(id="t", expires_at=START + DAY), PLAIN, "ada", START) == (changed, None)


CONTENT = new_task(
    id="other",
    queue="q",
    name="work",
    args=b'{"n":2}',
    priority=80,
    options=Defaults(retries=9),
    deadline=START + DAY,
    expires_at=START + 2 * DAY,
    metadata={"a": 1},
    headers={"h": "x"},
    parent="x",
    partition="p-2",
    tenant="umbrella",
    takes=True,
    key="k",
)


def test_a_replaced_task_has_the_new_content_and_keeps_who_it_is() -> None:
    later = START + MINUTE
    record = structs.replace(
        admit(changed(NEW, key="k", workflow="w"), FAIR, START),
        attempts=2,
        losses=1,
        failure=Failure(type="E", message="m"),
    )
    fresh, entry = replaced(record, CONTENT, FAIR, later)
    assert (fresh.args, fresh.spec) == (CONTENT.args, structs.replace(CONTENT.spec, workflow="w"))
    assert (fresh.options.retries, fresh.share) == (9, "umbrella")
    assert (fresh.id, fresh.spec.key, fresh.created_at) == ("t", "k", START)
    assert (fresh.attempts, fresh.losses, fresh.failure) == (0, 0, None)
    assert entry is not None
    assert (entry.event, entry.at) == (HistoryEvent.REPLACED, later)


def test_a_pending_task_replaced_for_now_keeps_its_place() -> None:
    record = admit(NEW, PLAIN, START)
    fresh, _ = replaced(record, changed(NEW, args=b'{"n":2}'), PLAIN, START + HOUR)
    assert (fresh.state, fresh.ready_at, fresh.rank) == (State.PENDING, START, record.rank)


@given(delay=st.integers(0, HOUR), span=st.integers(0, 2 * HOUR), wait=st.integers(0, 3 * HOUR))
def test_putting_off_ends(delay: Duration, span: Duration, wait: Duration) -> None:
    """However often it is replaced, it is due no later than `debounce_limit` after it was first enqueued."""
    debounced = changed(NEW, delay=delay, debounce_limit=span)
    now = START + wait
    fresh, _ = replaced(admit(changed(NEW, delay=HOUR), PLAIN, START), debounced, PLAIN, now)
    due_at = min(now + delay, START + span)
    assert fresh.state is (State.SCHEDULED if due_at > now else State.PENDING)
    assert fresh.due_at == (due_at if due_at > now else None)
    assert fresh.ready_at == max(due_at, now)


def test_a_task_that_waits_for_a_retry_starts_over_when_replaced() -> None:
    retry = Settlement(lease=Lease("t", 1), outcome=Outcome.FAILED, delay=HOUR)
    retrying, _ = settled(running(), retry, PLAIN, START)
    now_due, _ = replaced(retrying, NEW, PLAIN, START + MINUTE)
    assert (now_due.state, now_due.attempts, now_due.ready_at) == (State.PENDING, 0, START + MINUTE)
    postponed, _ = replaced(retrying, changed(NEW, delay=DAY), PLAIN, START)
    assert (postponed.state, postponed.due_at) == (State.RETRYING, START + DAY)
    assert promoted(postponed).state is State.PENDING


def test_a_blocked_task_stays_blocked_when_replaced() -> None:
    record = admit(AFTER, PLAIN, START, blocked=True)
    fresh, _ = replaced(record, changed(NEW, delay=HOUR), PLAIN, START)
    assert (fresh.state, fresh.due_at, fresh.ready_at) == (State.BLOCKED, START + HOUR, None)


def test_reblocked_waits_as_if_new() -> None:
    ended, _ = cancelled(admit(AFTER, PLAIN, START, blocked=True), "p is dead", "", START, Reason.DEPENDENCY)
    waiting, entry = reblocked(ended, PLAIN, "ada", START + HOUR)
    assert (waiting.state, waiting.reason, waiting.note, waiting.finished_at) == (State.BLOCKED, None, "", None)
    assert (waiting.ready_at, waiting.due_at) == (None, None)
    assert entry is not None
    assert (entry.event, entry.actor) == (HistoryEvent.REPLAYED, "ada")


def test_replay_forgets_an_expiry_that_has_passed() -> None:
    record = dead(changed(NEW, expires_at=START + HOUR))
    early, _ = replayed(record, PLAIN, None, True, "", START + MINUTE)
    late, _ = replayed(record, PLAIN, None, True, "", START + HOUR)
    assert (early.spec.expires_at, late.spec.expires_at) == (START + HOUR, None)


def test_replay_forgets_what_was_inherited() -> None:
    record = structs.replace(dead(), inherited=90)
    again, _ = replayed(record, PLAIN, None, True, "", START)
    assert (again.inherited, again.rank) == (0, admit(NEW, PLAIN, START).rank)
