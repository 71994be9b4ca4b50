"""The exit codes of `dibs`."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Every exit code. 3 to 5 come from `dibs worker` (`dibs.worker.status.ExitCode`), 5 from `dibs serve` too."""

    OK = 0
    FAILED = 1
    USAGE = 2
    HANDED_BACK = 3
    LEAKED = 4
    FORCED = 5
    REFUSED = 6
    INTERRUPTED = 130
