"""One run of the demo: enqueue, start workers, cancel, kill one of them, and wait for the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dibs.client.app import Dibs
from dibs.client.flow import group
from dibs.client.tasks import Filter
from dibs.core.settings import FALLBACK
from dibs.core.states import ENDED, State
from dibs.core.task import TaskRecord
from dibs.core.times import SECOND
from dibs.demo.app import QUEUES, TICKS
from dibs.demo.plan import make_plan
from dibs.demo.report import RECOVERY_LIMIT, Crash, Summary, summarise
from dibs.demo.view import View
from dibs.engines.values import Feature
from dibs.worker_processes import WorkerProcesses

__all__ = ["Demo"]

TICK = 0.1
TICK_NAME = "demo.tick"
SLOTS = 4
KILL_AT = 0.35
"""The share of ended tasks at which a worker is killed."""

PATIENCE = 120.0
"""Seconds after which unfinished tasks count as lost."""


class Demo:
    """One run of the demo."""

    def __init__(self, app: Dibs, count: int, workers: int, logs: Path, view: View) -> None:
        self.app = app
        self.view = view
        self.plan = make_plan(app, count)
        self.later = [planned for planned in self.plan if planned.later]
        self.later_count = len(self.later)
        self.processes = WorkerProcesses("dibs.demo.app:app", app.url, logs, SLOTS, (*QUEUES, TICKS))
        self.workers = workers
        self.before = app.stats().counters
        self.ended_before = self.ended_in_store()
        self.crash: Crash | None = None
        self.killed_at = 0.0
        self.cancelled = False

    def run(self) -> Summary:
        began = time.monotonic()
        with self.view, self.processes, self.ticking():
            self.set_up()
            self.enqueue_bulk()
            self.enqueue_workflow()
            self.processes.start(self.workers)
            self.processes.ready(self.app)
            self.view.event(f"{self.workers} worker processes are running, {SLOTS} slots each")
            while not self.finished() and time.monotonic() - began < PATIENCE:
                self.step()
                time.sleep(TICK)
            exits = self.processes.stop()
            self.view.event("the workers have left")
            self.show(self.ended_in_store() - self.ended_before)
            ticks = self.app.schedules.get(TICK_NAME)
        return summarise(self.app, self.plan, self.crash, ticks, self.before, exits, time.monotonic() - began)

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Have a schedule that fires every second."""
        self.app.schedules.set(TICK_NAME, TICK_NAME, every=1)
        try:
            yield
        finally:
            self.app.schedules.delete(TICK_NAME)

    def set_up(self) -> None:
        self.app.queues.set("billing", per_partition={"max_concurrent": 1})
        self.app.queues.set("imports", fair=True)

    def enqueue_workflow(self) -> None:
        parts = [planned.call for planned in self.plan if planned.flow]
        self.app.enqueue_workflow(group(parts), name="prices")
        self.view.event(f"a workflow of {len(parts)} tasks: the last one adds up what the others find")

    def enqueue_bulk(self) -> None:
        """Most of it at once, atomically; the rest follows one by one."""
        calls = [planned.call for planned in self.plan if not planned.later and not planned.flow]
        began = time.monotonic()
        self.app.enqueue_many(calls)
        took = time.monotonic() - began
        self.view.event(
            f"{len(calls):,} tasks enqueued in {took:.2f} s, durably; {self.later_count:,} urgent ones will follow"
        )

    def step(self) -> None:
        """One look, and whatever is due."""
        ended = self.ended_in_store() - self.ended_before
        self.enqueue_later(ended)
        if ended > 0.1 * len(self.plan) and not self.cancelled:
            self.cancel()
        if ended > KILL_AT * len(self.plan) and self.crash is None:
            self.kill()
        if self.crash is not None and self.crash.recovered_after is None:
            self.look_for_recovery()
        self.show(ended)

    def show(self, ended: int) -> None:
        queues = [queue for queue in self.app.queues.list() if queue.name in QUEUES]
        self.view.show(queues, [w for w in self.app.workers.list() if w.id in self.processes.names], ended)

    def ended_in_store(self) -> int:
        counts = [queue.counts for queue in self.app.queues.list() if queue.name in QUEUES]
        return sum(count[state] for count in counts for state in ENDED)

    def enqueue_later(self, ended: int) -> None:
        """Enqueue urgent tasks while the backlog shrinks, spread over its first three quarters."""
        due = min(1.0, ended / (0.75 * (len(self.plan) - self.later_count)) + 0.02)
        while self.later and self.later_count - len(self.later) < due * self.later_count:
            self.app.enqueue_many([self.later.pop(0).call])

    def cancel(self) -> None:
        """Cancel a waiting task and a running one."""
        self.cancelled = True
        for planned in self.plan:
            if planned.cancel:
                info = self.app.tasks.get(planned.call.new.id)
                self.app.tasks.cancel(info.id, "the demo changed its mind")
                self.view.event(f"cancelled a {info.state} task")

    def kill(self) -> None:
        """SIGKILL the first worker while it runs tasks."""
        name = self.processes.names[0]
        self.processes.kill(name)
        self.killed_at = time.monotonic()
        running = self.app.tasks.search(Filter(state=State.RUNNING, worker=name), limit=1000).tasks
        mine = {planned.call.new.id for planned in self.plan}
        lost = [info.id for info in running if info.id in mine]
        noticed = Feature.PRESENCE in self.app.hub.engine.features
        limit = RECOVERY_LIMIT if noticed else FALLBACK.lease / SECOND + RECOVERY_LIMIT
        self.crash = Crash(worker=name, tasks=lost, limit=limit)
        self.view.event(f"killed {name} with SIGKILL while it held {len(lost)} tasks")

    def look_for_recovery(self) -> None:
        """Recovered: each of its tasks has been taken back, and runs again in its turn."""
        assert self.crash is not None
        records = self.app.hub.runner.run(self.app.hub.engine.get(self.crash.tasks))
        if all(isinstance(record, TaskRecord) and record.losses > 0 for record in records):
            self.crash.recovered_after = time.monotonic() - self.killed_at
            self.view.event(f"its tasks were taken back {self.crash.recovered_after:.1f} s after the kill")

    def finished(self) -> bool:
        return not self.later and self.ended_in_store() - self.ended_before >= len(self.plan)
