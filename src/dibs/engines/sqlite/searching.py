"""search: newest first by id over all three places, looking at a bounded number of rows a page.

Each place (and each day of finished tasks) is in order of ids, so a page is a merge of their ends. What matches is
decided here, on decoded records: the conditions are many, the rows bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import Any

import msgspec

from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.engines.base import VISIT_LIMIT, Page, Query
from dibs.engines.sqlite.records import Place, place_of
from dibs.engines.sqlite.rows import Row, decode_rows
from dibs.engines.sqlite.transaction import Snapshot

__all__ = ["search"]

FIRST_CHUNK = 20
LARGEST_CHUNK = 500
BEYOND = "\U0010ffff"
"""Sorts after every id."""

days_decoder = msgspec.json.Decoder(list[int])
texts_decoder = msgspec.json.Decoder(list[str])


def search(snapshot: Snapshot, query: Query) -> Page:
    snapshot.refresh()
    found: list[TaskRecord] = []
    rows = newest_first(snapshot, query)
    for visited, row in enumerate(rows, 1):
        record = snapshot.record(row) if may_match(snapshot, row, query) else None
        if record is not None and matches(record, query):
            found.append(record)
        if len(found) == query.limit or visited == VISIT_LIMIT:
            more = next(rows, None) is not None
            return Page(found, row.id if more else None)
    return Page(found)


def newest_first(snapshot: Snapshot, query: Query) -> Iterator[Row]:
    """The rows of the places that the query's states can be in, by id, highest first."""
    before = BEYOND if query.cursor is None else query.cursor
    if query.workflow is not None:
        return members_down(snapshot, query.workflow, before)
    wanted = {place_of(state) for state in query.states or State}
    sources = []
    if Place.TASKS in wanted:
        sources.append(read_down(snapshot, "search_tasks", before))
    if Place.DEAD in wanted:
        sources.append(read_down(snapshot, "search_dead", before))
    if Place.FINISHED in wanted:
        days = days_decoder.decode(snapshot.value("days_below", before))
        sources += [read_down(snapshot, "search_finished", before, day) for day in days]
    return iter(merge(*sources, key=lambda row: row.id, reverse=True))


def read_down(snapshot: Snapshot, statement: str, before: str, *where: int) -> Iterator[Row]:
    """The rows of one place downwards, in growing chunks."""
    chunk = FIRST_CHUNK
    while True:
        rows = decode_rows(snapshot.value(statement, before, chunk, *where))
        yield from rows
        if len(rows) < chunk:
            return
        before = rows[-1].id
        chunk = min(chunk * 5, LARGEST_CHUNK)


def members_down(snapshot: Snapshot, workflow: str, before: str) -> Iterator[Row]:
    """The rows of one workflow downwards, wherever they are."""
    while True:
        ids = texts_decoder.decode(snapshot.value("search_members", workflow, before, LARGEST_CHUNK))
        rows = snapshot.find(ids)
        yield from (rows[task_id] for task_id in ids)
        if len(ids) < LARGEST_CHUNK:
            return
        before = ids[-1]


def may_match(snapshot: Snapshot, row: Row, query: Query) -> bool:
    """What can be said without decoding the rest of the row."""
    stream = snapshot.catalog.streams[row.stream]
    return (
        (not query.states or row.state in query.states)
        and (not query.queues or stream.queue in query.queues)
        and (not query.names or stream.name in query.names)
        and (query.worker is None or row.worker == query.worker)
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
