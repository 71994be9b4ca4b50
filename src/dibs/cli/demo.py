"""`dibs demo`: two thousand tasks, a few disasters, and an honest summary."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from dibs.cli.codes import ExitCode
from dibs.cli.demo_app import QUEUES, TICKS, make_app
from dibs.cli.demo_plan import make_plan
from dibs.cli.demo_report import RECOVERY_LIMIT, Crash, Summary, counters_of, show_summary, summarise
from dibs.cli.demo_view import View
from dibs.cli.options import json_option
from dibs.cli.output import emit, errors, out
from dibs.cli.worker_processes import WorkerNotStarted, WorkerProcesses
from dibs.client.app import Dibs
from dibs.client.flow import group
from dibs.client.tasks import Filter
from dibs.core.options import check_number
from dibs.core.settings import FALLBACK
from dibs.core.states import ENDED, State
from dibs.core.task import TaskRecord
from dibs.core.times import SECOND
from dibs.engines.values import Feature
from dibs.errors import InvalidOption

__all__ = ["demo"]

TICK = 0.1
TICK_NAME = "demo.tick"
SLOTS = 4
KILL_AT = 0.35
"""The share of ended tasks at which a worker is killed."""

PATIENCE = 120.0
"""Seconds after which unfinished tasks count as lost."""


@click.command()
@click.option("--tasks", "count", default=2000, show_default=True, help="How many tasks (at least 200).")
@click.option("--workers", default=3, show_default=True, help="Worker processes (at least 2; one is killed).")
@click.option("--url", metavar="URL", help="A store to use instead of a fresh SQLite file; the tasks stay there.")
@json_option
def demo(count: int, workers: int, url: str | None, as_json: bool) -> int:
    """See it work, and checked.

    About 2,000 tasks over several queues and priorities, a workflow, a schedule, limits and tenants, real worker
    processes, failures, a cancel, a worker killed with SIGKILL in the middle, and a summary that is read back from the
    store and checked. Takes about half a minute. Exit code 1 if any promise was broken.
    """
    check_number(count, "--tasks", 200, 100_000)
    check_number(workers, "--workers", 2, 64)
    logs = Path(tempfile.mkdtemp(prefix="dibs-demo-"))
    kept = False
    try:
        with make_app(f"sqlite:///{logs / 'demo.db'}" if url is None else url) as app:
            if Feature.SHARED not in app.hub.engine.features:
                raise InvalidOption(f"{app.url} can't be shared with worker processes: use a SQLite file.")
            summary = Demo(app, count, workers, logs, View(out(), count, quiet=as_json)).run()
        kept = not summary.ok
    except WorkerNotStarted:
        kept = True
        raise
    finally:
        if kept:
            errors().print(f"The workers' logs are in {logs}.", soft_wrap=True)
        else:
            shutil.rmtree(logs, ignore_errors=True)
    if as_json:
        emit(summary)
    else:
        show_summary(summary)
    return ExitCode.OK if summary.ok else ExitCode.FAILED


class Demo:
    """One run of the demo."""

    def __init__(self, app: Dibs, count: int, workers: int, logs: Path, view: View) -> None:
        self.app = app
        self.view = view
        self.plan = make_plan(app, count)
        self.stream = [planned for planned in self.plan if planned.streamed]
        self.stream_length = len(self.stream)
        self.crew = WorkerProcesses("dibs.cli.demo_app:app", app.url, logs, SLOTS, (*QUEUES, TICKS))
        self.workers = workers
        self.before = counters_of(app)
        self.ended_before = self.ended_in_store()
        self.crash: Crash | None = None
        self.killed_at = 0.0
        self.cancelled = False

    def run(self) -> Summary:
        began = time.monotonic()
        with self.view, self.crew, self.ticking():
            self.set_up()
            self.enqueue_bulk()
            self.enqueue_workflow()
            self.crew.start(self.workers)
            self.crew.ready(self.app)
            self.view.event(f"{self.workers} worker processes are running, {SLOTS} slots each")
            while not self.finished() and time.monotonic() - began < PATIENCE:
                self.step()
                time.sleep(TICK)
            exits = self.crew.stop()
            self.view.event("the workers have left")
            self.show(self.ended_in_store() - self.ended_before)
            ticks = self.app.schedules.get(TICK_NAME)
        return summarise(self.app, self.plan, self.crash, ticks, self.before, exits, time.monotonic() - began)

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """A schedule that fires every second meanwhile."""
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
        calls = [planned.call for planned in self.plan if not planned.streamed and not planned.flow]
        began = time.monotonic()
        self.app.enqueue_many(calls)
        took = time.monotonic() - began
        self.view.event(
            f"{len(calls):,} tasks enqueued in {took:.2f} s, durably; {self.stream_length:,} urgent ones will follow"
        )

    def step(self) -> None:
        """One look, and whatever is due."""
        ended = self.ended_in_store() - self.ended_before
        self.enqueue_stream(ended)
        if ended > 0.1 * len(self.plan) and not self.cancelled:
            self.cancel()
        if ended > KILL_AT * len(self.plan) and self.crash is None:
            self.kill()
        if self.crash is not None and self.crash.recovered_after is None:
            self.look_for_recovery()
        self.show(ended)

    def show(self, ended: int) -> None:
        queues = [queue for queue in self.app.queues.list() if queue.name in QUEUES]
        self.view.show(queues, [w for w in self.app.workers.list() if w.id in self.crew.names], ended)

    def ended_in_store(self) -> int:
        counts = [queue.counts for queue in self.app.queues.list() if queue.name in QUEUES]
        return sum(count[state] for count in counts for state in ENDED)

    def enqueue_stream(self, ended: int) -> None:
        """Urgent tasks keep coming while the backlog is worked off: spread over its first three quarters."""
        due = min(1.0, ended / (0.75 * (len(self.plan) - self.stream_length)) + 0.02)
        while self.stream and self.stream_length - len(self.stream) < due * self.stream_length:
            self.app.enqueue_many([self.stream.pop(0).call])

    def cancel(self) -> None:
        """One task that waits, one that runs."""
        self.cancelled = True
        for planned in self.plan:
            if planned.cancel:
                info = self.app.tasks.get(planned.call.new.id)
                self.app.tasks.cancel(info.id, "the demo changed its mind")
                self.view.event(f"cancelled a {info.state} task")

    def kill(self) -> None:
        """SIGKILL the first worker, in the middle of what it does."""
        name = self.crew.names[0]
        self.crew.kill(name)
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
        return not self.stream and self.ended_in_store() - self.ended_before >= len(self.plan)
