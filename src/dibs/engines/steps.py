"""Steps of the background: what was asked of them, and how far they have come."""

from __future__ import annotations

from msgspec import Struct, structs

from dibs.core.states import ENDED, UNFINISHED, WAITING, State
from dibs.core.task import Edit
from dibs.core.times import Instant
from dibs.engines.values import Cancel, Changed, Purge, Query, Replay

__all__ = ["ActOnAll", "DeleteQueue", "StepRecord", "query_for"]


class DeleteQueue(Struct, frozen=True, omit_defaults=True, tag="delete queue"):
    """Make the waiting tasks of a queue dead, and then delete it. `id` is its name."""

    id: str
    force: bool = False


ActOnAll = Cancel | Edit | Replay | Purge
"""What can be done to all tasks that match. Its `id` is empty."""


STATES: dict[type[ActOnAll], frozenset[State]] = {
    Cancel: UNFINISHED,
    Edit: WAITING,
    Replay: frozenset({State.DEAD}),
    Purge: ENDED,
}
"""What each act is for."""


def query_for(act: ActOnAll, query: Query, now: Instant) -> Query:
    """A query for tasks that an act is for, created by now. It has no states if none of them can match."""
    states = STATES[type(act)] & frozenset(query.states or State)
    before = now + 1 if query.created_before is None else min(query.created_before, now + 1)
    return structs.replace(query, states=tuple(sorted(states)), created_before=before, cursor=None)


class StepRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of the background, as it is stored.

    `query` is what it acts on: tasks created by `asked_at`, in states that the act is for. `matched` tasks were counted
    beforehand; `more`: there were more, because counting is bounded. Of those that it has `visited`, so many `changed`.
    """

    id: str
    act: ActOnAll | DeleteQueue
    query: Query
    actor: str
    asked_at: Instant
    matched: int
    more: bool = False
    visited: int = 0
    changed: int = 0
    ids: tuple[str, ...] = ()
    """The first of the tasks that it has changed."""
    ended_at: Instant | None = None
    outcome: Changed | None = None
    """How it has ended: `wrong state` if a queue could not be deleted, because it has tasks that can't be read."""
