"""Worker processes that `demo` and `bench` start, watch and stop."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from dibs.client.app import Dibs
from dibs.core.task import WorkerState
from dibs.errors import DibsError

__all__ = ["WorkerNotStarted", "WorkerProcesses"]

START_LIMIT = 30.0
STOP_LIMIT = 30.0


class WorkerNotStarted(DibsError):
    """A worker process did not start."""


class WorkerProcesses:
    """`python -m dibs worker` several times, each logging to a file of its own."""

    def __init__(self, app: str, url: str, logs: Path, concurrency: int, queues: Sequence[str]) -> None:
        self._command = [sys.executable, "-m", "dibs", "worker", app, "--concurrency", str(concurrency)]
        self._command += ["--queues", ",".join(queues), "--shutdown-timeout", "10"]
        self._url = url
        self._logs = logs
        self._mark = secrets.token_hex(2)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._killed: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    @property
    def names(self) -> list[str]:
        return list(self._processes)

    def start(self, count: int) -> None:
        """Start `count` processes; `ready` waits for them."""
        for number in range(1, count + 1):
            name = f"worker-{number}-{self._mark}"
            with (self._logs / f"{name}.log").open("wb") as log:
                self._processes[name] = subprocess.Popen(  # noqa: S603  # our own command
                    [*self._command, "--name", name],
                    env={**os.environ, "DIBS_URL": self._url},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a Ctrl-C reaches them through this process
                )

    def ready(self, app: Dibs) -> None:
        """Wait until all of them are known to the store."""
        until = time.monotonic() + START_LIMIT
        while True:
            active = {worker.id for worker in app.workers.list() if worker.state is WorkerState.ACTIVE}
            if active >= set(self._processes):
                return
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise WorkerNotStarted(
                        f"{name} ended at once with exit code {process.returncode}: {self._last_line(name)}"
                    )
            if time.monotonic() > until:
                raise WorkerNotStarted(f"the workers were not ready after {START_LIMIT:.0f} s.")
            time.sleep(0.02)

    def _last_line(self, name: str) -> str:
        lines = (self._logs / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing."

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def kill(self, name: str) -> None:
        """Kill it with SIGKILL, so that it can't sign off."""
        self._processes[name].kill()
        self._processes[name].wait()
        self._killed.add(name)

    def stop(self) -> dict[str, int]:
        """Ask those that were not killed to stop; returns their exit codes by name."""
        asked = {name: process for name, process in self._processes.items() if name not in self._killed}
        for process in asked.values():
            process.terminate()
        until = time.monotonic() + STOP_LIMIT
        for process in asked.values():
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return {name: process.returncode for name, process in asked.items()}
