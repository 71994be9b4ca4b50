"""How steps are done: prompt ones as every write ends, those of the background a part at a time.

A prompt step is work that may be too much for one transaction. It is done at once as far as the budget goes; the rest
is stored, and claims go on with it. A caller that waits for a background step does one part after another; the leader
does too. A part is found without a lock. It is saved together with how far the step has come, and only if the step has
come no further since: so nothing is done twice, however many callers there are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from dibs.core.graph import FOLLOW_UP_BUDGET
from dibs.engines.decisions.steps import WALKS, Done, Step, StepKind, finished, take_alike
from dibs.engines.port import Port, Read, View
from dibs.engines.steps import StepRecord
from dibs.engines.unreadable import problem_of
from dibs.engines.verbs import dependencies, partitions, queues, shares, workflows
from dibs.engines.verbs.act_on import act_on_some, next_tasks
from dibs.engines.verbs.background import load, open_steps, readable_steps, save, stored
from dibs.errors import Unreadable

__all__ = ["Part", "advance", "conclude", "go_on", "next_part", "read_steps", "resume"]

StepFunction = Callable[[Port, list[Step], int], Awaitable[Done]]
"""Takes steps of one kind and a budget. It does as much as the budget allows."""

STEPS: dict[StepKind, StepFunction] = {
    StepKind.RELEASE_DEPENDENTS: dependencies.release_dependents,
    StepKind.CLOSE_EDGES: dependencies.close_edges,
    StepKind.INHERIT_URGENCY: dependencies.pass_on_urgency,
    StepKind.CANCEL: workflows.cancel_members,
    StepKind.REPLAY: workflows.replay_members,
    StepKind.DELETE_EDGES: dependencies.forget,
    StepKind.REORDER_QUEUE: partitions.reorder_some,
    StepKind.REORDER_PARTITIONS: partitions.mark_changed_again,
    StepKind.COUNT_SHARES: shares.count_shares,
}
"""What prompt steps do."""

OPEN_READ = 10
"""Open steps that are read to find the oldest: some may be unreadable."""
PROMPT_STEPS = Read("prompt_steps", tuple[int, object], "step")
"""Takes how many and numbers to pass over: stored prompt steps, oldest first, but for those that others are at."""
FIRST_STEPS = Read("first_steps", tuple[int, object], "step")
"""Takes how many: steps of any kind, oldest first."""


async def conclude(port: Port) -> None:
    """Finish a transaction, up to the commit."""
    if port.steps:
        await resume(port)
    if port.partitions:
        await partitions.promote_heads(port)
    await port.flush()


async def resume(port: Port) -> None:
    """Go on with what earlier transactions have left, and then with what this one has caused."""
    own = list(port.steps)
    port.steps.clear()
    left = await port.read(PROMPT_STEPS, FOLLOW_UP_BUDGET, list(port.aside.steps))
    port.steps.extend(readable_steps(port, left, Step))
    port.steps.extend(own)
    await run(port)


async def run(port: Port) -> None:
    """Do prompt steps up to the budget, in order, and store what is left of them."""
    steps = port.steps
    left = FOLLOW_UP_BUDGET
    done: list[int] = []
    while steps and left > 0:
        alike = take_alike(steps, left)
        taken, unfinished = await STEPS[alike[0].what](port, alike, left)
        steps.extendleft(reversed(unfinished))
        done += finished(alike, [*unfinished, *port.stuck])
        left -= taken
    if done:
        await port.write("delete_steps", done)
    leave_stuck(port)
    if walked := [(each.n, each) for each in steps if each.n is not None and each.what in WALKS]:
        await port.write("save_steps", walked)
    if new := [each for each in steps if each.n is None]:
        await port.write("add_steps", new)
    steps.clear()


def leave_stuck(port: Port) -> None:
    """Steps with an unreadable edge stay stored for a process that can read it."""
    stuck, port.stuck = port.stuck, []
    for step in stuck:
        if step.n is None:
            port.steps.append(step)
        else:
            port.aside.skip_step(step.n)


class Part(Struct, frozen=True):
    """What a background step does next, as it was before the transaction that does it.

    `after` is how far the step had come, and how many tasks had `changed`. `cursor` is how far it comes with these ids.
    `exclusive`: no other transaction may write about the queue.
    """

    step: str
    after: str
    changed: int
    ids: list[str] = []
    cursor: str | None = None
    exclusive: bool = False


async def next_part(view: View, step_id: str | None) -> Part | None:
    """The next part of a background step, or of the oldest one. It is found without a lock."""
    for step in await (open_steps(view, OPEN_READ) if step_id is None else stored(view, step_id)):
        record = step.record
        if step.what is StepKind.DELETE_QUEUE or record.ended_at is not None:
            return Part(record.id, step.after, record.changed, exclusive=step.after == queues.EMPTY)
        return Part(record.id, step.after, record.changed, *await next_tasks(view, record, step.after))
    return None


async def advance(port: Port, part: Part | None) -> StepRecord | None:
    """Do a part, unless another caller has been faster."""
    if part is None:
        return None
    for step in await load(port, part.step):
        if step.record.ended_at is None and step.after == part.after:
            if step.what is StepKind.DELETE_QUEUE:
                await queues.delete_some(port, step, part.exclusive)
            else:
                await act_on_some(port, step, part.ids, part.cursor)
            await save(port, step)
        return step.record
    return None


async def go_on(part: Part | None, port: Port, steps: list[Step], most: int) -> Done:
    """The leader's chore: do the next part of the oldest background step."""
    if part is None:
        return 0, []
    try:
        record = await advance(port, part)
    except Unreadable as error:  # such as the settings of a queue: left to a process that can read them
        for step in await stored(port, part.step):
            port.aside.log_once("step", part.step, problem_of(error))
            port.aside.skip_step(step.n or 0)
        return 0, steps
    return 0 if record is None else record.changed - part.changed, steps


async def read_steps(view: View, most: int) -> None:
    """Read the oldest steps: those that can't be read are noted."""
    readable_steps(view, await view.read(FIRST_STEPS, most), Step)
