"""What each process saw, as lines of JSON in a file of its own.

A line is one write to a file opened for appending: it survives whatever happens to the process that wrote it. The clock
is the monotonic one, which all processes of a host share and nobody can set.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

__all__ = ["Journal", "Line", "read"]

Line = dict[str, Any]


class Journal:
    """The journal of this process; a child that was forked or spawned gets its own."""

    def __init__(self, folder: Path, who: str) -> None:
        self._folder = folder
        self._who = who
        self._pid = 0
        self._file = -1

    def write(self, what: str, **facts: object) -> float:
        """Append a line; the time that it bears."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            name = self._folder / f"{self._who}-{self._pid}.jsonl"
            self._file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        now = time.monotonic()
        os.write(self._file, json.dumps({"t": now, "what": what, "who": self._who, **facts}).encode() + b"\n")
        return now


def read(folder: Path) -> list[Line]:
    """All lines of all processes, in the order of time."""
    lines = [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted(lines, key=lambda line: line["t"])
