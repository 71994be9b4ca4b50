"""What every write ends with: errands are run, partitions let their next tasks forward, counts are written.

An errand is what one transaction may not be able to finish. It is done at once as far as the budget goes; the rest is
stored, and claims go on with it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dibs.core.graph import ERRAND_BUDGET
from dibs.engines.deciding.encoding import to_json
from dibs.engines.deciding.errands import WALKS, Done, Errand, What, finished, stored_errand, take_alike
from dibs.engines.sqlite import gating, waiting, workflows
from dibs.engines.sqlite.transaction import Transaction

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

stored_decoder = msgspec.json.Decoder(list[tuple[int, str]])


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
    stored = stored_decoder.decode(transaction.value("errands", ERRAND_BUDGET))
    transaction.errands.extend(stored_errand(n, told) for n, told in stored)
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
        done += finished(alike, unfinished)
        left -= taken
    if done:
        transaction.write("delete_errands", to_json(done))
    changed = [(errand.n, to_json(errand)) for errand in errands if errand.n is None or errand.what in WALKS]
    if changed:
        transaction.write("save_errands", to_json(changed))
    errands.clear()
