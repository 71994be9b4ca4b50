"""The end of every write: follow-ups are done, heads of partitions are promoted, counts are written.

A follow-up is work that may be too much for one transaction. It is done at once as far as the budget allows; the rest
is stored, and claims continue it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dibs.core.graph import FOLLOW_UP_BUDGET
from dibs.engines.decisions.encoding import encode, to_json
from dibs.engines.decisions.follow_ups import (
    WALKS,
    Done,
    FollowUp,
    FollowUpKind,
    finished,
    stored_follow_up,
    take_alike,
)
from dibs.engines.postgres import dependencies, partitions, workflows
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.unreadable import UNREADABLE, problem_of

__all__ = ["conclude", "defer", "resume"]

STEPS: dict[FollowUpKind, Callable[[Transaction, list[FollowUp], int], Awaitable[Done]]] = {
    FollowUpKind.RELEASE_DEPENDENTS: dependencies.follow_ends,
    FollowUpKind.CLOSE_EDGES: dependencies.close_edges,
    FollowUpKind.INHERIT_URGENCY: dependencies.pass_on_urgency,
    FollowUpKind.CANCEL: workflows.cancel_members,
    FollowUpKind.REPLAY: workflows.replay_members,
    FollowUpKind.DELETE_EDGES: dependencies.forget,
    FollowUpKind.REORDER_QUEUE: partitions.reorder_some,
    FollowUpKind.REORDER_PARTITIONS: partitions.mark_changed_again,
}


async def conclude(transaction: Transaction) -> None:
    """Finish a transaction, up to the commit."""
    if transaction.follow_ups:
        await go_on(transaction)
    if transaction.partitions:
        await partitions.promote_heads(transaction)
    await transaction.flush()


async def defer(transaction: Transaction) -> bool:
    """`conclude` in a transaction of the user's own: it holds no lock on queues, and may last.

    All its follow-ups are left to the next claim after its commit; True if there are any.
    """
    touched = [to_json([each.key for each in partitions]) for partitions in transaction.partitions.values()]
    transaction.partitions.clear()
    follow_ups = [
        *transaction.follow_ups,
        *(FollowUp(FollowUpKind.REORDER_PARTITIONS, partitions) for partitions in touched),
    ]
    transaction.follow_ups.clear()
    if follow_ups:
        await transaction.write("add_follow_ups", [encode(follow_up) for follow_up in follow_ups])
    await transaction.flush()
    return bool(follow_ups)


async def resume(transaction: Transaction) -> bool:
    """Continue the follow-ups of earlier transactions, then run those of this one; True if some are left."""
    await go_on(transaction)
    return bool(await transaction.value("has_follow_ups", list(transaction.aside.follow_ups)))


async def go_on(transaction: Transaction) -> None:
    """Do follow-ups in order, the stored ones first, except those that another transaction has locked."""
    own = list(transaction.follow_ups)
    transaction.follow_ups.clear()
    for n, told in await transaction.rows("follow_ups", FOLLOW_UP_BUDGET, list(transaction.aside.follow_ups)):
        try:
            transaction.follow_ups.append(stored_follow_up(n, told))
        except UNREADABLE as error:
            transaction.aside.log_once("errand", n, problem_of(error))
            transaction.aside.skip_follow_up(n)
    transaction.follow_ups.extend(own)
    await run(transaction)


async def run(transaction: Transaction) -> None:
    """Do follow-ups up to the budget, in order, and store the rest."""
    follow_ups = transaction.follow_ups
    left = FOLLOW_UP_BUDGET
    done: list[int] = []
    while follow_ups and left > 0:
        alike = take_alike(follow_ups, left)
        taken, unfinished = await STEPS[alike[0].what](transaction, alike, left)
        follow_ups.extendleft(reversed(unfinished))
        done += finished(alike, [*unfinished, *transaction.stuck])
        left -= taken
    if done:
        await transaction.write("delete_follow_ups", done)
    leave_stuck(transaction)
    walked = [follow_up for follow_up in follow_ups if follow_up.n is not None and follow_up.what in WALKS]
    if walked:
        await transaction.write(
            "save_follow_ups", [follow_up.n for follow_up in walked], [encode(each) for each in walked]
        )
    new = [encode(follow_up) for follow_up in follow_ups if follow_up.n is None]
    if new:
        await transaction.write("add_follow_ups", new)
    follow_ups.clear()


def leave_stuck(transaction: Transaction) -> None:
    """Follow-ups with an unreadable edge stay stored for a process that can read it."""
    stuck, transaction.stuck = transaction.stuck, []
    for follow_up in stuck:
        if follow_up.n is None:
            transaction.follow_ups.append(follow_up)
        else:
            transaction.aside.skip_follow_up(follow_up.n)
