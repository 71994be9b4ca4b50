"""`dibs top`: a live screen of queues, workers and rates."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from datetime import datetime
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dibs.cli.options import SPAN, json_option, with_store
from dibs.cli.queues import SHOWN, expendable, full_text, percentiles_text, queue_data
from dibs.cli.schedules import due_text
from dibs.cli.workers import worker_table
from dibs.client.app import Dibs
from dibs.client.humanize import number as numbered
from dibs.client.queues import QueueInfo, TenantInfo
from dibs.client.schedules import ScheduleInfo
from dibs.client.stats import QueueStats
from dibs.client.workers import WorkerInfo
from dibs.core.humanize import format_duration, format_rate
from dibs.core.options import check_real
from dibs.core.states import State
from dibs.core.task import WorkerState
from dibs.engines.figures import Counter, Counts
from dibs.terminal import Listing, emit, number, out, show, state_text, table

__all__ = ["Frame", "heading", "pace_text", "rate", "top"]

WINDOW = 300.0
SHORTEST, LONGEST = 0.1, 3600.0
"""Seconds between two looks."""

FEW = 5
"""Limits, tenants and schedules that are shown."""

ENDS = [each for each in Counter if each is Counter.COMPLETIONS or each.startswith(("dead_", "cancelled_"))]


class Frame:
    """What one look at the store shows."""

    def __init__(self, app: Dibs) -> None:
        self.at = time.monotonic()
        self.url = app.hub.store_name
        self.queues: list[QueueInfo] = app.queues.list()
        self.workers: list[WorkerInfo] = [w for w in app.workers.list() if w.state is not WorkerState.DEAD]
        self.stats: QueueStats = app.stats(window=WINDOW)
        self.counts: Counts = app.hub.runner.run(app.hub.engine.counts())
        self.schedules: list[ScheduleInfo] = sorted(app.schedules.list(), key=next_first)
        self.full: dict[str, str] = {queue.name: full_text(app, queue) for queue in self.queues}
        fair = [queue for queue in self.queues if queue.settings.fair and queue.counts[State.PENDING]]
        self.tenants: dict[str, list[TenantInfo]] = {queue.name: app.queues.tenants(queue.name) for queue in fair}

    def data(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "queues": [queue_data(queue) for queue in self.queues],
            "workers": self.workers,
            "schedules": self.schedules,
            "tenants": self.tenants,
            "stats": self.stats,
        }

    def total(self, state: State) -> int:
        return sum(queue.counts[state] for queue in self.queues)

    def happened(self, *counters: Counter, queue: str | None = None) -> int:
        """How often, in one queue or in all, since the store was made."""
        chosen = [each for name, each in self.counts.counters.items() if queue in (None, name)]
        return sum(each.get(counter, 0) for each in chosen for counter in counters)


def next_first(schedule: ScheduleInfo) -> tuple[bool, float, str]:
    at = schedule.next_fire_at
    return at is None, 0.0 if at is None else at.timestamp(), schedule.name


@click.command()
@click.option("--interval", type=SPAN, default="1s", show_default=True, help="Time between two looks.")
@click.option("--once", is_flag=True, help="Print one frame and leave.")
@json_option
@with_store
def top(app: Dibs, interval: float, once: bool, as_json: bool) -> None:
    """Watch queues and workers live.

    Ctrl-C leaves.
    """
    check_real(interval, "--interval", SHORTEST, LONGEST)
    frame = Frame(app)
    if as_json:
        emit(frame.data())
        return
    console = out()
    if once or not console.is_terminal:
        show(render(frame, None))
        return
    frames = deque([frame], max(2, int(WINDOW / interval)))
    with (
        Live(render(frame, None), console=console, screen=True, auto_refresh=False) as live,
        suppress(KeyboardInterrupt),
    ):
        while True:
            time.sleep(interval)
            frames.append(Frame(app))
            live.update(render(frames[-1], frames[-2], frames[0]), refresh=True)


def render(frame: Frame, earlier: Frame | None, first: Frame | None = None) -> RenderableType:
    """A frame, the one before, and the first one of the last minutes: rates are exact between two of them."""
    parts: list[RenderableType] = [heading(frame, first), Text(), queue_lines(frame, earlier)]
    if (more := further_lines(frame)).row_count:
        parts += [Text(), more]
    if frame.workers:
        parts += [Text(), worker_table(frame.workers)]
    return Group(*parts)


def heading(frame: Frame, first: Frame | None) -> Text:
    stats = frame.stats
    line = Text(f"dibs top  {datetime.now().astimezone():%H:%M:%S}  {frame.url}\n", style="bold")
    for state in (State.PENDING, State.RUNNING, State.BLOCKED, State.SCHEDULED, State.RETRYING, State.DEAD):
        line.append(f"{frame.total(state):,} ", style="bold").append(state_text(state)).append("  ", style="not bold")
    busy, slots = sum(w.running for w in frame.workers), sum(w.concurrency for w in frame.workers)
    line.append(f"\n{numbered(len(frame.workers), 'worker')}, {busy} of {slots} slots busy", style="not bold")
    if prefetched := sum(worker.buffered for worker in frame.workers):
        line.append(f", {prefetched} prefetched", style="not bold")
    line.append(f", {stats.desired_slots} needed" if stats.desired_slots else "", style="not bold")
    line.append(f"\n{pace_text(frame, first)}", style="not bold")
    times = f"\nwait {percentiles_text(stats.wait)}, run {percentiles_text(stats.run)}"
    line.append(times, style="not bold")
    if stats.oldest_pending_seconds is not None:
        line.append(f", oldest pending {format_duration(stats.oldest_pending_seconds)}", style="not bold")
    return line


def pace_text(frame: Frame, first: Frame | None) -> str:
    """Completions and failures: counted since the first frame or, before there is one, as workers have reported."""
    if first is None or first is frame:
        span, rate, failed = WINDOW, frame.stats.throughput_per_second, frame.stats.error_rate
    else:
        span = frame.at - first.at
        done, failures = (
            frame.happened(counter) - first.happened(counter) for counter in (Counter.COMPLETIONS, Counter.FAILURES)
        )
        rate, failed = done / span, failures / (done + failures) if done + failures else 0.0
    return f"last {format_duration(span)}: {format_rate(rate)} completed, {failed:.1%} of attempts failed"


def queue_lines(frame: Frame, earlier: Frame | None) -> Listing:
    names = [state.upper() for state in SHOWN]
    leave = [*expendable(queue.counts for queue in frame.queues), "STATE"]
    made = table("QUEUE", "STATE", "ENDED/S", *names, right=["ENDED/S", *names], short={"QUEUE": 16}, leave=leave)
    for queue in frame.queues:
        made.add_row(
            queue.name,
            state_text(queue.state),
            rate(frame, earlier, queue.name),
            *(number(queue.counts[s]) for s in SHOWN),
        )
    return made


def further_lines(frame: Frame) -> Table:
    """What waits for a limit, a turn or a time; empty if nothing does."""
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(no_wrap=True, overflow="ellipsis")
    if full := [line for text in frame.full.values() for line in text.splitlines()]:
        made.add_row("at their limit", listed(full, "\n"))
    for queue, tenants in frame.tenants.items():
        busiest = sorted(tenants, key=lambda each: -each.pending)
        named = [f"{each.tenant or '(none)'} {each.pending:,}" for each in busiest]
        made.add_row(f"tenants of {queue}", listed(named, ", "))
    if frame.schedules:
        made.add_row("schedules", listed([f"{each.name} {due_text(each)}" for each in frame.schedules], ", "))
    return made


def listed(names: list[str], between: str) -> str:
    """The first few."""
    more = [f"and {len(names) - FEW:,} more"] if len(names) > FEW else []
    return between.join(names[:FEW] + more)


def rate(frame: Frame, earlier: Frame | None, queue: str) -> str:
    """Tasks that ended per second since the last frame."""
    if earlier is None:
        return "–"
    ended = frame.happened(*ENDS, queue=queue) - earlier.happened(*ENDS, queue=queue)
    return f"{ended / (frame.at - earlier.at):,.0f}"
