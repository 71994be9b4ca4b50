"""What a task becomes when something happens to it.

Each function takes a record and returns the next one, and the history entry if there is one. No engine decides this
itself; fast paths in engines (claims, completions) do the same in bulk.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from dibs.core.graph import Verdict
from dibs.core.lease import rewound
from dibs.core.priority import Ranking, rank, scale
from dibs.core.retry import after_failure, after_loss, jitter
from dibs.core.settings import QueueSettings, resolve
from dibs.core.states import Move, Reason, State, after
from dibs.core.task import (
    Edit,
    EndedBy,
    HistoryEntry,
    HistoryEvent,
    LeasedTask,
    NewTask,
    Outcome,
    Settlement,
    TaskRecord,
    with_spec,
)
from dibs.core.times import Duration, Instant

__all__ = [
    "Change",
    "admit",
    "buried",
    "cancelled",
    "claimed",
    "edited",
    "ended_by",
    "expired",
    "inherits",
    "leased",
    "lost",
    "promoted",
    "reblocked",
    "replaced",
    "replayed",
    "reranked",
    "settled",
    "unblocked",
]

Change = tuple[TaskRecord, HistoryEntry | None]

EDITABLE = ("priority", "deadline", "expires_at", "metadata")
EDIT_NOTES = ("priority", "deadline", "expires_at", "due_at")


def admit(
    new: NewTask, settings: QueueSettings, now: Instant, *, blocked: bool = False, inherited: int = 0
) -> TaskRecord:
    """The record of a new task; `blocked`: something that it waits for has not ended."""
    due_at = new.at if new.at is not None else now + new.delay
    later = due_at > now
    ready_at = due_at if later else now
    move = Move.ENQUEUE_AFTER if blocked else Move.ENQUEUE_LATER if later else Move.ENQUEUE
    record = TaskRecord(
        id=new.id,
        queue=new.queue,
        name=new.name,
        args=new.args,
        requires=new.requires,
        spec=new.spec,
        state=after(None, move),
        options=resolve(new.options, new.app_options, settings, new.spec.priority),
        created_at=now,
        due_at=due_at if later else None,
        ready_at=None if blocked else ready_at,
        inherited=inherited,
    )
    return reranked(record, settings, now)


def unblocked(record: TaskRecord, settings: QueueSettings, now: Instant) -> TaskRecord:
    """A task that waits for no other task any more; it may still have to wait for its due time."""
    later = record.due_at is not None and record.due_at > now
    ready = structs.replace(
        record,
        state=after(record.state, Move.UNBLOCK_LATER if later else Move.UNBLOCK),
        due_at=record.due_at if later else None,
        ready_at=record.due_at if later else now,
        changed_at=now,
    )
    return reranked(ready, settings, now)


def inherits(record: TaskRecord, inherited: int, settings: QueueSettings, now: Instant) -> TaskRecord:
    """An unfinished task with another inherited priority."""
    heir = structs.replace(record, inherited=inherited, changed_at=now)
    return heir if record.state is State.RUNNING else reranked(heir, settings, now)


def promoted(record: TaskRecord) -> TaskRecord:
    """A task that is due. Its rank was computed for this moment."""
    return structs.replace(record, state=after(record.state, Move.PROMOTE), due_at=None)


def claimed(record: TaskRecord, worker: str, sequence: int, lease: Duration | None, now: Instant) -> TaskRecord:
    """A task that a worker has claimed."""
    return structs.replace(
        record,
        state=after(record.state, Move.CLAIM),
        lease=record.lease + 1,
        lease_expires_at=now + (lease or record.options.lease),
        started_at=now,
        worker=worker,
        sequence=sequence,
        progress=None,
        progress_message="",
    )


def leased(record: TaskRecord, settings: QueueSettings) -> LeasedTask:
    """What the worker gets of a claimed task."""
    assert record.lease_expires_at is not None
    assert record.started_at is not None
    assert record.ready_at is not None
    return LeasedTask(
        id=record.id,
        lease=record.lease,
        lease_expires_at=record.lease_expires_at,
        claimed_at=record.started_at,
        ready_at=record.ready_at,
        queue=record.queue,
        name=record.name,
        args=record.args,
        spec=record.spec,
        rank=record.rank,
        scale=scale(settings, record.lane),
        options=record.options,
        attempts=record.attempts,
        losses=record.losses,
        handed_back=record.handed_back,
        fair=settings.fair,
    )


def settled(record: TaskRecord, settlement: Settlement, settings: QueueSettings | None, now: Instant) -> Change:
    """A running task whose worker has reported. No settings: its queue has been deleted."""
    record = structs.replace(record, settled_lease=record.lease, lease_expires_at=None)
    if settlement.metadata:
        record = with_spec(record, metadata={**record.spec.metadata, **settlement.metadata})
    outcome = settlement.outcome
    if outcome is Outcome.COMPLETED:
        done = end(record, State.COMPLETED, None, now)
        progress = None if record.progress is None else 1.0
        return structs.replace(done, result=settlement.result, failure=None, progress=progress), None
    if outcome is Outcome.FAILED or outcome is Outcome.PERMANENT:
        return failed(record, settlement, settings, now)
    if outcome is Outcome.CANCELLED or record.cancel_reason is not None:
        return stopped(record, settlement, now)
    record = structs.replace(record, handed_back=record.handed_back + 1)
    if outcome is Outcome.SNOOZED:
        back = back_to_waiting(record, Move.SNOOZE, settings, settlement.delay or 0, now)
        return back, entry(record, HistoryEvent.SNOOZED, now, settlement)
    back = back_to_waiting(record, Move.RELEASE, settings, 0, now)
    return back, entry(record, HistoryEvent.RELEASED, now, settlement)


def failed(record: TaskRecord, settlement: Settlement, settings: QueueSettings | None, now: Instant) -> Change:
    """A running task whose attempt has failed."""
    shake = jitter(record.id, record.attempts + record.losses)
    permanent = settlement.outcome is Outcome.PERMANENT
    decision = after_failure(record.options, record.attempts + 1, shake, permanent=permanent, asked=settlement.delay)
    if decision.reason is None and record.cancel_reason is not None:
        return stopped(record, settlement, now)
    record = structs.replace(record, attempts=record.attempts + 1, failure=settlement.failure)
    if decision.reason is not None:
        dead = end(record, after(State.RUNNING, Move.BURY), decision.reason, now)
        dead = structs.replace(dead, note=settlement.note)
        return dead, entry(record, HistoryEvent.DEAD, now, settlement, settlement.note or str(decision.reason))
    event = HistoryEvent.TIMED_OUT if settlement.timed_out else HistoryEvent.FAILED
    again = back_to_waiting(record, Move.RETRY, settings, decision.delay, now)
    return again, entry(record, event, now, settlement)


def stopped(record: TaskRecord, settlement: Settlement, now: Instant) -> Change:
    """A running task that ends because it was cancelled."""
    note = record.cancel_reason or settlement.note
    ended = end(record, after(State.RUNNING, Move.CANCEL), Reason.USER, now)
    ended = structs.replace(ended, note=note, failure=settlement.failure)
    return ended, entry(record, HistoryEvent.CANCELLED, now, settlement, note)


def lost(record: TaskRecord, settings: QueueSettings | None, now: Instant) -> Change:
    """A running task whose worker is gone. No settings: its queue has been deleted."""
    losses = record.losses + 1
    record = structs.replace(record, losses=losses, lease_expires_at=None)
    note = f"loss {losses}: the worker stopped without settling it"
    history = HistoryEntry(
        at=now,
        event=HistoryEvent.LOST,
        lease=record.lease,
        started_at=record.started_at,
        worker=record.worker,
        note=note,
    )
    if record.cancel_reason is not None:
        ended = end(record, after(State.RUNNING, Move.CANCEL), Reason.USER, now)
        return structs.replace(ended, note=record.cancel_reason), history
    decision = after_loss(record.options, losses, jitter(record.id, record.attempts + record.losses))
    if decision.reason is not None:
        return end(record, after(State.RUNNING, Move.BURY), decision.reason, now), history
    move = Move.LOSE_AGAIN if decision.delay else Move.LOSE
    return back_to_waiting(record, move, settings, decision.delay, now), history


def cancelled(record: TaskRecord, note: str, actor: str, now: Instant, reason: Reason = Reason.USER) -> Change:
    """A task that was cancelled: a waiting one ends, a running one is asked to stop."""
    if record.state is State.RUNNING:
        asked = structs.replace(record, cancel_reason=note, changed_at=now)
        event = HistoryEvent.CANCEL_REQUESTED
        return asked, HistoryEntry(at=now, event=event, lease=record.lease, actor=actor, note=note)
    stopped = structs.replace(end(record, after(record.state, Move.CANCEL), reason, now), note=note)
    return stopped, HistoryEntry(at=now, event=HistoryEvent.CANCELLED, lease=record.lease, actor=actor, note=note)


def ended_by(record: TaskRecord, verdict: Verdict, cause: EndedBy, now: Instant) -> Change:
    """A blocked task that ends, as an edge says, because of how its prerequisite ended."""
    note = f"{cause.id} is {cause.state}"
    if verdict is Verdict.CANCEL:
        ended, entry = cancelled(record, note, "", now, Reason.DEPENDENCY)
    else:
        ended, entry = buried(record, Reason.DEPENDENCY, "", now, note)
    return structs.replace(ended, ended_by=cause), entry


def expired(record: TaskRecord, now: Instant) -> Change:
    """A waiting task that has expired."""
    return cancelled(record, "it had not started when it expired", "", now, Reason.EXPIRED)


def buried(record: TaskRecord, reason: Reason, actor: str, now: Instant, note: str = "") -> Change:
    """A waiting task that becomes dead because its queue was deleted or what it waited for failed."""
    dead = structs.replace(end(record, after(record.state, Move.BURY), reason, now), note=note)
    entry = HistoryEntry(at=now, event=HistoryEvent.DEAD, lease=record.lease, actor=actor, note=note or str(reason))
    return dead, entry


def edited(record: TaskRecord, edit: Edit, settings: QueueSettings, actor: str, now: Instant) -> Change:
    """A waiting task with the edit applied; the record itself if nothing changes."""
    spec = {
        name: value for name in EDITABLE if (value := getattr(edit, name)) not in (None, getattr(record.spec, name))
    }
    facts = {} if edit.due_at is None else reschedule(record, max(edit.due_at, now), now)
    if not spec and not facts:
        return record, None
    note = ", ".join(f"{name}={value}" for name, value in {**spec, **facts}.items() if name in EDIT_NOTES)
    changed = structs.replace(record, spec=structs.replace(record.spec, **spec), changed_at=now, **facts)
    entry = HistoryEntry(at=now, event=HistoryEvent.EDITED, actor=actor, note=note or "metadata")
    return reranked(changed, settings, now), entry


def reschedule(record: TaskRecord, due_at: Instant, now: Instant) -> dict[str, object]:
    """The changes to a waiting task that gets another due time; the time it has waited is kept."""
    if record.state is State.BLOCKED:
        kept = due_at if due_at > now else None
        return {} if kept == record.due_at else {"due_at": kept}
    is_due = record.state is State.PENDING or (record.due_at or 0) <= now
    if due_at == record.due_at or (is_due and due_at <= now):
        return {}
    ready_at = due_at if record.ready_at is None else due_at - max(0, (record.due_at or now) - record.ready_at)
    state = after(record.state, Move.POSTPONE) if record.state is State.PENDING else record.state
    return {"state": state, "due_at": due_at, "ready_at": ready_at}


def replaced(record: TaskRecord, new: NewTask, settings: QueueSettings, now: Instant) -> Change:
    """A waiting task that gets the content of a newer one with the same key; it keeps its place if it had one."""
    due_at = new.at if new.at is not None else now + new.delay
    if new.debounce_limit is not None:
        due_at = min(due_at, record.created_at + new.debounce_limit)
    fresh = structs.replace(
        record,
        args=new.args,
        requires=new.requires,
        spec=structs.replace(new.spec, key=record.spec.key, workflow=record.spec.workflow),
        options=resolve(new.options, new.app_options, settings, new.spec.priority),
        attempts=0,
        losses=0,
        failure=None,
        changed_at=now,
        **postpone(record, due_at, now),
    )
    return reranked(fresh, settings, now), HistoryEntry(at=now, event=HistoryEvent.REPLACED)


def postpone(record: TaskRecord, due_at: Instant, now: Instant) -> dict[str, Any]:
    """The changes to a waiting task that is now due at `due_at`."""
    if record.state is State.BLOCKED:
        return {"due_at": due_at if due_at > now else None}
    if due_at > now:
        state = after(record.state, Move.POSTPONE) if record.state is State.PENDING else record.state
        return {"state": state, "due_at": due_at, "ready_at": due_at}
    if record.state is State.PENDING:
        return {}
    return {"state": after(record.state, Move.PROMOTE), "due_at": None, "ready_at": now}


def replayed(
    record: TaskRecord, settings: QueueSettings, queue: str | None, reset: bool, actor: str, now: Instant
) -> Change:
    """A dead task that starts again, as if it were new."""
    fresh = structs.replace(
        reset_life(record, now, reset),
        queue=queue or record.queue,
        state=after(record.state, Move.REPLAY),
        ready_at=now,
    )
    note = f"from {record.queue}" if queue and queue != record.queue else ""
    return reranked(fresh, settings, now), HistoryEntry(at=now, event=HistoryEvent.REPLAYED, actor=actor, note=note)


def reblocked(record: TaskRecord, settings: QueueSettings, actor: str, now: Instant) -> Change:
    """A task that ended because of a dependency and waits for it again, as its workflow is replayed."""
    waiting = structs.replace(
        reset_life(record, now, reset=True), state=after(record.state, Move.REBLOCK), ready_at=None
    )
    return reranked(waiting, settings, now), HistoryEntry(at=now, event=HistoryEvent.REPLAYED, actor=actor)


def reset_life(record: TaskRecord, now: Instant, reset: bool) -> TaskRecord:
    """A task without the traces of its earlier runs; an expiry that has passed is dropped."""
    return structs.replace(
        record,
        due_at=None,
        started_at=None,
        finished_at=None,
        changed_at=now,
        worker=None,
        reason=None,
        ended_by=None,
        note="",
        failure=None,
        progress=None,
        progress_message="",
        cancel_reason=None,
        inherited=0,
        spec=record.spec if (record.spec.expires_at or 0) > now else structs.replace(record.spec, expires_at=None),
        attempts=0 if reset else record.attempts,
        losses=0 if reset else record.losses,
        handed_back=0,
    )


def reranked(record: TaskRecord, settings: QueueSettings, now: Instant) -> TaskRecord:
    """A waiting task with its rank computed again. A blocked one has none yet."""
    share = record.spec.tenant if settings.fair else ""
    if record.ready_at is None:
        return structs.replace(record, share=share, lane=0, rank_offset=0, rerank_at=None)
    ranking = rank(
        settings,
        priority=record.urgency,
        attempts=record.attempts,
        deadline=record.spec.deadline,
        ready_at=record.ready_at,
        now=max(now, record.due_at or now),
    )
    return structs.replace(
        record,
        share=share,
        lane=ranking.lane,
        rank_offset=ranking.offset,
        rerank_at=rerank_instant(ranking, record.ready_at),
    )


def back_to_waiting(
    record: TaskRecord, move: Move, settings: QueueSettings | None, delay: Duration, now: Instant
) -> TaskRecord:
    """A running task that goes back to waiting, due `delay` from now; the time it ran does not count as waiting.

    If its queue was deleted it becomes dead, to be replayed elsewhere.
    """
    if settings is None:
        return end(record, after(State.RUNNING, Move.BURY), Reason.QUEUE, now)
    assert record.started_at is not None
    assert record.ready_at is not None
    state = after(State.RUNNING, move)
    due_at = now + delay
    waiting = structs.replace(
        record,
        state=state,
        due_at=None if state is State.PENDING else due_at,
        ready_at=rewound(due_at, record.started_at, record.ready_at),
        started_at=None,
        changed_at=now,
        worker=None,
        progress=None,
        progress_message="",
    )
    return reranked(waiting, settings, now)


def end(record: TaskRecord, state: State, reason: Reason | None, now: Instant) -> TaskRecord:
    return structs.replace(
        record,
        state=state,
        reason=reason,
        finished_at=now,
        changed_at=None,
        due_at=None,
        rerank_at=None,
        lease_expires_at=None,
    )


def entry(
    record: TaskRecord, event: HistoryEvent, now: Instant, settlement: Settlement, note: str | None = None
) -> HistoryEntry:
    return HistoryEntry(
        at=now,
        event=event,
        lease=record.lease,
        started_at=record.started_at,
        worker=record.worker,
        note=settlement.note if note is None else note,
        failure=settlement.failure,
    )


def rerank_instant(ranking: Ranking, ready_at: Instant) -> Instant | None:
    return None if ranking.rerank_in is None else ready_at + ranking.rerank_in
