"""How the demo looks: a live screen on a terminal, plain lines elsewhere, nothing for scripts; then the summary."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dibs.client.queues import QueueInfo
from dibs.client.workers import WorkerInfo
from dibs.core.humanize import format_duration
from dibs.core.states import State
from dibs.demo.report import Summary
from dibs.terminal import facts_table, number, say, share, show, state_text, table

__all__ = ["View", "show_summary"]

SHOWN = (State.PENDING, State.SCHEDULED, State.RUNNING, State.RETRYING, State.COMPLETED, State.DEAD, State.CANCELLED)
LINES_EVERY = 2.0


class View:
    """What happens, and how far it is."""

    def __init__(self, console: Console, total: int, quiet: bool) -> None:
        self._console = console
        self._total = total
        self._quiet = quiet
        self._began = time.monotonic()
        self._events: list[str] = []
        self._line_at = 0.0
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal and not quiet else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def event(self, text: str) -> None:
        """Something worth a line of its own."""
        line = f"{self.seconds:5.1f} s  {text}"
        self._events.append(line)
        if not self._quiet and self._live is None:
            self._console.print(line, soft_wrap=True)

    def show(self, queues: list[QueueInfo], workers: list[WorkerInfo], ended: int) -> None:
        """How it is now."""
        if self._live is not None:
            self._live.update(self._screen(queues, workers, ended), refresh=True)
        elif not self._quiet and self.seconds - self._line_at >= LINES_EVERY:
            self._line_at = self.seconds
            counts = {state: sum(queue.counts[state] for queue in queues) for state in SHOWN}
            text = ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
            self._console.print(f"{self.seconds:5.1f} s  {text}", soft_wrap=True)

    def _screen(self, queues: list[QueueInfo], workers: list[WorkerInfo], ended: int) -> RenderableType:
        bar = Table.grid(padding=(0, 1))
        part = min(1.0, ended / self._total)
        bar.add_row(ProgressBar(total=1.0, completed=part, width=40), f"{ended:,} of {self._total:,} ended")
        names = [state.upper() for state in SHOWN]
        made = table("QUEUE", *names, right=names, leave=reversed(names))
        for queue in queues:
            made.add_row(queue.name, *(number(queue.counts[state]) for state in SHOWN))
        workers_line = Text()
        for worker in workers:
            workers_line.append(f"{worker.id} ").append(state_text(worker.state))
            workers_line.append(f" {worker.running}/{worker.concurrency}   ", style="default")
        heading = Text(f"dibs demo  {self.seconds:.0f} s", style="bold")
        return Group(heading, bar, Text(), made, Text(), workers_line, Text(), Text("\n".join(self._events)))


def show_summary(summary: Summary) -> None:
    """The summary for people."""
    show(Text(f"\n{summary.tasks:,} tasks in {summary.seconds:g} s", style="bold"))
    made = table("END STATE", "TASKS", "SHARE", right=["TASKS", "SHARE"])
    for state, count in summary.end_states.items():
        made.add_row(state, f"{count:,}", share(count, summary.tasks))
    show(made)
    say("")
    waits = table("WAIT BY PRIORITY", "TASKS", "P50", "P95", "P99", right=["TASKS", "P50", "P95", "P99"])
    for tier, wait in summary.wait_ms.items():
        waits.add_row(
            tier, f"{wait.count:,}", *(format_duration(value / 1000) for value in (wait.p50, wait.p95, wait.p99))
        )
    show(waits)
    say(
        f"\n{summary.throughput_per_second:g} tasks/s, {summary.retries:,} retries, "
        f"{summary.recoveries:,} recovered from the killed worker, lost {summary.lost}\n"
    )
    promises = facts_table()
    for promise in summary.promises:
        mark = Text("kept", style="not bold green") if promise.kept else Text("BROKEN", style="bold red")
        promises.add_row(mark, f"{promise.promise}: {promise.detail}")
    say(Text("what Dibs promises, as it was read back from the store", style="bold"))
    show(promises)
