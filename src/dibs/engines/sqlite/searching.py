"""search: newest first by id over all three places, reading a bounded number of rows a page.

Each place (and each day of finished tasks) is in order of ids, so a page merges their ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

import msgspec

from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.engines.decisions.records import Place, place_of
from dibs.engines.decisions.searching import matches, may_match
from dibs.engines.sqlite.rows import Row
from dibs.engines.sqlite.transaction import Snapshot
from dibs.engines.values import VISIT_LIMIT, Page, Query, UnreadableTask

__all__ = ["BEYOND", "newest_first", "search"]

FIRST_CHUNK = 20
LARGEST_CHUNK = 500
BEYOND = "\U0010ffff"
"""Sorts after every id."""

days_decoder = msgspec.json.Decoder(list[int])
texts_decoder = msgspec.json.Decoder(list[str])


def search(snapshot: Snapshot, query: Query) -> Page:
    snapshot.refresh()
    found: list[TaskRecord | UnreadableTask] = []
    rows = newest_first(snapshot, query)
    for visited, row in enumerate(rows, 1):
        if is_candidate(snapshot, query, row):
            record = snapshot.decoded(row)
            if matches(query, record):
                found.append(record)
        if len(found) == query.limit or visited == VISIT_LIMIT:
            more = next(rows, None) is not None
            return Page(found, row.id if more else None)
    return Page(found)


def is_candidate(snapshot: Snapshot, query: Query, row: Row | UnreadableTask) -> bool:
    """What can be decided without decoding the rest of a row."""
    if isinstance(row, UnreadableTask):
        return True
    track = snapshot.catalog.tracks.get(row.track)
    return track is None or may_match(query, row.state, track.queue, track.name, row.worker)


def newest_first(snapshot: Snapshot, query: Query) -> Iterator[Row | UnreadableTask]:
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


def read_down(snapshot: Snapshot, statement: str, before: str, *where: int) -> Iterator[Row | UnreadableTask]:
    """The rows of one place downwards, in growing chunks."""
    chunk = FIRST_CHUNK
    while True:
        rows = snapshot.tasks(statement, before, chunk, *where)
        yield from rows
        lower = [row.id for row in rows if row.id < before]  # without ids that are not text
        if len(rows) < chunk or not lower:
            return
        before = min(lower)
        chunk = min(chunk * 5, LARGEST_CHUNK)


def members_down(snapshot: Snapshot, workflow: str, before: str) -> Iterator[Row | UnreadableTask]:
    """The rows of one workflow downwards, wherever they are."""
    while True:
        ids = texts_decoder.decode(snapshot.value("search_members", workflow, before, LARGEST_CHUNK))
        rows = snapshot.find_rows(ids)
        yield from (rows[task_id] for task_id in ids if task_id in rows)
        if len(ids) < LARGEST_CHUNK:
            return
        before = ids[-1]
