"""Fills in the results of other tasks before a task runs."""

from __future__ import annotations

from collections.abc import Mapping

from dibs.core.results import fill, slots_in, split
from dibs.core.states import State
from dibs.core.task import LeasedTask, TaskRecord
from dibs.engines.values import UnreadableTask
from dibs.errors import InvalidArguments, PayloadTooLarge, ResultGone
from dibs.runtime.hub import Hub

__all__ = ["with_results"]

PAGE = 500
"""Prerequisites read in one call."""

MOST_TAKEN = 64 * 1024 * 1024
"""The most bytes of results that one run may take: they are all in memory at once."""

NOTHING = b"null"


async def with_results(hub: Hub, task: LeasedTask, json: bytes) -> bytes:
    """The arguments of a run as JSON, with the results that it takes filled in."""
    args, takes = split(json)
    slots = slots_in(takes)
    needs = (await hub.engine.edges([task.id]))[0].needs
    if slots and slots[-1] >= len(needs):
        raise InvalidArguments(f"the task takes result {slots[-1] + 1}, but it waits for {len(needs)} task(s) only.")
    results = await read_results(hub, {slot: needs[slot].id for slot in slots})
    return fill(args, takes, results)


async def read_results(hub: Hub, wanted: Mapping[int, str]) -> dict[int, bytes]:
    """The results of these tasks as JSON, by slot."""
    found: dict[int, bytes] = {}
    size = 0
    pairs = list(wanted.items())
    for start in range(0, len(pairs), PAGE):
        chunk = pairs[start : start + PAGE]
        records = await hub.engine.get([task_id for _, task_id in chunk])
        for (slot, task_id), record in zip(chunk, records, strict=True):
            found[slot] = await result_of(hub, task_id, record)
            size += len(found[slot])
            if size > MOST_TAKEN:
                raise PayloadTooLarge(
                    f"the results that the task takes have more than {MOST_TAKEN:,} bytes together. "
                    "Let the tasks before it store their data elsewhere and return references."
                )
    return found


async def result_of(hub: Hub, task_id: str, record: TaskRecord | UnreadableTask | None) -> bytes:
    """The result of one task; null if it did not complete or returned none."""
    if isinstance(record, UnreadableTask):
        problem = f"the result of task {task_id} was to be taken, but that task can't be read: {record.problem}."
        raise ResultGone(problem, task_id=task_id)
    if record is None:
        raise ResultGone(
            f"the result of task {task_id} was to be taken, but its record has been pruned or purged.", task_id=task_id
        )
    if record.state is not State.COMPLETED or record.result is None:
        return NOTHING
    return hub.codec.unwrap(await hub.payloads.afetched(record.result))
