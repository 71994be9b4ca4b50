"""What moves add to the counters: derived from a task as it was and as it is, so that no verb can forget it."""

from __future__ import annotations

from collections.abc import Iterator

from dibs.core.priority import tiers_climbed
from dibs.core.settings import QueueSettings, Tier
from dibs.core.states import ENDED, Reason, State
from dibs.core.task import TaskRecord
from dibs.engines.figures import Counter

__all__ = ["MOST_ERRORS", "counted_events", "error_type", "error_what", "type_counted"]

MOST_ERRORS = 50
"""Types of errors that are counted by themselves in each queue."""
LONGEST_TYPE = 100
ERROR = "error "

ENDS = {
    (State.COMPLETED, None): Counter.COMPLETIONS,
    (State.DEAD, Reason.EXHAUSTED): Counter.DEAD_EXHAUSTED,
    (State.DEAD, Reason.PERMANENT): Counter.DEAD_PERMANENT,
    (State.DEAD, Reason.LOST): Counter.DEAD_LOST,
    (State.DEAD, Reason.DEPENDENCY): Counter.DEAD_DEPENDENCY,
    (State.DEAD, Reason.QUEUE): Counter.DEAD_QUEUE,
    (State.CANCELLED, Reason.USER): Counter.CANCELLED_USER,
    (State.CANCELLED, Reason.EXPIRED): Counter.CANCELLED_EXPIRED,
    (State.CANCELLED, Reason.DEPENDENCY): Counter.CANCELLED_DEPENDENCY,
}
HANDED_BACK = {State.PENDING: Counter.RELEASES, State.SCHEDULED: Counter.SNOOZES}
PROMOTIONS = {Tier.MEDIUM: Counter.PROMOTED_MEDIUM, Tier.HIGH: Counter.PROMOTED_HIGH}


def counted_events(old: TaskRecord | None, new: TaskRecord, settings: QueueSettings) -> Iterator[Counter]:
    """What has happened to a task; `old` is None if it is new.

    A timeout is not told by records: it is counted where the settlement is known.
    """
    if old is None:
        yield Counter.ENQUEUED
    elif old.state in ENDED:
        if new.state not in ENDED:
            yield Counter.REPLAYED
        return
    else:
        yield from events_of_run(old, new)
        if old.urgency == new.urgency and old.ready_at is not None and new.ready_at is not None:
            climbed = tiers_climbed(settings, old.rank_offset, new.rank_offset)
            yield from (PROMOTIONS[tier] for tier in climbed)
    if new.state in ENDED:
        yield ENDS[new.state, new.reason]


def events_of_run(old: TaskRecord, new: TaskRecord) -> Iterator[Counter]:
    """What the end of a run has changed."""
    if new.attempts > old.attempts:
        yield Counter.FAILURES
        if new.state is State.RETRYING:
            yield Counter.RETRIES
    if new.losses > old.losses:
        yield Counter.LOSSES
    if new.handed_back > old.handed_back and new.state in HANDED_BACK:
        yield HANDED_BACK[new.state]


def error_type(old: TaskRecord, new: TaskRecord) -> str | None:
    """The type of the error because of which an attempt has just failed. No store takes a NUL in a name."""
    if new.attempts <= old.attempts or new.failure is None:
        return None
    return new.failure.type.replace("\0", "")[:LONGEST_TYPE]


def error_what(kind: str) -> str:
    """What is counted for a type of error."""
    return ERROR + kind


def type_counted(what: str) -> str | None:
    """The type of error that a count is about."""
    return what.removeprefix(ERROR) if what.startswith(ERROR) else None
