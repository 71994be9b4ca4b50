"""search: newest first by id over all places, visiting a bounded number of tasks a page."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec import Struct

from dibs.core.policy import CHECKED_ROWS
from dibs.core.states import State
from dibs.engines.decisions.records import Place, place_of
from dibs.engines.decisions.searching import matches, may_match
from dibs.engines.port import Found, Read, Stored, View
from dibs.engines.values import VISIT_LIMIT, Page, Query

__all__ = ["Walked", "is_id", "newest_id", "read_tasks", "search", "walk"]

SMALLEST_CHUNK = 20
LARGEST_CHUNK = 500
CHECKED_CHUNK = 1000

STATES = frozenset(State)


class Sketch(Struct, array_like=True, frozen=True):
    """What is known of a task before it is read. `queue` and `name` are None if its track does not exist."""

    id: str
    state: Any
    queue: str | None
    name: str | None
    worker: Any


NEWEST = Read("newest", Sketch, "task")
"""Takes the id to begin below or None, how many, and whether unfinished, dead and finished ones are wanted: tasks,
newest first."""
NEWEST_MEMBERS = Read("newest_members", Sketch, "task")
"""Takes the same, and a workflow: its members, newest first."""
OLDEST_TASKS = Read("oldest_tasks", str, "task")
"""Takes the id to begin after or None, and how many: unfinished tasks, oldest first."""


class Walked(Struct, frozen=True):
    """Tasks that match, where to go on (None at the end), and how many tasks were visited."""

    tasks: list[Stored]
    cursor: str | None
    visited: int


async def search(view: View, query: Query) -> Page:
    walked = await walk(view, query, query.limit, VISIT_LIMIT)
    return Page(walked.tasks, walked.cursor)


async def walk(view: View, query: Query, most: int, most_visits: int) -> Walked:
    """Go down from the query's cursor until so many match, or so many were visited."""
    found: list[Stored] = []
    before, visited = query.cursor, 0
    chunk = min(max(most, SMALLEST_CHUNK), LARGEST_CHUNK)
    while True:
        candidates = await newest(view, query, before, chunk + 1)
        visits = candidates.rows[:chunk]
        tasks = await view.find([each.id for each in visits if is_candidate(query, each)])
        for position, each in enumerate(visits, 1):
            visited += 1
            task = tasks.get(each.id)
            if task is not None and matches(query, task):
                found.append(task)
            if len(found) == most or visited == most_visits:
                return Walked(found, each.id if position < candidates.number else None, visited)
        if candidates.number <= chunk or not visits:
            return Walked(found, None, visited)
        before = visits[-1].id
        chunk = min(5 * chunk, LARGEST_CHUNK)


async def newest_id(view: View) -> str | None:
    return next((each.id for each in await view.read(NEWEST, None, 1, True, True, True)), None)


async def newest(view: View, query: Query, before: str | None, most: int) -> Found[Sketch]:
    """Tasks in the places that the query's states can be in."""
    places = {place_of(state) for state in query.states or State}
    asked = (before, most, *(place in places for place in Place))
    if query.workflow is None:
        return await view.fetch(NEWEST, *asked)
    return await view.fetch(NEWEST_MEMBERS, *asked, query.workflow) if is_id(query.workflow) else Found([], 0, None)


def is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def is_candidate(query: Query, sketch: Sketch) -> bool:
    """Whether a task must be read to tell if it matches: most need not, and their payloads may be large."""
    if sketch.queue is None or sketch.name is None or sketch.state not in STATES:
        return True
    worker = sketch.worker if isinstance(sketch.worker, str) else None
    return may_match(query, State(sketch.state), sketch.queue, sketch.name, worker)


async def read_tasks(view: View, full: bool) -> None:
    """Read the oldest unfinished tasks, or all tasks: those that can't be read are set aside.

    A task that no process can read stays, so it is soon among the oldest.
    """
    last, looked = None, 0
    while full or looked < CHECKED_ROWS:
        if full:
            found = await view.fetch(NEWEST, last, CHECKED_CHUNK, True, True, True)
            ids = [each.id for each in found.rows]
        else:
            oldest = await view.fetch(OLDEST_TASKS, last, CHECKED_CHUNK)
            ids = oldest.rows
        await view.find(ids)
        looked += CHECKED_CHUNK
        if len(ids) < CHECKED_CHUNK:
            return
        last = ids[-1]
