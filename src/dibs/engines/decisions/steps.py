"""Steps: work that goes on later, with how far it has come.

Prompt steps are follow-ups of what a transaction did. It does them up to a budget; other writes and claims go on with
the rest. Background steps are for one who waits, or for the leader. Chores are steps that come back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TypeVar

import msgspec
from msgspec import Struct

from dibs.core.states import WAITING, State
from dibs.core.task import TaskRecord
from dibs.core.times import Instant
from dibs.engines.steps import StepRecord
from dibs.engines.values import Query, UnreadableTask

__all__ = [
    "WALKS",
    "AnyStep",
    "BackgroundStep",
    "Done",
    "Step",
    "StepKind",
    "finished",
    "gone_on",
    "stored_step",
    "take_alike",
    "was_so",
]


class StepKind(StrEnum):
    """What there is to do."""

    RELEASE_DEPENDENTS = "release dependents"  # the open edges that lead to a task that has ended
    CLOSE_EDGES = "close edges"  # the open edges of a task that has ended while it waited
    INHERIT_URGENCY = "inherit urgency"  # the open edges of a task whose urgency has changed
    CANCEL = "cancel"  # the members of a workflow
    REPLAY = "replay"
    DELETE_EDGES = "delete edges"  # the edges of tasks that are gone
    REORDER_QUEUE = "reorder queue"  # the partitions of a queue whose limit has changed
    REORDER_PARTITIONS = "reorder partitions"  # partitions that changed without their queue's lock
    COUNT_SHARES = "count shares"  # shares whose tasks were moved without their queue's lock
    ACT_ON_ALL = "act on all"  # tasks that match
    DELETE_QUEUE = "delete queue"
    CHORE = "chore"


WALKS = frozenset({StepKind.CANCEL, StepKind.REPLAY, StepKind.REORDER_QUEUE})
"""Prompt steps that store how far they have come."""


class Step(Struct, omit_defaults=True):
    """A step about a task, a workflow, a queue or a chore. `n` is its number if it is stored already.

    `after` is how far it has come.
    """

    what: StepKind
    about: str
    state: State = State.COMPLETED
    note: str = ""
    actor: str = ""
    after: str = ""
    n: int | None = None


class BackgroundStep(Step, kw_only=True):
    """A step for which somebody may wait, with its record."""

    record: StepRecord


Done = tuple[int, Sequence[Step]]
"""How much of the budget was used, and the steps that are not finished."""

AnyStep = TypeVar("AnyStep", bound=Step)


def stored_step(n: int, stored: object, kind: type[AnyStep]) -> AnyStep:
    if not isinstance(stored, str | bytes):
        raise TypeError("it is no JSON")
    step = msgspec.json.decode(stored, type=kind)
    step.n = n
    return step


def take_alike(steps: deque[Step], most: int) -> list[Step]:
    """The first steps that are of one kind: they are done together."""
    what = steps[0].what
    alike: list[Step] = []
    while steps and steps[0].what is what and len(alike) < most:
        alike.append(steps.popleft())
    return alike


def finished(alike: Iterable[Step], unfinished: Iterable[Step]) -> list[int]:
    """The numbers of the steps that need not stay stored."""
    kept = {step.n for step in unfinished}
    return [step.n for step in alike if step.n is not None and step.n not in kept]


def gone_on(steps: list[Step], found: list[str], most: int) -> Done:
    """How far the first step, a walk, has come with what it has `found`."""
    if len(found) < most:
        return max(1, len(found)), steps[1:]
    steps[0].after = found[-1]
    return len(found), steps


def was_so(query: Query, task: TaskRecord | UnreadableTask, asked_at: Instant) -> bool:
    """Whether a task that matches may have been in a matching state then, as far as its record shows."""
    if isinstance(task, UnreadableTask):
        return True
    if task.state is State.RUNNING and WAITING.isdisjoint(query.states):
        return (task.started_at or 0) <= asked_at
    return (task.finished_at or 0) <= asked_at
