"""search: newest first by id over all places, visiting a bounded number of tasks a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from msgspec import Struct

from dibs.core.policy import CHECKED_ROWS
from dibs.core.states import State
from dibs.engines.decisions.records import Place, place_of
from dibs.engines.decisions.searching import is_track_meant, matches
from dibs.engines.port import Found, Read, Stored, View
from dibs.engines.values import VISIT_LIMIT, Page, Query

__all__ = ["Walked", "is_id", "newest_id", "read_tasks", "search", "walk"]

SMALLEST_CHUNK = 20
LARGEST_CHUNK = 500
CHECKED_CHUNK = 1000

STATES = frozenset(State)


class Sketch(Struct, array_like=True, frozen=True):
    """What is known of a task before it is read."""

    id: str
    track: Any
    state: Any
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
    return Page(walked.tasks, walked.cursor, walked.visited)


async def walk(view: View, query: Query, most: int, most_visits: int) -> Walked:
    """Go down from the query's cursor until so many match, or so many were visited."""
    found: list[Stored] = []
    may_match = chooser(view, query)
    before, visited = query.cursor, 0
    chunk = min(max(most, SMALLEST_CHUNK), LARGEST_CHUNK)
    while True:
        chunk = min(chunk, most_visits - visited)
        candidates = await newest(view, query, before, chunk + 1)
        visits = candidates.rows[:chunk]
        ids = [each.id for each in visits if may_match(each)]
        tasks = await view.find(ids) if ids else {}
        for task_id in ids:
            task = tasks.get(task_id)
            if task is not None and matches(query, task):
                found.append(task)
                if len(found) == most:
                    number = 1 + [each.id for each in visits].index(task_id)
                    return Walked(found, task_id if number < candidates.number else None, visited + number)
        visited += len(visits)
        if candidates.number <= chunk or not visits:
            return Walked(found, None, visited)
        before = visits[-1].id
        if visited == most_visits:
            return Walked(found, before, visited)
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


def chooser(view: View, query: Query) -> Callable[[Sketch], bool]:
    """Tells whether a task must be read to know if it matches: most need not, and their payloads may be large.

    What is not known here is left to the task itself.
    """
    states = STATES.difference(query.states) if query.states else frozenset()
    tracks = {number for number, track in view.tracks.items() if not is_track_meant(query, track.queue, track.name)}
    worker = query.worker

    def may_match(each: Sketch) -> bool:
        return each.track not in tracks and each.state not in states and (worker is None or each.worker == worker)

    return may_match


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
