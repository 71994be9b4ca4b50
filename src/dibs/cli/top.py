"""`dibs top`: a live screen of queues, workers and rates."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dibs.cli.options import SPAN, json_option, with_store
from dibs.cli.output import emit, number, out, show, span, state_text, table
from dibs.cli.queues import SHOWN, percentiles_text, queue_data
from dibs.cli.workers import worker_table
from dibs.client.app import Dibs
from dibs.client.queues import QueueInfo
from dibs.client.stats import QueueStats
from dibs.client.workers import WorkerInfo
from dibs.core.states import State
from dibs.core.task import WorkerState

__all__ = ["top"]

WINDOW = 300.0
ENDS = (State.COMPLETED, State.CANCELLED, State.DEAD)


class Frame:
    """What one look at the store shows."""

    def __init__(self, app: Dibs) -> None:
        self.at = time.monotonic()
        self.url = app.url
        self.queues: list[QueueInfo] = app.queues.list()
        self.workers: list[WorkerInfo] = [w for w in app.workers.list() if w.state is not WorkerState.DEAD]
        self.stats: QueueStats = app.stats(window=WINDOW)

    def total(self, state: State) -> int:
        return sum(queue.counts[state] for queue in self.queues)

    def ended(self, queue: str) -> int:
        return sum(each.counts[state] for each in self.queues if each.name == queue for state in ENDS)


@click.command()
@click.option("--interval", type=SPAN, default="1s", show_default=True, help="Time between two looks.")
@click.option("--once", is_flag=True, help="Print one frame and leave.")
@json_option
@with_store
def top(app: Dibs, interval: float, once: bool, as_json: bool) -> None:
    """Watch queues and workers live.

    Ctrl-C leaves.
    """
    frame = Frame(app)
    if as_json:
        emit({"queues": [queue_data(q) for q in frame.queues], "workers": frame.workers, "stats": frame.stats})
        return
    console = out()
    if once or not console.is_terminal:
        show(render(frame, None))
        return
    with (
        Live(render(frame, None), console=console, screen=True, auto_refresh=False) as live,
        suppress(KeyboardInterrupt),
    ):
        while True:
            time.sleep(max(interval, 0.1))
            earlier, frame = frame, Frame(app)
            live.update(render(frame, earlier), refresh=True)


def render(frame: Frame, earlier: Frame | None) -> RenderableType:
    parts: list[RenderableType] = [heading(frame), Text(), queue_lines(frame, earlier)]
    if frame.workers:
        parts += [Text(), worker_table(frame.workers)]
    return Group(*parts)


def heading(frame: Frame) -> Text:
    stats = frame.stats
    line = Text(f"dibs top  {datetime.now().astimezone():%H:%M:%S}  {frame.url}\n", style="bold")
    for state in (State.PENDING, State.RUNNING, State.SCHEDULED, State.RETRYING, State.DEAD):
        line.append(f"{frame.total(state):,} ", style="bold").append(state_text(state)).append("  ", style="not bold")
    busy, slots = sum(w.running for w in frame.workers), sum(w.concurrency for w in frame.workers)
    line.append(f"\n{len(frame.workers)} workers, {busy} of {slots} slots busy", style="not bold")
    line.append(f", {stats.desired_slots} needed" if stats.desired_slots else "", style="not bold")
    line.append(
        f"\nlast {span(WINDOW)}: {stats.throughput_per_second:.1f}/s, {stats.error_rate:.1%} failed, "
        f"wait {percentiles_text(stats.wait)}, run {percentiles_text(stats.run)}",
        style="not bold",
    )
    if stats.oldest_pending_seconds is not None:
        line.append(f", oldest pending {span(stats.oldest_pending_seconds)}", style="not bold")
    return line


def queue_lines(frame: Frame, earlier: Frame | None) -> Table:
    names = [state.upper() for state in SHOWN]
    made = table("QUEUE", "STATE", "ENDED/S", *names, right=["ENDED/S", *names])
    for queue in frame.queues:
        made.add_row(
            queue.name,
            state_text(queue.state),
            rate(frame, earlier, queue.name),
            *(number(queue.counts[s]) for s in SHOWN),
        )
    return made


def rate(frame: Frame, earlier: Frame | None, queue: str) -> str:
    """Tasks that ended per second since the frame before."""
    if earlier is None:
        return "–"
    return f"{max(0, frame.ended(queue) - earlier.ended(queue)) / (frame.at - earlier.at):,.0f}"
