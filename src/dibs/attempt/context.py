"""What a running task can read and report about itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol

from msgspec import structs

from dibs.attempt.complete_in import acomplete_in, complete_in
from dibs.attempt.outcome import Snoozed
from dibs.core.options import NOTE_LIMIT, check_fraction, check_note, shown, storable
from dibs.core.settings import check_span
from dibs.core.task import LeasedTask, Settlement, TaskSpec
from dibs.core.times import SECOND, duration, instant, when
from dibs.errors import InvalidOption, LeaseLost, TaskCancelled, UsageError
from dibs.runtime.hub import Hub

__all__ = ["CURRENT", "Context", "Link", "holding_slot", "pass_on"]


class Link(Protocol):
    """What connects a context with its run: in the worker the run itself, in an executor process the socket."""

    @property
    def task(self) -> LeasedTask: ...
    @property
    def stopping(self) -> str | None:
        """Why the task should stop, if it should."""
        ...

    @property
    def lease_lost(self) -> bool: ...
    @property
    def valid_until(self) -> float:
        """When the lease ends as far as is known here, on the monotonic clock."""
        ...

    @property
    def timeout_at(self) -> float | None:
        """When the run times out, on the monotonic clock."""
        ...

    def begin(self) -> None:
        """The arguments are ready: the timeout counts from now."""
        ...

    def report(self, fraction: float, message: str) -> None: ...
    def keep(self, seconds: float) -> None: ...
    def completes(self, settlement: Settlement) -> None:
        """The completion is part of a transaction of the task, which may be committed from now on."""
        ...

    def waiting(self, queue: str) -> AbstractContextManager[None]:
        """While this lasts, the run holds its slot only to wait for a task of this queue.

        Raises `WrongThread` if then nothing in its worker could ever run.
        """
        ...


class Context:
    """One run of a task, as the task sees it. Usable from any thread; the same in threads and executor processes."""

    __slots__ = ("_hub", "_link", "_logger", "_task", "state")

    def __init__(self, link: Link, state: Any = None, hub: Hub | None = None) -> None:
        self._hub = hub
        self._link = link
        self._task = link.task
        self._logger: logging.LoggerAdapter[logging.Logger] | None = None
        self.state = state

    @staticmethod
    def current() -> Context:
        """The context of the task that this code runs in."""
        context = CURRENT.get()
        if context is None:
            raise UsageError("no task is running here: Context.current() works inside a task only.")
        return context

    @staticmethod
    def current_or_none() -> Context | None:
        """The context of the task that this code runs in, if it runs in one."""
        return CURRENT.get()

    def __repr__(self) -> str:
        return f"<Context of {self.name} {self.id}, attempt {self.attempt}>"

    @property
    def id(self) -> str:
        """The task's id."""
        return self._task.id

    @property
    def name(self) -> str:
        """The task's name."""
        return self._task.name

    @property
    def queue(self) -> str:
        """The queue that it came from."""
        return self._task.queue

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._task.attempt

    @property
    def lease(self) -> int:
        """The lease number: it grows with every run of this task, so a system downstream can refuse older ones."""
        return self._task.lease

    @property
    def priority(self) -> int:
        """As submitted or edited, 0 to 100."""
        return self._task.spec.priority

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Its labels."""
        return self._task.spec.metadata

    @property
    def headers(self) -> Mapping[str, str]:
        """Texts that travel with the task, such as a trace."""
        return self._task.spec.headers

    @property
    def parent(self) -> str | None:
        """The task that enqueued this one."""
        return self._task.spec.parent

    @property
    def workflow(self) -> str | None:
        """The workflow that it belongs to."""
        return self._task.spec.workflow

    @property
    def tenant(self) -> str:
        """Whose share of a fair queue it is charged to; empty: nobody's."""
        return self._task.spec.tenant

    @property
    def partition(self) -> str | None:
        """The partition whose limits hold for it."""
        return self._task.spec.partition

    @property
    def deadline(self) -> datetime | None:
        """When the task should be done, as set by its producer."""
        return when(self._task.spec.deadline)

    @property
    def time_left(self) -> float | None:
        """Seconds until this run times out; None if it has no timeout."""
        timeout_at = self._link.timeout_at
        return None if timeout_at is None else max(0.0, timeout_at - time.monotonic())

    @property
    def lease_valid(self) -> bool:
        """Whether the run still holds its lease, as far as is known here: False once it was lost or has run out."""
        return not self._link.lease_lost and time.monotonic() < self._link.valid_until

    @property
    def cancelled(self) -> bool:
        """Whether to stop: cancelled, timed out, lease lost, or handed back because the worker stops."""
        return self._link.stopping is not None

    def raise_if_cancelled(self) -> None:
        """Stop here if the task should stop."""
        if self._link.lease_lost:
            raise LeaseLost(f"the lease of task {self.id} was lost: another worker may be running it.")
        reason = self._link.stopping
        if reason is not None:
            raise TaskCancelled(f"task {self.id} should stop: {reason}.", task_id=self.id, reason=reason)

    def progress(self, fraction: float, message: object = "") -> None:
        """Say how far the task is, from 0 to 1. Cheap: only the latest value is sent, within a moment."""
        how_far = check_fraction(fraction, "progress")
        self._link.report(how_far, storable((message if isinstance(message, str) else shown(message))[:NOTE_LIMIT]))

    def extend(self, by: float) -> None:
        """Ask for a lease that lasts `by` seconds from now.

        Leases are kept alive without it: this is for code that is about to stop the whole process from running
        (holding the interpreter lock) for longer than the lease. It does not move the timeout.
        """
        self._link.keep(check_span("lease", by, "by") / SECOND)

    def snooze(self, delay: float | timedelta = 0, *, until: datetime | None = None, note: str = "") -> NoReturn:
        """End this run here and put the task off by `delay` (seconds), or until an aware datetime.

        No attempt is counted, and a task may do this any number of times: ``if not ready(): ctx.snooze(60)``. `note`
        is kept in its history. It is raised through your code like an exit, past `except Exception`.
        """
        if until is not None:
            if delay:
                raise InvalidOption("delay and until both say when: give one of them.")
            delay = timedelta(microseconds=max(0, instant(until, "until") - self._own_hub().clock.now()))
        raise Snoozed(duration(delay, "snooze()"), check_note(note, "note") or "the task put itself off")

    def complete_in(self, connection: Any, result: object = None) -> None:
        """Complete the task inside your own open transaction, which you then commit: your writes and the completion
        are atomic. Raises `LeaseLost` if the run has lost its lease: let it roll everything back.

        Call it last. `result` takes the place of what the function returns. If the function ends and the transaction
        was not committed, that is a failed attempt.
        """
        self._link.completes(complete_in(self._own_hub(), self._task, connection, result))

    async def acomplete_in(self, connection: Any, result: object = None) -> None:
        """`complete_in` for async connections."""
        self._link.completes(await acomplete_in(self._own_hub(), self._task, connection, result))

    def _own_hub(self) -> Hub:
        if self._hub is None:
            raise UsageError(f"task {self.name} runs without an app here: complete_in needs one.")
        if self._link.lease_lost:
            raise LeaseLost(f"the lease of task {self.id} was lost: another worker may be running it.")
        return self._hub

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that puts task, name and attempt into each record and in front of each message."""
        if self._logger is None:
            facts = {"task_id": self.id, "task_name": self.name, "attempt": self.attempt}
            self._logger = TaskLogger(logging.getLogger("dibs.task"), facts)
        return self._logger


def holding_slot(hub: Hub, queue: str) -> AbstractContextManager[None]:
    """While this lasts, the task that this code runs in, if any, does nothing but wait for a task of this queue."""
    context = CURRENT.get()
    if context is None or context._hub is not hub:
        return nullcontext()
    return context._link.waiting(queue)


def pass_on(context: Context, spec: TaskSpec, headers: Mapping[str, str] | None) -> TaskSpec:
    """The spec of a task that a run enqueues: it names the run's task as its parent, and inherits its headers."""
    carried = spec.headers if headers is not None else dict(context.headers)
    return structs.replace(spec, parent=context.id, headers=carried)


class TaskLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the facts of the task to the record, and a prefix for plain formatters."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        facts = self.extra or {}
        kwargs["extra"] = {**facts, **(kwargs.get("extra") or {})}
        return f"{facts['task_name']} {facts['task_id']} (attempt {facts['attempt']}): {msg}", kwargs


CURRENT: ContextVar[Context | None] = ContextVar("dibs_context", default=None)
