"""search: newest first by id over all three places, looking at a bounded number of rows a page.

What matches is decided here, on decoded records: the conditions are many, the rows bounded.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.engines.base import VISIT_LIMIT, Page, Query
from dibs.engines.postgres.records import Place, place_of
from dibs.engines.postgres.rows import Row
from dibs.engines.postgres.transaction import Snapshot

__all__ = ["search"]

FIRST_CHUNK = 50
LARGEST_CHUNK = 500
HIGHEST = UUID(int=2**128 - 1)


async def search(snapshot: Snapshot, query: Query) -> Page:
    found: list[TaskRecord] = []
    places = {place_of(state) for state in query.states or State}
    wanted = [place in places for place in Place]
    first = HIGHEST if query.cursor is None else below(query.cursor)
    chunk, visited = FIRST_CHUNK, 0
    while True:
        rows = await snapshot.rows("search", first, chunk + 1, *wanted)
        for position, row in enumerate(rows[:chunk], 1):
            visited += 1
            record = snapshot.record(row) if may_match(snapshot, row, query) else None
            if record is not None and matches(record, query):
                found.append(record)
            if len(found) == query.limit or visited == VISIT_LIMIT:
                return Page(found, str(row["id"]) if position < len(rows) else None)
        if len(rows) <= chunk:
            return Page(found)
        first = rows[chunk]["id"]
        chunk = min(5 * chunk, LARGEST_CHUNK)


def below(task_id: str) -> UUID:
    """The highest id below this one."""
    return UUID(int=max(0, UUID(task_id).int - 1))


def may_match(snapshot: Snapshot, row: Row, query: Query) -> bool:
    """What can be said without decoding the rest of the row."""
    stream = snapshot.catalog.stream(row["stream"])
    return (
        (not query.states or row["state"] in query.states)
        and (not query.queues or stream.queue in query.queues)
        and (not query.names or stream.name in query.names)
        and (query.worker is None or row["worker"] == query.worker)
    )


def matches(record: TaskRecord, query: Query) -> bool:
    return (
        query.priority_min <= record.priority <= query.priority_max
        and (query.created_after is None or record.created_at >= query.created_after)
        and (query.created_before is None or record.created_at < query.created_before)
        and (query.key is None or record.key == query.key)
        and (query.workflow is None or record.workflow == query.workflow)
        and (query.tenant is None or record.tenant == query.tenant)
        and has_metadata(record, query.metadata)
        and (not query.text or query.text.lower() in searched_text(record).lower())
    )


def has_metadata(record: TaskRecord, wanted: dict[str, Any]) -> bool:
    return all(name in record.metadata and record.metadata[name] == value for name, value in wanted.items())


def searched_text(record: TaskRecord) -> str:
    failure = record.failure
    told = "" if failure is None else f"{failure.type}\n{failure.message}"
    return f"{record.args.decode()}\n{told}\n{record.note}"
