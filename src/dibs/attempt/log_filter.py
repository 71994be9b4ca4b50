"""Which task a log record belongs to: a filter that adds the facts of the running task to every record.

It is a filter of handlers and not a record factory: with a factory, `logger.info(…, extra={"queue": …})` would raise.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from dibs.attempt.context import CURRENT, Context
from dibs.core.task import LeasedTask

__all__ = ["TaskFilter", "add_task_facts", "facts_of", "trace_id_in"]

OURS = "dibs."
TRACE_ID = 32
"""Hexadecimal digits of a trace id in a W3C `traceparent`: version-trace-parent-flags."""


class TaskFilter(logging.Filter):
    """Lets every record pass, and adds the facts of the task that it was logged in. What is there stays.

    Records of Dibs itself, and those of tasks, also say which worker of this process logs.
    """

    worker: str | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        context = CURRENT.get()
        facts = {} if context is None else facts_in(context)
        if self.worker is not None and (context is not None or record.name.startswith(OURS)):
            facts["worker"] = self.worker
        for name, value in facts.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def facts_in(context: Context) -> dict[str, Any]:
    """What records that are logged inside a run say."""
    facts, hub = facts_of(context._task), context._hub
    return facts if hub is None or hub.log_facts is None else {**facts, **hub.log_facts()}


def facts_of(task: LeasedTask) -> dict[str, Any]:
    """What records say of a task."""
    facts = {"task_id": task.id, "task_name": task.name, "queue": task.queue, "attempt": task.attempt}
    trace_id = trace_id_in(task.spec.headers)
    return facts if trace_id is None else {**facts, "trace_id": trace_id}


def trace_id_in(headers: Mapping[str, str]) -> str | None:
    if not headers:
        return None
    parts = headers.get("traceparent", "").split("-")
    if len(parts) >= 4 and len(parts[1]) == TRACE_ID:
        return parts[1]
    return headers.get("trace_id")


def add_task_facts(worker: str | None = None) -> None:
    """Have all handlers that exist now add the facts of the running task, and the worker that has started last."""
    for handler in handlers():
        ours = next((each for each in handler.filters if isinstance(each, TaskFilter)), None)
        if ours is None:
            ours = TaskFilter()
            handler.addFilter(ours)
        ours.worker = worker


def handlers() -> Iterator[logging.Handler]:
    known = tuple(logging.root.manager.loggerDict.values())
    for logger in (logging.root, *(each for each in known if isinstance(each, logging.Logger))):
        yield from tuple(logger.handlers)
