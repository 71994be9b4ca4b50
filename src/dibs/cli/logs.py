"""How a worker process logs: lines for people, or JSON lines for machines."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec

__all__ = ["LEVELS", "set_up_logging"]

LEVELS = ("debug", "info", "warning", "error")
FACTS = ("task_id", "task_name", "attempt")


def set_up_logging(level: str, as_json: bool) -> None:
    """To stderr; an app that has configured logging itself keeps its configuration."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    # Otherwise asyncio logs which selector the loop uses.
    logging.getLogger("asyncio").setLevel(logging.WARNING)


class JsonLines(logging.Formatter):
    """Time, level, logger, message, and the facts of the task if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: getattr(record, name) for name in FACTS if hasattr(record, name)},
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()
