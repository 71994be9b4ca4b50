"""How an executor process logs: as its worker does."""

from __future__ import annotations

import logging

from msgspec import Struct

from dibs.attempt.log_filter import add_task_facts
from dibs.observe.logs import JsonLines, TextLines, set_up_logging

__all__ = ["LogSettings", "log_as", "log_settings"]


class LogSettings(Struct, frozen=True):
    """How the worker logs. `format`: with a formatter of its own; None: in Dibs's own lines, as text or JSON."""

    level: int
    as_json: bool = False
    format: str | None = None


def log_settings() -> LogSettings | None:
    """In the worker: how it logs; None if it does not."""
    root = logging.getLogger()
    if not root.handlers:
        return None
    formatter = root.handlers[0].formatter
    if isinstance(formatter, JsonLines | TextLines):
        return LogSettings(root.level, isinstance(formatter, JsonLines))
    return LogSettings(root.level, format=getattr(formatter, "_fmt", None) or logging.BASIC_FORMAT)


def log_as(settings: LogSettings | None) -> None:
    """In the child, once the app is imported: log as the worker does, unless the app has configured logging itself."""
    if settings is not None:
        if settings.format is None:
            set_up_logging(settings.level, settings.as_json)
        else:
            logging.basicConfig(level=settings.level, format=settings.format)
    add_task_facts()
