"""What the tests of the worker share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from dibs.client.app import Dibs
from dibs.engines.base import Engine
from dibs.errors import StoreUnavailable
from dibs.worker import ExitCode, Worker, WorkerSettings

PATIENCE = 20.0
"""Seconds after which something that should happen has not."""


def drain(app: Dibs, **settings: Any) -> Worker:
    """Run until nothing is left to do."""
    worker = Worker(app.hub, WorkerSettings(until_idle=True, **settings))
    worker.start()
    report = worker.wait(PATIENCE)
    assert report is not None
    assert report.code is ExitCode.CLEAN
    return worker


def record_of(app: Dibs, task_id: str) -> Any:
    return app.hub.runner.run(app.hub.engine.get([task_id]))[0]


class Switch:
    """Which verbs fail, and whether they had taken effect when they did."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.lost_replies: set[str] = set()
        self.failures: dict[str, int] = {}
        self._changed = threading.Condition()

    def failed(self, verb: str) -> None:
        with self._changed:
            self.failures[verb] = self.failures.get(verb, 0) + 1
            self._changed.notify_all()

    def wait_for(self, verb: str, times: int = 1) -> None:
        """Until a verb has failed that often."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.failures.get(verb, 0) >= times, PATIENCE)


class FaultyEngine:
    """An engine whose verbs fail while the switch says so."""

    def __init__(self, engine: Engine, switch: Switch) -> None:
        self._engine = engine
        self._switch = switch

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._engine, name)
        verbs = ("claim", "settle", "extend", "beat", "rescue", "lead", "chore", "counts", "fire", "set_schedule")
        if name not in verbs:
            return member

        async def verb(*args: Any, **kwargs: Any) -> Any:
            if name in self._switch.broken:
                self._switch.failed(name)
                raise StoreUnavailable(f"{name} is switched off")
            answer = await member(*args, **kwargs)
            if name in self._switch.lost_replies:
                self._switch.lost_replies.discard(name)
                self._switch.failed(name)
                raise StoreUnavailable(f"the reply to {name} was lost")
            return answer

        return verb

    def sibling(self) -> FaultyEngine:
        return FaultyEngine(self._engine.sibling(), self._switch)


def eventually(holds: Callable[[], Any], patience: float = PATIENCE) -> None:
    """Until something that another thread does has happened: looked at often, no longer than it takes."""
    pause = threading.Event()
    until = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < until, "it did not happen"
        pause.wait(0.002)
