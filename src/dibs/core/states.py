"""The whole life of a task, as one table.

A move that is not in `TRANSITIONS` can't happen. The diagram in the docs is drawn from it.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of a task. No other string names a state anywhere."""

    BLOCKED = "blocked"
    """Waits for other tasks."""
    SCHEDULED = "scheduled"
    """Waits for its time."""
    PENDING = "pending"
    """Can be claimed."""
    RUNNING = "running"
    """Leased to a worker, which may still hold it in its buffer."""
    RETRYING = "retrying"
    """Waits for its next attempt."""
    COMPLETED = "completed"
    """Ended well."""
    CANCELLED = "cancelled"
    """Ended without being done: by a person, expired, or because of a task that it waited for."""
    DEAD = "dead"
    """Ended by failing; it can be replayed."""


class Move(StrEnum):
    """What can happen to a task."""

    ENQUEUE = "enqueue"
    ENQUEUE_LATER = "enqueue later"
    ENQUEUE_AFTER = "enqueue after"
    UNBLOCK = "unblock"
    UNBLOCK_LATER = "unblock later"
    PROMOTE = "promote"
    POSTPONE = "postpone"
    CLAIM = "claim"
    COMPLETE = "complete"
    RETRY = "retry"
    LOSE = "lose"
    LOSE_AGAIN = "lose again"
    RELEASE = "release"
    SNOOZE = "snooze"
    CANCEL = "cancel"
    BURY = "bury"
    REPLAY = "replay"
    REBLOCK = "replay workflow"


class Reason(StrEnum):
    """Why a task ended as `cancelled` or `dead`."""

    USER = "user"
    """Cancelled by someone."""
    EXPIRED = "expired"
    """It had not started by its `expires`."""
    DEPENDENCY = "dependency"
    """A task that it waited for did not complete."""
    QUEUE = "queue"
    """Its queue was deleted."""
    EXHAUSTED = "exhausted"
    """No attempt was left."""
    PERMANENT = "permanent"
    """Its error was not to be retried."""
    LOST = "lost"
    """Several workers died while they ran it."""


WAITING = frozenset({State.BLOCKED, State.SCHEDULED, State.PENDING, State.RETRYING})
UNFINISHED = WAITING | {State.RUNNING}
ENDED = frozenset({State.COMPLETED, State.CANCELLED, State.DEAD})

TRANSITIONS: dict[tuple[State | None, Move], State] = {
    (None, Move.ENQUEUE): State.PENDING,
    (None, Move.ENQUEUE_LATER): State.SCHEDULED,
    (None, Move.ENQUEUE_AFTER): State.BLOCKED,
    (State.BLOCKED, Move.UNBLOCK): State.PENDING,
    (State.BLOCKED, Move.UNBLOCK_LATER): State.SCHEDULED,
    (State.BLOCKED, Move.CANCEL): State.CANCELLED,
    (State.BLOCKED, Move.BURY): State.DEAD,
    (State.SCHEDULED, Move.PROMOTE): State.PENDING,
    (State.SCHEDULED, Move.CANCEL): State.CANCELLED,
    (State.SCHEDULED, Move.BURY): State.DEAD,
    (State.PENDING, Move.CLAIM): State.RUNNING,
    (State.PENDING, Move.POSTPONE): State.SCHEDULED,
    (State.PENDING, Move.CANCEL): State.CANCELLED,
    (State.PENDING, Move.BURY): State.DEAD,
    (State.RUNNING, Move.COMPLETE): State.COMPLETED,
    (State.RUNNING, Move.RETRY): State.RETRYING,
    (State.RUNNING, Move.LOSE): State.PENDING,
    (State.RUNNING, Move.LOSE_AGAIN): State.RETRYING,
    (State.RUNNING, Move.RELEASE): State.PENDING,
    (State.RUNNING, Move.SNOOZE): State.SCHEDULED,
    (State.RUNNING, Move.CANCEL): State.CANCELLED,
    (State.RUNNING, Move.BURY): State.DEAD,
    (State.RETRYING, Move.PROMOTE): State.PENDING,
    (State.RETRYING, Move.CANCEL): State.CANCELLED,
    (State.RETRYING, Move.BURY): State.DEAD,
    (State.DEAD, Move.REPLAY): State.PENDING,
    (State.CANCELLED, Move.REBLOCK): State.BLOCKED,
    (State.DEAD, Move.REBLOCK): State.BLOCKED,
}


def after(state: State | None, move: Move) -> State:
    """The state that `move` leads to; a KeyError is a bug in the caller."""
    return TRANSITIONS[state, move]


def mermaid() -> str:
    """The table as a Mermaid state diagram."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (source, move), target in TRANSITIONS.items():
        arrows.setdefault((source or "[*]", target), []).append(move)
    lines = ["stateDiagram-v2"]
    lines += [f"    {source} --> {target}: {', '.join(moves)}" for (source, target), moves in arrows.items()]
    lines += [f"    {state} --> [*]" for state in State if state in ENDED]
    return "\n".join(lines) + "\n"
