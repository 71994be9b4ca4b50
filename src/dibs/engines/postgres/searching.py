"""search: newest first by id over all three places, reading a bounded number of rows a page."""

from __future__ import annotations

from uuid import UUID

from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.engines.decisions.records import Place, place_of
from dibs.engines.decisions.searching import matches, may_match
from dibs.engines.postgres.rows import TaskRow, real_ids
from dibs.engines.postgres.transaction import Snapshot
from dibs.engines.values import VISIT_LIMIT, Page, Query, UnreadableTask

__all__ = ["search"]

FIRST_CHUNK = 50
LARGEST_CHUNK = 500
STATES = frozenset(State)
HIGHEST = UUID(int=2**128 - 1)


async def search(snapshot: Snapshot, query: Query) -> Page:
    found: list[TaskRecord | UnreadableTask] = []
    places = {place_of(state) for state in query.states or State}
    wanted = [place in places for place in Place]
    first = HIGHEST if query.cursor is None else below(query.cursor)
    chunk, visited = FIRST_CHUNK, 0
    statement, of = ("search", []) if query.workflow is None else ("search_members", real_ids([query.workflow]))
    if query.workflow is not None and not of:
        return Page(found)
    while True:
        rows = await snapshot.rows(statement, first, chunk + 1, *wanted, *of)
        snapshot.catalog.expect(row["track"] for row in rows)
        for position, row in enumerate(rows[:chunk], 1):
            visited += 1
            if is_candidate(snapshot, query, row):
                record = snapshot.decoded(row)
                if matches(query, record):
                    found.append(record)
            if len(found) == query.limit or visited == VISIT_LIMIT:
                return Page(found, str(row["id"]) if position < len(rows) else None)
        if len(rows) <= chunk:
            return Page(found)
        first = rows[chunk]["id"]
        chunk = min(5 * chunk, LARGEST_CHUNK)


def is_candidate(snapshot: Snapshot, query: Query, row: TaskRow) -> bool:
    """What can be decided without decoding the rest of a row."""
    track = snapshot.catalog.tracks.get(row["track"])
    if track is None or row["state"] not in STATES:
        return True
    return may_match(query, row["state"], track.queue, track.name, row["worker"])


def below(task_id: str) -> UUID:
    """The highest id below this one."""
    return UUID(int=max(0, UUID(task_id).int - 1))
