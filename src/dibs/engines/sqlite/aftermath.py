"""What every write ends with: errands are run, partitions let their next tasks forward, counts are written.

An errand is what one transaction may not be able to finish. It is done at once as far as the budget goes; the rest is
stored, and claims go on with it.
"""

from __future__ import annotations

from collections.abc import Callable

from dibs.core.graph import ERRAND_BUDGET
from dibs.engines.deciding.encoding import to_json
from dibs.engines.deciding.errands import WALKS, Done, Errand, What, finished, stored_errand, take_alike
from dibs.engines.sqlite import gating, waiting, workflows
from dibs.engines.sqlite.statements import row_by_row
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.unreadable import UNREADABLE, problem_of

__all__ = ["conclude", "resume"]

STEPS: dict[What, Callable[[Transaction, list[Errand], int], Done]] = {
    What.ENDED: waiting.follow_ends,
    What.LEFT: waiting.leave,
    What.WEIGHED: waiting.weigh,
    What.CANCEL: workflows.cancel_members,
    What.REPLAY: workflows.replay_members,
    What.FORGET: waiting.forget,
    What.REGATE: gating.regate_some,
}


def conclude(transaction: Transaction) -> None:
    """Bring a transaction to its end, up to the commit."""
    if transaction.errands:
        resume(transaction)
    if transaction.partitions:
        gating.let_forward(transaction)
    transaction.flush()


def resume(transaction: Transaction) -> None:
    """Go on with what earlier transactions have left, and then with what this one has caused."""
    own = list(transaction.errands)
    transaction.errands.clear()
    passed = to_json(list(transaction.aside.errands))
    for n, told in transaction.each(row_by_row("errands"), (ERRAND_BUDGET, passed)):
        try:
            transaction.errands.append(stored_errand(n, told))
        except UNREADABLE as error:
            transaction.aside.log_once("errand", n, problem_of(error))
            transaction.aside.skip_errand(n)
    transaction.errands.extend(own)
    run(transaction)


def run(transaction: Transaction) -> None:
    """Do errands up to the budget, in order, and store what is left of them."""
    errands = transaction.errands
    left = ERRAND_BUDGET
    done: list[int] = []
    while errands and left > 0:
        alike = take_alike(errands, left)
        taken, unfinished = STEPS[alike[0].what](transaction, alike, left)
        errands.extendleft(reversed(unfinished))
        done += finished(alike, [*unfinished, *transaction.stuck])
        left -= taken
    if done:
        transaction.write("delete_errands", to_json(done))
    leave_stuck(transaction)
    changed = [(errand.n, to_json(errand)) for errand in errands if errand.n is None or errand.what in WALKS]
    if changed:
        transaction.write("save_errands", to_json(changed))
    errands.clear()


def leave_stuck(transaction: Transaction) -> None:
    """Errands with an unreadable edge stay stored for a process that can read it."""
    stuck, transaction.stuck = transaction.stuck, []
    for errand in stuck:
        if errand.n is None:
            transaction.errands.append(errand)
        else:
            transaction.aside.skip_errand(errand.n)
