"""What every write ends with: errands are run, partitions let their next tasks forward, counts are written.

An errand is what one transaction may not be able to finish. It is done at once as far as the budget goes; the rest is
stored, and claims go on with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from dibs.core.graph import ERRAND_BUDGET
from dibs.engines.sqlite import gating, waiting, workflows
from dibs.engines.sqlite.rows import to_json
from dibs.engines.sqlite.transaction import Errand, Transaction, What

__all__ = ["conclude", "resume"]

STEPS: dict[What, Callable[[Transaction, list[Errand], int], waiting.Done]] = {
    What.ENDED: waiting.follow_ends,
    What.LEFT: waiting.leave,
    What.WEIGHED: waiting.weigh,
    What.CANCEL: workflows.cancel_members,
    What.REPLAY: workflows.replay_members,
    What.FORGET: waiting.forget,
    What.REGATE: gating.regate_some,
}

WALKS = frozenset({What.CANCEL, What.REPLAY, What.REGATE})
"""Errands that note how far they have come."""

stored_decoder = msgspec.json.Decoder(list[tuple[int, str]])
errand_decoder = msgspec.json.Decoder(Errand)


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
    for n, errand in stored_decoder.decode(transaction.value("errands", ERRAND_BUDGET)):
        stored = errand_decoder.decode(errand)
        stored.n = n
        transaction.errands.append(stored)
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
        kept = {errand.n for errand in unfinished}
        done += [errand.n for errand in alike if errand.n is not None and errand.n not in kept]
        left -= taken
    if done:
        transaction.write("delete_errands", to_json(done))
    changed = [(errand.n, to_json(errand)) for errand in errands if errand.n is None or errand.what in WALKS]
    if changed:
        transaction.write("save_errands", to_json(changed))
    errands.clear()


def take_alike(errands: deque[Errand], most: int) -> list[Errand]:
    """The first errands that are of one kind: they are done together."""
    what = errands[0].what
    alike: list[Errand] = []
    while errands and errands[0].what is what and len(alike) < most:
        alike.append(errands.popleft())
    return alike
