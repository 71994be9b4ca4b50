"""The exit codes of `dibs`."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Every exit code. 3 to 5 come from `dibs worker` only (`dibs.worker.status.ExitCode`)."""

    OK = 0
    FAILED = 1
    USAGE = 2
    HANDED_BACK = 3
    LEAKED = 4
    FORCED = 5
    REFUSED = 6
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "it worked",
    ExitCode.FAILED: "something went wrong: the store, the app's module, a watched task that did not complete, "
    "an error found by `doctor`, a promise broken in `demo`",
    ExitCode.USAGE: "wrong usage; nothing was done",
    ExitCode.HANDED_BACK: "`worker`: running work was handed back or killed because the shutdown time was up",
    ExitCode.LEAKED: "`worker`: too many threads were stuck past their timeout; start it again",
    ExitCode.FORCED: "`worker`: the event loop was blocked, so the process was ended from another thread",
    ExitCode.REFUSED: "the call was right, but the store refused: unknown task, wrong state, queue full or draining, …",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C",
}
