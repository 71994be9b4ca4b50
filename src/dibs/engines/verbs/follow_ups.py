"""How every write ends: follow-ups are done, partitions promote their next tasks.

A follow-up is work that may be too much for one transaction. It is done at once as far as the budget goes; the rest is
stored, and claims go on with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dibs.core.graph import FOLLOW_UP_BUDGET
from dibs.engines.decisions.follow_ups import (
    WALKS,
    Done,
    FollowUp,
    FollowUpKind,
    finished,
    stored_follow_up,
    take_alike,
)
from dibs.engines.port import Port, Read
from dibs.engines.unreadable import UNREADABLE, problem_of
from dibs.engines.verbs import dependencies, partitions, workflows

__all__ = ["conclude", "resume"]

Step = Callable[[Port, list[FollowUp], int], Awaitable[Done]]

STEPS: dict[FollowUpKind, Step] = {
    FollowUpKind.RELEASE_DEPENDENTS: dependencies.release_dependents,
    FollowUpKind.CLOSE_EDGES: dependencies.close_edges,
    FollowUpKind.INHERIT_URGENCY: dependencies.pass_on_urgency,
    FollowUpKind.CANCEL: workflows.cancel_members,
    FollowUpKind.REPLAY: workflows.replay_members,
    FollowUpKind.DELETE_EDGES: dependencies.forget,
    FollowUpKind.REORDER_QUEUE: partitions.reorder_some,
    FollowUpKind.REORDER_PARTITIONS: partitions.mark_changed_again,
}

FOLLOW_UPS = Read("follow_ups", tuple[int, object], "follow-up")
"""Takes how many and numbers to pass over: stored follow-ups, oldest first, but for those that others are at."""


async def conclude(port: Port) -> None:
    """Finish a transaction, up to the commit."""
    if port.follow_ups:
        await resume(port)
    if port.partitions:
        await partitions.promote_heads(port)
    await port.flush()


async def resume(port: Port) -> None:
    """Go on with what earlier transactions have left, and then with what this one has caused."""
    own = list(port.follow_ups)
    port.follow_ups.clear()
    for n, stored in await port.read(FOLLOW_UPS, FOLLOW_UP_BUDGET, list(port.aside.follow_ups)):
        try:
            port.follow_ups.append(stored_follow_up(n, stored))
        except UNREADABLE as error:
            port.aside.log_once("follow-up", n, problem_of(error))
            port.aside.skip_follow_up(n)
    port.follow_ups.extend(own)
    await run(port)


async def run(port: Port) -> None:
    """Do follow-ups up to the budget, in order, and store what is left of them."""
    follow_ups = port.follow_ups
    left = FOLLOW_UP_BUDGET
    done: list[int] = []
    while follow_ups and left > 0:
        alike = take_alike(follow_ups, left)
        taken, unfinished = await STEPS[alike[0].what](port, alike, left)
        follow_ups.extendleft(reversed(unfinished))
        done += finished(alike, [*unfinished, *port.stuck])
        left -= taken
    if done:
        await port.write("delete_follow_ups", done)
    leave_stuck(port)
    if walked := [(each.n, each) for each in follow_ups if each.n is not None and each.what in WALKS]:
        await port.write("save_follow_ups", walked)
    if new := [each for each in follow_ups if each.n is None]:
        await port.write("add_follow_ups", new)
    follow_ups.clear()


def leave_stuck(port: Port) -> None:
    """Follow-ups with an unreadable edge stay stored for a process that can read it."""
    stuck, port.stuck = port.stuck, []
    for follow_up in stuck:
        if follow_up.n is None:
            port.follow_ups.append(follow_up)
        else:
            port.aside.skip_follow_up(follow_up.n)
