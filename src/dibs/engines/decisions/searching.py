"""search: the conditions are many and the rows are bounded, so matches are decided on records."""

from __future__ import annotations

from typing import Any

from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.engines.values import Query, UnreadableTask

__all__ = ["is_track_meant", "matches"]


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
    """Check the rest of a row that `may_match`."""
    if isinstance(record, UnreadableTask):
        return may_be_meant(query, record)
    return (
        query.priority_min <= record.spec.priority <= query.priority_max
        and (query.created_after is None or record.created_at >= query.created_after)
        and (query.created_before is None or record.created_at < query.created_before)
        and (query.key is None or record.spec.key == query.key)
        and (query.workflow is None or record.spec.workflow == query.workflow)
        and (query.tenant is None or record.spec.tenant == query.tenant)
        and (query.partition is None or record.spec.partition == query.partition)
        and (not query.metadata or has_metadata(record, query.metadata))
        and (not query.text or query.text.lower() in searched_text(record).lower())
    )


def may_be_meant(query: Query, task: UnreadableTask) -> bool:
    """Whether an unreadable task matches: only if no condition is about something that can't be read."""
    unknown = (query.key, query.tenant, query.partition, query.metadata, query.text, query.workflow)
    if any(unknown) or query.priority_min > 0 or query.priority_max < 100:
        return False
    return (
        (query.created_after is None or task.created_at >= query.created_after)
        and (query.created_before is None or task.created_at < query.created_before)
        and may_match(query, task.state, task.queue, task.name, task.worker)
    )


def has_metadata(record: TaskRecord, wanted: dict[str, Any]) -> bool:
    return all(name in record.spec.metadata and record.spec.metadata[name] == value for name, value in wanted.items())


def searched_text(record: TaskRecord) -> str:
    failure = record.failure
    told = "" if failure is None else f"{failure.type}\n{failure.message}"
    return f"{record.args.decode()}\n{told}\n{record.note}"
