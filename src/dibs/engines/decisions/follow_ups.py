"""Follow-ups: work that a transaction may not be able to finish. Claims continue what is left."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import StrEnum

import msgspec
from msgspec import Struct

from dibs.core.states import State

__all__ = [
    "WALKS",
    "Done",
    "FollowUp",
    "FollowUpKind",
    "decode_follow_up",
    "finished",
    "gone_on",
    "stored_follow_up",
    "take_alike",
]


class FollowUpKind(StrEnum):
    """What there is to do."""

    RELEASE_DEPENDENTS = "release dependents"  # the open edges that lead to a task that has ended
    CLOSE_EDGES = "close edges"  # the open edges of a task that has ended while it waited
    INHERIT_URGENCY = "inherit urgency"  # the open edges of a task whose urgency has changed
    CANCEL = "cancel"  # the members of a workflow
    REPLAY = "replay"
    DELETE_EDGES = "delete edges"  # the edges of tasks that are gone
    REORDER_QUEUE = "reorder queue"  # the partitions of a queue whose limit has changed
    REORDER_PARTITIONS = "reorder partitions"  # partitions that changed without their queue's lock


WALKS = frozenset({FollowUpKind.CANCEL, FollowUpKind.REPLAY, FollowUpKind.REORDER_QUEUE})
"""Follow-ups that store how far they have come."""


class FollowUp(Struct, omit_defaults=True):
    """A step about a task, a workflow or a queue. `n` is its number if it is stored already.

    `after` is how far it has come.
    """

    what: FollowUpKind
    about: str
    state: State = State.COMPLETED
    note: str = ""
    actor: str = ""
    after: str = ""
    n: int | None = None


Done = tuple[int, list[FollowUp]]
"""How much of the budget a step used, and the follow-ups that it did not finish."""

decode_follow_up = msgspec.json.Decoder(FollowUp).decode


def stored_follow_up(n: int, stored: object) -> FollowUp:
    if not isinstance(stored, str | bytes):
        raise TypeError("it is no JSON")
    follow_up = decode_follow_up(stored)
    follow_up.n = n
    return follow_up


def take_alike(follow_ups: deque[FollowUp], most: int) -> list[FollowUp]:
    """The first follow-ups that are of one kind: they are done together."""
    what = follow_ups[0].what
    alike: list[FollowUp] = []
    while follow_ups and follow_ups[0].what is what and len(alike) < most:
        alike.append(follow_ups.popleft())
    return alike


def finished(alike: Iterable[FollowUp], unfinished: Iterable[FollowUp]) -> list[int]:
    """The numbers of the follow-ups that need not stay stored."""
    kept = {follow_up.n for follow_up in unfinished}
    return [follow_up.n for follow_up in alike if follow_up.n is not None and follow_up.n not in kept]


def gone_on(follow_ups: list[FollowUp], found: list[str], most: int) -> Done:
    """How far the first follow-up, a walk, has come with what it has `found`."""
    if len(found) < most:
        return max(1, len(found)), follow_ups[1:]
    follow_ups[0].after = found[-1]
    return len(found), follow_ups
