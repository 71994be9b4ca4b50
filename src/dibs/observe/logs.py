"""How a worker's processes log: lines for people, or JSON lines for machines."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from dibs.core.options import storable

__all__ = ["LEVELS", "JsonLines", "TextLines", "set_up_logging"]

LEVELS = ("debug", "info", "warning", "error")

STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
"""What every record has. Everything else was added by `extra=` or by a filter."""


def set_up_logging(level: str | int, as_json: bool) -> bool:
    """Log to stderr. False if the app has configured logging itself: that stays as it is."""
    if logging.getLogger().handlers:
        return False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else TextLines())
    logging.basicConfig(level=level.upper() if isinstance(level, str) else level, handlers=[handler])
    # Otherwise asyncio logs which selector the loop uses.
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    return True


class TextLines(logging.Formatter):
    """Time, level, logger and message; for records inside a task also its name, id and attempt."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name of the base class
        line = super().formatMessage(record)
        task_id = getattr(record, "task_id", None)
        if not isinstance(task_id, str) or task_id in record.message:
            return line
        name, attempt = getattr(record, "task_name", "task"), getattr(record, "attempt", None)
        numbered = "" if attempt is None else f", attempt {attempt}"
        return f"{line} [{name} {task_id}{numbered}]"


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, logger, message, and everything that `extra=` and filters added."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": storable(message_of(record)),
        }
        for name, value in added_to(record):
            line[f"extra_{name}" if name in line else name] = value
        if record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = storable(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = storable(self.formatStack(record.stack_info))
        return encoded(line).decode()


def message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # arguments that don't fit, or that can't be shown: the rest of the record is still worth a line
        return f"{record.msg} (its arguments can't be shown)"


def added_to(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    return ((str(name), value) for name, value in vars(record).items() if name not in STANDARD)


def encoded(line: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(line, enc_hook=str)
    except Exception:  # something in it that JSON can't carry: each such value becomes text
        return msgspec.json.encode({storable(name): as_json(value) for name, value in line.items()}, enc_hook=str)


def as_json(value: object) -> object:
    try:
        msgspec.json.encode(value, enc_hook=str)
    except Exception:
        try:
            return storable(str(value))
        except Exception:
            return "(it can't be shown: __str__ raised)"
    return value
