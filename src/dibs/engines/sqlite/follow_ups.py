"""The end of every write: follow-ups are run, heads of partitions are promoted, counts are written.

A follow-up is work that one transaction may not be able to finish. It is done at once as far as the budget allows; the
rest is stored, and claims continue it.
"""

from __future__ import annotations

from collections.abc import Callable

from dibs.core.graph import FOLLOW_UP_BUDGET
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.follow_ups import (
    WALKS,
    Done,
    FollowUp,
    FollowUpKind,
    finished,
    stored_follow_up,
    take_alike,
)
from dibs.engines.sqlite import dependencies, partitions, workflows
from dibs.engines.sqlite.statements import row_by_row
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.unreadable import UNREADABLE, problem_of

__all__ = ["conclude", "resume"]

STEPS: dict[FollowUpKind, Callable[[Transaction, list[FollowUp], int], Done]] = {
    FollowUpKind.RELEASE_DEPENDENTS: dependencies.follow_ends,
    FollowUpKind.CLOSE_EDGES: dependencies.close_edges,
    FollowUpKind.INHERIT_URGENCY: dependencies.pass_on_urgency,
    FollowUpKind.CANCEL: workflows.cancel_members,
    FollowUpKind.REPLAY: workflows.replay_members,
    FollowUpKind.DELETE_EDGES: dependencies.forget,
    FollowUpKind.REORDER_QUEUE: partitions.reorder_some,
}


def conclude(transaction: Transaction) -> None:
    """Finish a transaction, up to the commit."""
    if transaction.follow_ups:
        resume(transaction)
    if transaction.partitions:
        partitions.promote_heads(transaction)
    transaction.flush()


def resume(transaction: Transaction) -> None:
    """Continue the follow-ups of earlier transactions, then run those of this one."""
    own = list(transaction.follow_ups)
    transaction.follow_ups.clear()
    passed = to_json(list(transaction.aside.follow_ups))
    for n, told in transaction.each(row_by_row("follow_ups"), (FOLLOW_UP_BUDGET, passed)):
        try:
            transaction.follow_ups.append(stored_follow_up(n, told))
        except UNREADABLE as error:
            transaction.aside.log_once("errand", n, problem_of(error))
            transaction.aside.skip_follow_up(n)
    transaction.follow_ups.extend(own)
    run(transaction)


def run(transaction: Transaction) -> None:
    """Do follow-ups up to the budget, in order, and store the rest."""
    follow_ups = transaction.follow_ups
    left = FOLLOW_UP_BUDGET
    done: list[int] = []
    while follow_ups and left > 0:
        alike = take_alike(follow_ups, left)
        taken, unfinished = STEPS[alike[0].what](transaction, alike, left)
        follow_ups.extendleft(reversed(unfinished))
        done += finished(alike, [*unfinished, *transaction.stuck])
        left -= taken
    if done:
        transaction.write("delete_follow_ups", to_json(done))
    leave_stuck(transaction)
    changed = [
        (follow_up.n, to_json(follow_up)) for follow_up in follow_ups if follow_up.n is None or follow_up.what in WALKS
    ]
    if changed:
        transaction.write("save_follow_ups", to_json(changed))
    follow_ups.clear()


def leave_stuck(transaction: Transaction) -> None:
    """Follow-ups with an unreadable edge stay stored for a process that can read it."""
    stuck, transaction.stuck = transaction.stuck, []
    for follow_up in stuck:
        if follow_up.n is None:
            transaction.follow_ups.append(follow_up)
        else:
            transaction.aside.skip_follow_up(follow_up.n)
