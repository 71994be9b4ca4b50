"""A task as its author defined it: the function and how to run it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from msgspec import Struct

from dibs.core.codec import Signature
from dibs.core.recurrence import Recurrence
from dibs.core.retry import ExceptionTypes
from dibs.core.settings import Defaults
from dibs.core.task import NewTask


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


class ScheduleDefinition(Struct, frozen=True, kw_only=True):
    """What an app knows of one schedule that its code declares; `task` is the template of its tasks."""

    name: str
    recurrence: Recurrence
    task: NewTask
