"""Dibs and its SQLite peers, each able to enqueue, to drain, and (where it has workers) to start one task."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from dibs.benchmark import measures
from dibs.benchmark.app import make_app
from signals import ListenerThread

__all__ = ["CONTESTANTS", "Contestant", "Figures"]

HERE = Path(__file__).parent
Figures = dict[str, float | None]
PAUSE = 0.02
"""Seconds between two latency samples, so that the worker is idle."""


class Contestant(Protocol):
    """One queue. Every measurement gets an empty directory."""

    name: str
    durability: str

    def enqueue(self, directory: Path, count: int) -> float: ...
    def drain(self, directory: Path, count: int) -> float: ...
    def latency(self, directory: Path, samples: int) -> float | None: ...


class Dibs:
    """This project; results are kept."""

    def __init__(self, name: str, synchronous: str) -> None:
        self.name = name
        self.durability = synchronous.upper()
        self.synchronous = synchronous

    def url(self, directory: Path) -> str:
        return f"sqlite:///{directory}/dibs.db?synchronous={self.synchronous}"

    def enqueue(self, directory: Path, count: int) -> float:
        with make_app(self.url(directory)) as app:
            return measures.enqueue_one(app, count)

    def drain(self, directory: Path, count: int) -> float:
        with make_app(self.url(directory)) as app:
            return measures.drain(app, directory, count)

    def latency(self, directory: Path, samples: int) -> float | None:
        with make_app(self.url(directory)) as app:
            return measures.latency(app, directory, samples)["p50"]


class WithWorkers:
    """A peer with worker processes of its own; `module` is its worker side in this directory."""

    def __init__(
        self, name: str, durability: str, module: str, command: list[str], enqueue: Callable[[Any, int], object]
    ) -> None:
        self.name = name
        self.durability = durability
        self._module = module
        self._command = command
        self._enqueue = enqueue

    @contextmanager
    def _peer(self, directory: Path, listener_thread: ListenerThread) -> Iterator[Any]:
        """The peer's module on a fresh file."""
        os.environ.update(listener_thread.environment, BENCH_DB=str(directory / "peer.db"))
        sys.modules.pop(self._module, None)
        try:
            yield importlib.import_module(self._module)
        finally:
            listener_thread.close()

    @contextmanager
    def _worker(self, directory: Path) -> Iterator[None]:
        environment = {**os.environ, "PYTHONPATH": str(HERE)}
        with (directory / "worker.log").open("wb") as log:
            process = subprocess.Popen(self._command, env=environment, cwd=directory, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def enqueue(self, directory: Path, count: int) -> float:
        with self._peer(directory, ListenerThread()) as peer:
            began = time.perf_counter()
            for number in range(count):
                self._enqueue(peer.nothing, number)
            return count / (time.perf_counter() - began)

    def drain(self, directory: Path, count: int) -> float:
        """From the start of the first task to the end of the last, as the worker sees it."""
        listener_thread = ListenerThread(count)
        with self._peer(directory, listener_thread) as peer:
            for number in range(count):
                self._enqueue(peer.nothing, number)
            with self._worker(directory):
                first, last = listener_thread.hear(), listener_thread.hear()
        return count / (last - first)

    def latency(self, directory: Path, samples: int) -> float | None:
        listener_thread = ListenerThread()
        values = []
        with self._peer(directory, listener_thread) as peer, self._worker(directory):
            start(peer.started)
            listener_thread.hear()
            for _ in range(samples):
                time.sleep(PAUSE)
                sent = time.time()
                start(peer.started)
                values.append((listener_thread.hear() - sent) * 1000)
        return median(values)


def start(task: Any) -> None:
    """Enqueue a task without arguments, in the peer's own way."""
    task.delay() if hasattr(task, "delay") and not hasattr(task, "huey") else task()


class PersistQueue:
    """persist-queue: a queue of items with acknowledgement; no workers, nothing kept."""

    name = "persist-queue"
    durability = "FULL"

    def _open(self, directory: Path) -> Any:
        from persistqueue import SQLiteAckQueue

        return SQLiteAckQueue(str(directory), auto_commit=True)

    def enqueue(self, directory: Path, count: int) -> float:
        queue = self._open(directory)
        began = time.perf_counter()
        for number in range(count):
            queue.put({"number": number})
        return count / (time.perf_counter() - began)

    def drain(self, directory: Path, count: int) -> float:
        self.enqueue(directory, count)
        queue = self._open(directory)
        began = time.perf_counter()
        for _ in range(count):
            queue.ack(queue.get(block=False))
        return count / (time.perf_counter() - began)

    def latency(self, directory: Path, samples: int) -> float | None:
        return None


class LiteQueue:
    """litequeue: pop and done; no workers, no results."""

    name = "litequeue"
    durability = "NORMAL"

    def _open(self, directory: Path) -> Any:
        from litequeue import LiteQueue as Queue

        return Queue(str(directory / "lite.db"))

    def enqueue(self, directory: Path, count: int) -> float:
        queue = self._open(directory)
        began = time.perf_counter()
        for number in range(count):
            queue.put(f'{{"number":{number}}}')
        return count / (time.perf_counter() - began)

    def drain(self, directory: Path, count: int) -> float:
        self.enqueue(directory, count)
        queue = self._open(directory)
        began = time.perf_counter()
        for _ in range(count):
            queue.done(queue.pop().message_id)
        return count / (time.perf_counter() - began)

    def latency(self, directory: Path, samples: int) -> float | None:
        return None


BIN = Path(sys.executable).parent
HUEY = [sys.executable, "-m", "huey.bin.huey_consumer", "peer_huey.huey", "-w", "4", "-q"]
FLEXIQ = [str(BIN / "flexiq"), "worker", "--app", "peer_flexiq:queue"]

CONTESTANTS: list[Contestant] = [
    Dibs("Dibs", "full"),
    Dibs("Dibs, normal", "normal"),
    WithWorkers("Huey", "FULL", "peer_huey", HUEY, lambda task, number: task(number)),
    WithWorkers("FlexiQ", "NORMAL", "peer_flexiq", FLEXIQ, lambda task, number: task.delay(number)),
    PersistQueue(),
    LiteQueue(),
]
