"""Worker processes on a store that goes away, stands still or comes back, and the store seen from outside."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import outage_app
from worker_support import eventually

from dibs.client.app import Dibs
from dibs.core.states import State
from dibs.core.task import NewTask, TaskRecord
from dibs.errors import StoreError

PATIENCE = 60.0


class OutageWorkers:
    """Worker processes on one store, and the store seen from outside."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.app = Dibs(url)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, url: str | None = None, **settings: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, outage_app.__file__, url or self.url, str(self.folder), json.dumps(settings)]
        with self.log(len(self.processes)).open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def log(self, number: int) -> Path:
        return self.folder / f"log.{number}"

    def logs(self, number: int = 0) -> str:
        return self.log(number).read_text()

    def all_logs(self) -> str:
        return "\n\n".join(self.logs(number)[-3000:] for number in range(len(self.processes)))

    def enqueue(self, number: int, name: str, queue: str = "default", **args: Any) -> list[str]:
        """Tasks by name, each in a call of its own that is repeated until it is acknowledged."""
        hub = self.app.hub
        news = [NewTask(id=hub.new_id(), queue=queue, name=name, args=json.dumps(args).encode()) for _ in range(number)]
        for new in news:
            self.insist(lambda new=new: hub.runner.run(hub.engine.enqueue([new])))
        return [new.id for new in news]

    def insist(self, act: Callable[[], Any]) -> Any:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return act()
            except StoreError:
                assert time.monotonic() < until, "it never recovers"
                threading.Event().wait(0.02)

    def count(self, state: State, queue: str = "default") -> int:
        counts = self.insist(lambda: (self.app.hub.runner.run(self.app.hub.engine.counts())).tasks)
        return int(counts.get(queue, {}).get(state, 0))

    def records(self, ids: list[str]) -> list[TaskRecord]:
        found = self.insist(lambda: self.app.hub.runner.run(self.app.hub.engine.get(ids)))
        assert None not in found
        return found  # type: ignore[no-any-return]

    def runs(self) -> list[tuple[str, str]]:
        """(task, process) of every run that has begun."""
        path = self.folder / "runs"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(line.split()[0], line.split()[2]) for line in lines]

    def open_gate(self, name: str = "gate") -> None:
        (self.folder / name).touch()

    def until(self, holds: Callable[[], Any]) -> None:
        try:
            eventually(holds, PATIENCE)
        except AssertionError:
            counts = self.insist(lambda: (self.app.hub.runner.run(self.app.hub.engine.counts())).tasks)
            raise AssertionError(f"it did not happen: {counts}, {len(self.runs())} runs\n{self.all_logs()}") from None

    def after(self, seconds: float) -> None:
        """Until so much time has gone by: leases run out by themselves."""
        at = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= at)

    def until_completed(self, number: int, queue: str = "default") -> None:
        self.until(lambda: self.count(State.COMPLETED, queue) == number)

    def ran_once(self, ids: list[str]) -> None:
        """Each was run by one process, and none was ever lost."""
        assert sorted(task for task, _ in self.runs()) == sorted(ids)
        assert {each.losses for each in self.records(ids)} == {0}

    def calm(self, number: int = 0, outages: int = 1) -> None:
        """The log says that the store went, and in the end that it is back; a few plain lines, no tracebacks."""
        self.until(lambda: self.logs(number).count("The store answers again") >= outages)
        log = self.logs(number)
        assert log.count("The store answers again") == outages, log
        assert log.count("The store does not answer") == outages, log
        assert "Traceback" not in log, log
        assert len(log.splitlines()) < 12 + 8 * outages, log

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self.app.close()
