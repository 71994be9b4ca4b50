"""A task as its author defined it: the function and how to run it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from msgspec import Struct

from dibs.core.codec import Signature
from dibs.core.recurrence import Recurrence
from dibs.core.retry import Backoff, ExceptionTypes
from dibs.core.settings import Defaults, QueueSettings
from dibs.core.task import NewTask

Hook = Callable[[Any], Any]
"""Called with the end of a task; plain or async."""


class ExecutorKind(StrEnum):
    """Where a task runs."""

    LOOP = "loop"  # async def, on the worker's event loop
    THREAD = "thread"  # def, in a thread
    PROCESS = "process"  # in a child process that can be killed


class TaskDefinition(Struct, frozen=True, kw_only=True):
    """What an app knows of one task."""

    name: str
    function: Callable[..., Any]
    signature: Signature
    takes_context: bool
    executor: ExecutorKind
    queue: str = "default"
    priority: int = 50
    options: Defaults = Defaults()
    requires: tuple[str, ...] = ()
    retry_on: ExceptionTypes = (Exception,)
    no_retry: ExceptionTypes = ()
    memory_limit: int | None = None
    per: str | None = None
    """The parameter whose value is the partition."""
    keep_result: bool = True
    backoff: Backoff | None = None
    on_success: Hook | None = None
    on_failure: Hook | None = None


class QueueDefinition(Struct, frozen=True, kw_only=True):
    """What an app's code declares of one queue: the settings that are `given`; the others have their defaults."""

    name: str
    settings: QueueSettings
    given: tuple[str, ...]


class ScheduleDefinition(Struct, frozen=True, kw_only=True):
    """What an app knows of one schedule that its code declares; `task` is the template of its tasks."""

    name: str
    recurrence: Recurrence
    task: NewTask
