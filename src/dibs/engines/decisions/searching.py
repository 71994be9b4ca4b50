"""search: what a store compares itself, and what is decided on the records that it finds.

A store compares columns, and looks for texts in the facts: what it finds may match. Whether it does is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from dibs.core.states import UNFINISHED, State
from dibs.core.task import TaskRecord
from dibs.core.times import Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.records import Place, place_of
from dibs.engines.values import Query, UnreadableTask

__all__ = [
    "Wanted",
    "has_columns_only",
    "has_counts_only",
    "is_track_meant",
    "matches",
    "unfinished_states",
    "wanted_by",
]

MOST_NEEDLES = 3


class Wanted(Struct, frozen=True, kw_only=True):
    """What a store compares itself. None: anything."""

    tasks: bool = True
    dead: bool = True
    finished: bool = True
    cancelled: bool = False
    """Of the finished ones, only those that were cancelled."""
    unwanted: list[State] = []
    tracks: list[int] | None = None
    worker: str | None = None
    created_after: Instant | None = None
    created_before: Instant | None = None
    needles: tuple[str, ...] = ()
    """Texts that are in the facts, which are JSON."""

    def parameters(self) -> tuple[Any, ...]:
        """In the order in which the statement `newest` takes them."""
        needles = (*self.needles, *(None,) * (MOST_NEEDLES - len(self.needles)))
        places = (self.tasks, self.dead, self.finished, self.cancelled)
        created = (self.created_after, self.created_before)
        return (*places, self.unwanted, self.tracks, self.worker, *created, *needles)


def wanted_by(query: Query, tracks: Mapping[int, Track]) -> Wanted:
    """What a store can compare of a query. What can't be read is left to `matches`."""
    states = frozenset(query.states or State)
    places = {place_of(state) for state in states}
    is_cancelled = Place.FINISHED in places and State.COMPLETED not in states
    meant = [number for number, track in tracks.items() if is_track_meant(query, track.queue, track.name)]
    return Wanted(
        tasks=Place.TASKS in places,
        dead=Place.DEAD in places,
        finished=Place.FINISHED in places and not is_cancelled,
        cancelled=is_cancelled,
        unwanted=sorted(frozenset(State) - states),
        tracks=meant if query.queues or query.names else None,
        worker=query.worker,
        created_after=query.created_after,
        created_before=query.created_before,
        needles=tuple(needles_of(query)),
    )


def needles_of(query: Query) -> list[str]:
    """What the facts of a task that matches contain, in the form that `facts_of` gives them."""
    labels = {"tenant": query.tenant or None, "partition": query.partition, "key": query.key}
    return [f'"{name}":{to_json(value)}' for name, value in labels.items() if value is not None]


def has_columns_only(query: Query) -> bool:
    """Whether a store compares all that is asked for."""
    asks_more = query.priority_min > 0 or query.priority_max < 100 or query.metadata or query.text
    return not asks_more and query.ended_after is None and query.ended_before is None


def has_counts_only(query: Query, now: Instant) -> bool:
    """Whether only states, queues and names are asked for, and tasks created by now, which all are: counts tell."""
    labels = (query.key, query.tenant, query.partition, query.worker, query.workflow, query.created_after)
    is_open = query.created_before is None or query.created_before > now
    return has_columns_only(query) and is_open and query.cursor is None and all(each is None for each in labels)


def unfinished_states(query: Query) -> frozenset[State]:
    """The unfinished states that are asked for, if not all are."""
    found = UNFINISHED & frozenset(query.states or State)
    return frozenset() if found == UNFINISHED else found


def may_match(query: Query, state: State, queue: str, name: str, worker: str | None) -> bool:
    """What can be decided without decoding the rest of a row."""
    return (
        (not query.states or state in query.states)
        and is_track_meant(query, queue, name)
        and (query.worker is None or worker == query.worker)
    )


def is_track_meant(query: Query, queue: str, name: str) -> bool:
    """Whether tasks of this queue and name may match."""
    return (not query.queues or queue in query.queues) and (not query.names or name in query.names)


def matches(query: Query, record: TaskRecord | UnreadableTask) -> bool:
    """Whether all that is asked for holds."""
    if isinstance(record, UnreadableTask):
        return may_be_meant(query, record)
    return (
        may_match(query, record.state, record.queue, record.name, record.worker)
        and query.priority_min <= record.spec.priority <= query.priority_max
        and (query.created_after is None or record.created_at >= query.created_after)
        and (query.created_before is None or record.created_at < query.created_before)
        and has_ended(query, record.finished_at)
        and (query.key is None or record.spec.key == query.key)
        and (query.workflow is None or record.spec.workflow == query.workflow)
        and (query.tenant is None or record.spec.tenant == query.tenant)
        and (query.partition is None or record.spec.partition == query.partition)
        and (not query.metadata or has_metadata(record, query.metadata))
        and (not query.text or query.text.lower() in searched_text(record).lower())
    )


def may_be_meant(query: Query, task: UnreadableTask) -> bool:
    """Whether an unreadable task matches: only if no condition is about something that can't be read."""
    ended = (query.ended_after, query.ended_before)
    unknown = (query.key, query.tenant, query.partition, query.metadata, query.text, query.workflow, *ended)
    if any(unknown) or query.priority_min > 0 or query.priority_max < 100:
        return False
    return (
        (query.created_after is None or task.created_at >= query.created_after)
        and (query.created_before is None or task.created_at < query.created_before)
        and may_match(query, task.state, task.queue, task.name, task.worker)
    )


def has_ended(query: Query, finished_at: Instant | None) -> bool:
    """Whether a task has ended in the time asked for, if any is."""
    after, before = query.ended_after, query.ended_before
    if finished_at is None:
        return after is None and before is None
    return (after is None or finished_at >= after) and (before is None or finished_at < before)


def has_metadata(record: TaskRecord, wanted: dict[str, Any]) -> bool:
    return all(name in record.spec.metadata and record.spec.metadata[name] == value for name, value in wanted.items())


def searched_text(record: TaskRecord) -> str:
    failure = record.failure
    told = "" if failure is None else f"{failure.type}\n{failure.message}"
    return f"{record.args.decode()}\n{told}\n{record.note}"
