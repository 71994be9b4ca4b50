"""Errands: what a transaction may not be able to finish. Claims go on with what is left."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec import Struct

from dibs.core.states import State

__all__ = ["WALKS", "Done", "Errand", "What", "finished", "gone_on", "stored_errand", "take_alike"]


class What(StrEnum):
    """What is left to be followed up."""

    ENDED = "ended"  # the open edges that lead to a task that has ended
    LEFT = "left"  # the open edges of a task that has ended while it waited
    WEIGHED = "weighed"  # the open edges of a task whose urgency has changed
    CANCEL = "cancel"  # the members of a workflow
    REPLAY = "replay"
    FORGET = "forget"  # the edges of tasks that are gone
    REGATE = "regate"  # the partitions of a queue whose limit has changed
    TOUCHED = "touched"  # partitions in which something has moved, without their queue's lock


WALKS = frozenset({What.CANCEL, What.REPLAY, What.REGATE})
"""Errands that note how far they have come."""


class Errand(Struct, omit_defaults=True):
    """Something to go on with, about a task, a workflow or a queue. `n` is its number if it is stored already.

    `after` is how far it has come.
    """

    what: What
    about: str
    state: State = State.COMPLETED
    note: str = ""
    actor: str = ""
    after: str = ""
    n: int | None = None


Done = tuple[int, list[Errand]]
"""How much of the budget a step has taken, and the errands that it has not finished."""

decode_errand = msgspec.json.Decoder(Errand).decode


def stored_errand(n: int, told: str | bytes) -> Errand:
    errand = decode_errand(told)
    errand.n = n
    return errand


def take_alike(errands: deque[Errand], most: int) -> list[Errand]:
    """The first errands that are of one kind: they are done together."""
    what = errands[0].what
    alike: list[Errand] = []
    while errands and errands[0].what is what and len(alike) < most:
        alike.append(errands.popleft())
    return alike


def finished(alike: Iterable[Errand], unfinished: Iterable[Errand]) -> list[int]:
    """The numbers of those errands that need not be stored any longer."""
    kept = {errand.n for errand in unfinished}
    return [errand.n for errand in alike if errand.n is not None and errand.n not in kept]


def gone_on(errands: list[Errand], found: list[str], most: int) -> Done:
    """How far the first errand, a walk, has come with what it has `found`."""
    if len(found) < most:
        return max(1, len(found)), errands[1:]
    errands[0].after = found[-1]
    return len(found), errands
