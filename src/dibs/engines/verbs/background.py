"""Background steps as they are stored: begun, read, and kept for a while after their end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dibs.core.ids import is_id
from dibs.engines.decisions.steps import AnyStep, BackgroundStep, stored_step
from dibs.engines.port import Port, Read, View
from dibs.engines.steps import StepRecord
from dibs.engines.unreadable import UNREADABLE, problem_of

__all__ = ["begin", "load", "open_steps", "readable_steps", "save", "steps", "stored"]

STEP = Read("step", tuple[int, object], "step")
"""Takes an id: that background step, if it exists, as (number, JSON)."""
STEP_TO_CHANGE = Read("step_to_change", tuple[int, object], "step")
"""Takes an id: that background step, if it exists. Others wait for it until this transaction ends."""
OPEN_STEPS = Read("open_steps", tuple[int, object], "step")
"""Takes how many and numbers to pass over: background steps that have not ended, oldest first."""
NEWEST_STEPS = Read("newest_steps", tuple[int, object], "step")
"""Takes the id to begin below or None, and how many: background steps, newest first."""


def readable_steps(view: View, rows: Iterable[tuple[int, object]], kind: type[AnyStep]) -> list[AnyStep]:
    """Those of some (number, JSON) that can be read. The others are left to other processes."""
    found = []
    for n, stored in rows:
        try:
            found.append(stored_step(n, stored, kind))
        except UNREADABLE as error:
            view.aside.log_once("step", n, problem_of(error))
            view.aside.skip_step(n)
    return found


async def read(view: View, steps: Read[tuple[int, object]], *parameters: Any) -> list[BackgroundStep]:
    return readable_steps(view, await view.read(steps, *parameters), BackgroundStep)


async def steps(view: View, ids: Sequence[str] | None, limit: int, before: str | None) -> list[StepRecord]:
    if ids is None:
        found = await read(view, NEWEST_STEPS, before, limit)
    else:
        found = [step for step_id in ids for step in await stored(view, step_id)]
    return [step.record for step in found]


async def stored(view: View, step_id: str) -> list[BackgroundStep]:
    """The step of that id, if it exists."""
    return await read(view, STEP, step_id) if is_id(step_id) else []


async def load(port: Port, step_id: str) -> list[BackgroundStep]:
    """The same, to be changed."""
    return await read(port, STEP_TO_CHANGE, step_id) if is_id(step_id) else []


async def open_steps(view: View, most: int) -> list[BackgroundStep]:
    return await read(view, OPEN_STEPS, most, list(view.aside.steps))


async def begin(port: Port, step: BackgroundStep) -> bool:
    """Store a new step; False if one with its id exists."""
    return await port.write("add_step", step.record.id, step) > 0


async def save(port: Port, step: BackgroundStep) -> None:
    """Save how far it has come."""
    await port.write("save_step", step.n, step.record.ended_at, step)
