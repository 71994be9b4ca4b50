"""What every write ends with: errands are run, partitions let their next tasks forward, counts are written.

An errand is what one transaction may not be able to finish. It is done at once as far as the budget goes; the rest is
stored, and claims go on with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dibs.core.graph import ERRAND_BUDGET
from dibs.engines.deciding.encoding import encode, to_json
from dibs.engines.deciding.errands import WALKS, Done, Errand, What, finished, stored_errand, take_alike
from dibs.engines.postgres import gating, waiting, workflows
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.unreadable import UNREADABLE, problem_of

__all__ = ["conclude", "defer", "resume"]

STEPS: dict[What, Callable[[Transaction, list[Errand], int], Awaitable[Done]]] = {
    What.ENDED: waiting.follow_ends,
    What.LEFT: waiting.leave,
    What.WEIGHED: waiting.weigh,
    What.CANCEL: workflows.cancel_members,
    What.REPLAY: workflows.replay_members,
    What.FORGET: waiting.forget,
    What.REGATE: gating.regate_some,
    What.TOUCHED: gating.touch_again,
}


async def conclude(transaction: Transaction) -> None:
    """Bring a transaction to its end, up to the commit."""
    if transaction.errands:
        await go_on(transaction)
    if transaction.partitions:
        await gating.let_forward(transaction)
    await transaction.flush()


async def defer(transaction: Transaction) -> bool:
    """`conclude` in a transaction of somebody else's: it holds no lock on queues, and may last.

    All that it has caused is left to the next claim after its commit; True if there is something.
    """
    touched = [to_json(list(partitions)) for partitions in transaction.partitions.values()]
    transaction.partitions.clear()
    errands = [*transaction.errands, *(Errand(What.TOUCHED, partitions) for partitions in touched)]
    transaction.errands.clear()
    if errands:
        await transaction.write("add_errands", [encode(errand) for errand in errands])
    await transaction.flush()
    return bool(errands)


async def resume(transaction: Transaction) -> bool:
    """Go on with what earlier transactions have left, and then with what this one has caused; True if some is left."""
    await go_on(transaction)
    return bool(await transaction.value("has_errands", list(transaction.aside.errands)))


async def go_on(transaction: Transaction) -> None:
    """Errands are done in order, the stored ones first. Those that another process is at are its own for now."""
    own = list(transaction.errands)
    transaction.errands.clear()
    for n, told in await transaction.rows("errands", ERRAND_BUDGET, list(transaction.aside.errands)):
        try:
            transaction.errands.append(stored_errand(n, told))
        except UNREADABLE as error:
            transaction.aside.log_once("errand", n, problem_of(error))
            transaction.aside.skip_errand(n)
    transaction.errands.extend(own)
    await run(transaction)


async def run(transaction: Transaction) -> None:
    """Do errands up to the budget, in order, and store what is left of them."""
    errands = transaction.errands
    left = ERRAND_BUDGET
    done: list[int] = []
    while errands and left > 0:
        alike = take_alike(errands, left)
        taken, unfinished = await STEPS[alike[0].what](transaction, alike, left)
        errands.extendleft(reversed(unfinished))
        done += finished(alike, [*unfinished, *transaction.stuck])
        left -= taken
    if done:
        await transaction.write("delete_errands", done)
    leave_stuck(transaction)
    walked = [errand for errand in errands if errand.n is not None and errand.what in WALKS]
    if walked:
        await transaction.write("save_errands", [errand.n for errand in walked], [encode(each) for each in walked])
    new = [encode(errand) for errand in errands if errand.n is None]
    if new:
        await transaction.write("add_errands", new)
    errands.clear()


def leave_stuck(transaction: Transaction) -> None:
    """Errands with an unreadable edge stay stored for a process that can read it."""
    stuck, transaction.stuck = transaction.stuck, []
    for errand in stuck:
        if errand.n is None:
            transaction.errands.append(errand)
        else:
            transaction.aside.skip_errand(errand.n)
