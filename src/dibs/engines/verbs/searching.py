"""search: newest first by id over all places, with a bounded number of rows a page."""

from __future__ import annotations

from msgspec import Struct

from dibs.core.policy import CHECKED_ROWS
from dibs.core.states import WAITING
from dibs.engines.decisions.searching import Wanted, has_columns_only, matches
from dibs.engines.port import Read, Stored, View
from dibs.engines.values import READ_LIMIT, VISIT_LIMIT, Page, Query
from dibs.engines.verbs.search_sources import source_of

__all__ = ["Walked", "newest_id", "read_tasks", "search", "walk"]

SMALLEST_CHUNK = 100
LARGEST_CHUNK = 25_000
GROWTH = 3
MOST_STRETCHES = 200
"""Blocks may be empty by now: then nothing in them is visited, but looking costs."""
READ_AT_ONCE = 500
CHECKED_CHUNK = 1000

OLDEST_TASKS = Read("oldest_tasks", str, "task")
"""Takes the id to begin after or None, and how many: unfinished tasks, oldest first."""


class Walked(Struct, frozen=True):
    """Tasks that match, where to go on (None at the end), how many rows were visited, and how many tasks read."""

    tasks: list[Stored]
    cursor: str | None
    visited: int = 0
    reads: int = 0


async def search(view: View, query: Query) -> Page:
    walked = await walk(view, query, query.limit, VISIT_LIMIT, READ_LIMIT)
    return Page(walked.tasks, walked.cursor, walked.visited)


async def walk(view: View, query: Query, most: int, most_visits: int, most_reads: int) -> Walked:
    """Go down from the query's cursor until so many match, or so many rows were visited, or so many tasks read."""
    if not can_match(query):
        return Walked([], None)
    source, reader = await source_of(view, query), Reader(view, query, most, most_reads)
    before, visited = query.cursor, 0
    chunk = min(max(2 * most, SMALLEST_CHUNK), LARGEST_CHUNK)
    for _ in range(MOST_STRETCHES):
        stretch = await source.read(before, min(chunk, most_visits - visited))
        visited += stretch.visited
        stopped = await reader.read(stretch.ids)
        if stopped is not None:
            is_end = stretch.floor is None and stopped == stretch.ids[-1]
            return Walked(reader.found, None if is_end else stopped, visited, most_reads - reader.reads_left)
        before = stretch.floor
        if before is None or visited >= most_visits:
            break
        # What has to be read to be known costs far more than what the store compares.
        chunk = min(GROWTH * chunk, LARGEST_CHUNK if has_columns_only(query) else READ_AT_ONCE)
    return Walked(reader.found, before, visited, most_reads - reader.reads_left)


def can_match(query: Query) -> bool:
    """No stored text has a NUL, which some stores can't even compare. A task that waits has no worker."""
    if query.worker is not None and query.states and WAITING.issuperset(query.states):
        return False
    return "\0" not in f"{query.worker}{query.workflow}"


class Reader:
    """Reads tasks that may match, until enough do."""

    def __init__(self, view: View, query: Query, most: int, most_reads: int) -> None:
        self.view, self.query = view, query
        self.most, self.reads_left = most, most_reads
        self.found: list[Stored] = []

    async def read(self, ids: list[str]) -> str | None:
        """Read these in order; the one to go on below if that is enough."""
        start = 0
        while start < len(ids):
            size = min(max(2 * (self.most - len(self.found)), SMALLEST_CHUNK), READ_AT_ONCE, self.reads_left)
            part = ids[start : start + size]
            tasks = await self.view.find(part)
            for task_id in part:
                task = tasks.get(task_id)
                if task is not None and matches(self.query, task):
                    self.found.append(task)
                    if len(self.found) == self.most:
                        self.reads_left -= part.index(task_id) + 1
                        return task_id
            self.reads_left -= len(part)
            if self.reads_left == 0:
                return part[-1]
            start += size
        return None


async def newest_ids(view: View, below: str | None, most: int) -> list[str]:
    (found,) = await view.newest([(None, below)], most, Wanted())
    return found.ids[:most]


async def newest_id(view: View) -> str | None:
    return next(iter(await newest_ids(view, None, 1)), None)


async def read_tasks(view: View, full: bool) -> None:
    """Read the oldest unfinished tasks, or all tasks: those that can't be read are set aside.

    A task that no process can read stays, so it is soon among the oldest.
    """
    last, looked = None, 0
    while full or looked < CHECKED_ROWS:
        if full:
            ids = await newest_ids(view, last, CHECKED_CHUNK)
        else:
            oldest = await view.fetch(OLDEST_TASKS, last, CHECKED_CHUNK)
            ids = oldest.rows
        await view.find(ids)
        looked += CHECKED_CHUNK
        if len(ids) < CHECKED_CHUNK:
            return
        last = ids[-1]
