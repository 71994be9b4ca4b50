"""Background steps as they are stored: begun, read, and kept for a while after their end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dibs.engines.decisions.steps import Step, stored_step
from dibs.engines.port import Port, Read, View
from dibs.engines.steps import StepRecord
from dibs.engines.unreadable import UNREADABLE, problem_of
from dibs.engines.verbs.searching import is_id

__all__ = ["begin", "load", "open_steps", "readable_steps", "save", "steps", "stored"]

STEP = Read("step", tuple[int, object], "step")
"""Takes an id: that background step, if it exists, as (number, JSON)."""
STEP_TO_CHANGE = Read("step_to_change", tuple[int, object], "step")
"""Takes an id: that background step, if it exists. Others wait for it until this transaction ends."""
OPEN_STEPS = Read("open_steps", tuple[int, object], "step")
"""Takes how many and numbers to pass over: background steps that have not ended, oldest first."""
NEWEST_STEPS = Read("newest_steps", tuple[int, object], "step")
"""Takes the id to begin below or None, and how many: background steps, newest first."""


def readable_steps(view: View, rows: Iterable[tuple[int, object]]) -> list[Step]:
    """Those of some (number, JSON) that can be read. The others are left to other processes."""
    found = []
    for n, stored in rows:
        try:
            found.append(stored_step(n, stored))
        except UNREADABLE as error:
            view.aside.log_once("step", n, problem_of(error))
            view.aside.skip_step(n)
    return found


async def steps(view: View, ids: Sequence[str] | None, limit: int, before: str | None) -> list[StepRecord]:
    if ids is None:
        found = readable_steps(view, await view.read(NEWEST_STEPS, before, limit))
    else:
        found = [step for step_id in ids for step in await stored(view, step_id)]
    return [step.record for step in found if step.record is not None]


async def stored(view: View, step_id: str) -> list[Step]:
    """The step of that id, if it exists."""
    return readable_steps(view, await view.read(STEP, step_id)) if is_id(step_id) else []


async def load(port: Port, step_id: str) -> list[Step]:
    """The same, to be changed."""
    return readable_steps(port, await port.read(STEP_TO_CHANGE, step_id)) if is_id(step_id) else []


async def open_steps(view: View, most: int) -> list[Step]:
    return readable_steps(view, await view.read(OPEN_STEPS, most, list(view.aside.steps)))


async def begin(port: Port, step: Step) -> None:
    assert step.record is not None
    await port.write("add_step", step.record.id, step.record.ended_at, step)


async def save(port: Port, step: Step) -> None:
    """Save how far it has come."""
    assert step.record is not None
    await port.write("save_step", step.n, step.record.ended_at, step)
