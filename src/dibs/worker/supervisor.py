"""Several worker processes, or one that is restarted when its code changes."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from dibs.errors import UsageError
from dibs.worker.executors.child import die_with_parent
from dibs.worker.health import Backoff
from dibs.worker.status import ExitCode

__all__ = ["handling_signals", "reload", "supervise"]

log = logging.getLogger("dibs.worker")

Handler = Callable[[int, FrameType | None], None]

SIGNALS = (signal.SIGTERM, signal.SIGINT)
HEALTHY_AFTER = 10.0
"""A child that has lived this many seconds counts as having started well."""

FINAL = (ExitCode.CLEAN, ExitCode.USAGE)
"""Exit codes after which a restart would be wrong, or would not help."""


class Child:
    """One worker process, which may be restarted."""

    def __init__(self, place: int, command: Sequence[str]) -> None:
        self.place = place
        self._command = command
        self._backoff = Backoff(first=0.25, cap=5.0)
        self.start_at: float | None = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self.code: int | None = None
        self._started = 0.0

    def start(self) -> None:
        """Start it in a group of its own: a Ctrl-C on the terminal then reaches it once, through the supervisor."""
        self.start_at = None
        self._started = time.monotonic()
        self.process = subprocess.Popen(  # noqa: S603  # the command is the caller's own
            self._command,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGTERM),  # noqa: PLW1509  # there are no threads
        )

    def ended(self, code: int, stopping: bool) -> None:
        """Decide whether it is started again."""
        self.process = None
        if stopping and -code in SIGNALS:  # the signal came before it could handle it, and before it worked
            code = ExitCode.CLEAN
        if stopping or code in FINAL:
            self.code = code if code >= 0 else 128 - code
            return
        if time.monotonic() - self._started > HEALTHY_AFTER:
            self._backoff.reset()
        wait = self._backoff.next()
        log.warning("Worker process %d ended (%s); starting it again in %.1f s.", self.place, words(code), wait)
        self.start_at = time.monotonic() + wait


class Supervisor:
    """Keeps the children running until asked to stop."""

    def __init__(self, children: list[Child]) -> None:
        self._children = children
        self._stopping = False

    def run(self) -> int:
        with handling_signals(self._pass_on):
            while not self._over():
                self._start_due()
                self._wait()
        return max((child.code or 0 for child in self._children), default=0)

    def _over(self) -> bool:
        return all(child.process is None and (self._stopping or child.start_at is None) for child in self._children)

    def _start_due(self) -> None:
        for child in self._children:
            if not self._stopping and child.start_at is not None and child.start_at <= time.monotonic():
                child.start()

    def _wait(self) -> None:
        """Wait until a child ends, or one is due to start; `waitpid` on all would reap other children as well."""
        for child in self._children:
            if child.process is not None:
                try:
                    child.ended(child.process.wait(timeout=0.1), self._stopping)
                except subprocess.TimeoutExpired:
                    continue
                return
        if all(child.process is None for child in self._children):
            time.sleep(0.05)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        for child in self._children:
            if child.process is not None:
                child.process.send_signal(number)


def supervise(command: list[str] | Callable[[int], list[str]], processes: int) -> int:
    """Run `command` in that many processes; restart those that die, with backoff; pass signals on.

    It may be a function that gives the command of each by its place, from 1. A child that ends by itself with code 0 or
    2 is not restarted. Returns the highest exit code.
    """
    commands = [command(place) if callable(command) else command for place in range(1, processes + 1)]
    return Supervisor([Child(place, each) for place, each in enumerate(commands, 1)]).run()


def reload(command: list[str], paths: Sequence[str | Path]) -> int:
    """Run `command`, and again whenever a Python file under `paths` changes. For development."""
    try:
        from watchfiles import PythonFilter, watch
    except ImportError:
        raise UsageError("--reload needs the package watchfiles: pip install 'dibs[reload]'.") from None
    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # otherwise it counts changes in the log
    child = Child(1, command)
    stopped = threading.Event()
    with handling_signals(stop_once(child, stopped)):
        child.start()
        for changes in watch(
            *paths,
            watch_filter=PythonFilter(),
            yield_on_timeout=True,
            rust_timeout=500,
            raise_interrupt=False,
            stop_event=stopped,
        ):
            if changes and not stopped.is_set():
                log.info("%s changed; starting again.", ", ".join(sorted({Path(path).name for _, path in changes})))
                finish(child)
                child.start()
    return finish(child)


@contextmanager
def handling_signals(handler: Handler) -> Iterator[None]:
    """Have `handler` handle SIGTERM and SIGINT."""
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def stop_once(child: Child, stopped: threading.Event) -> Handler:
    def handler(number: int, frame: FrameType | None) -> None:
        stopped.set()
        if child.process is not None:
            child.process.send_signal(number)

    return handler


def finish(child: Child) -> int:
    """Ask a child to stop, and wait for it."""
    process = child.process
    if process is None:
        return child.code or 0
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    child.ended(process.wait(), stopping=True)
    return child.code or 0


def words(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
