"""What traces an app, if anything does: the seam between producers and a tracing library."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from dibs.core.task import NewTask

__all__ = ["Tracing", "sending"]


class Tracing(Protocol):
    """Told of everything that this app enqueues."""

    def sending(self, tasks: Sequence[NewTask]) -> AbstractContextManager[Sequence[NewTask]]:
        """Around one enqueue: gives the tasks with headers that lead back to it, and sees what it raises."""
        ...


def sending(tracing: Tracing | None, tasks: Sequence[NewTask]) -> AbstractContextManager[Sequence[NewTask]]:
    """The tasks as they are to be enqueued: unchanged if nothing traces the app."""
    return nullcontext(tasks) if tracing is None else tracing.sending(tasks)
