"""The parts of an engine's transaction that decisions need."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from dibs.core.settings import QueueSettings
from dibs.core.states import WAITING, State
from dibs.core.task import QueueState
from dibs.core.times import Instant
from dibs.engines.decisions.follow_ups import FollowUp
from dibs.engines.values import Counter, ended_topic, work_topic

__all__ = ["Queue", "Transaction", "topics_of"]


class Queue(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def state(self) -> QueueState: ...
    @property
    def settings(self) -> QueueSettings: ...


class Transaction(Protocol):
    """What it knows of queues; it gathers counts, topics and follow-ups until its end writes and notifies them."""

    now: Instant
    topics: set[str]
    follow_ups: deque[FollowUp]

    def settings(self, queue: str) -> QueueSettings:
        """The settings of a queue; the defaults if it does not exist."""
        ...

    def settings_if_exists(self, queue: str) -> QueueSettings | None:
        """The settings of a queue that exists."""
        ...

    def make_queue(self, name: str) -> Queue:
        """The queue of this name, created if it does not exist."""
        ...

    def count_event(self, what: Counter, queue: str, change: int = 1) -> None:
        """Count what happened in a queue."""
        ...

    def tell(self, queue: str, state: State) -> None:
        """Gather the topics to notify for a task that is now in `state`."""
        ...


def topics_of(queue: str, state: State, settings: QueueSettings) -> tuple[str, ...]:
    """The topics to notify for a task that is now in `state`."""
    if state in WAITING:  # also for later work: a worker that sleeps until the next due time must learn of it
        return (work_topic(queue),)
    if settings.limits_starts:  # a slot may have come free
        return (ended_topic(queue), work_topic(queue))
    return (ended_topic(queue),)
