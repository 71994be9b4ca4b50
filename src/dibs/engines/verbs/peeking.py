"""peek: the tasks that are next in a queue, and the position of one."""

from __future__ import annotations

from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.engines.decisions.choosing import QueueCursor, first_of
from dibs.engines.decisions.transaction import Queue
from dibs.engines.port import View
from dibs.engines.values import COUNT_LIMIT, Peeked, Position
from dibs.engines.verbs.candidates import Candidates
from dibs.engines.verbs.reading import find_readable

__all__ = ["peek"]

TRIES = 10
"""How often the next tasks are read again because some of them can't be read."""

FIRST_PAGE = 100
"""How many tasks are read first to find the position of one."""


async def peek(view: View, queue_name: str, limit: int, until: str | None) -> Peeked:
    queue = view.queues.get(queue_name)
    position = None if until is None else await position_of(view, queue or Queue(queue_name), until)
    return Peeked([] if queue is None or limit == 0 else await next_tasks(view, queue, limit), position)


async def next_tasks(view: View, queue: Queue, limit: int) -> list[TaskRecord]:
    records: list[TaskRecord] = []
    for _ in range(TRIES):
        ids = await next_ids(view, queue, limit)
        found = await view.find(ids)
        records = [record for each in ids if isinstance(record := found[each], TaskRecord)]
        if len(records) == len(ids):
            break  # otherwise some of them were just set aside, and others take their place
    return records


async def position_of(view: View, queue: Queue, task_id: str) -> Position | None:
    record = await find_readable(view, task_id)
    if record is None or record.state is not State.PENDING or record.queue != queue.name:
        return None
    ids = await next_ids(view, queue, COUNT_LIMIT, until=task_id)
    return Position(ids.index(task_id)) if task_id in ids else Position(COUNT_LIMIT, more=True)


async def next_ids(view: View, queue: Queue, most: int, until: str | None = None) -> list[str]:
    """The next tasks of a queue in claim order, including gated ones, at most up to `until`."""
    tracks = view.open_tracks(queue.name)
    candidates = Candidates(view, {queue.name: tracks}, most if until is None else FIRST_PAGE)
    await candidates.open([queue])
    cursor = QueueCursor(candidates.pages, queue, 0, tracks, None)
    found: list[str] = []
    while (need := first_of(cursor, found, view.now, most, until)) is not None:
        await candidates.read_more(need)
    return found
