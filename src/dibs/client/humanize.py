"""Counts, tasks and limits in words."""

from __future__ import annotations

from dibs.core.limits import LimitState, Scope
from dibs.core.task import TaskRecord


def number(count: int, thing: str) -> str:
    """How many of something."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def label(record: TaskRecord) -> str:
    """A task by name and id."""
    return f"{record.name} {record.id}"


def subject(state: LimitState, queue: str) -> str:
    """What a limit counts together."""
    if state.scope is Scope.TASK:
        return f"task {state.whose!r} in queue {queue!r}"
    return f"partition {state.whose!r} of queue {queue!r}" if state.scope is Scope.PARTITION else f"queue {queue!r}"


def figures(state: LimitState) -> str:
    """How far a limit is used: "1 of 1 running", "0 start tokens at 5 per second"."""
    parts = [] if state.max_concurrent is None else [f"{state.running:,} of {state.max_concurrent:,} running"]
    if state.rate is not None:
        parts.append(f"{number(state.tokens or 0, 'start token')} at {state.rate:g} per second")
    return ", ".join(parts)
