"""`dibs stats`: what queues did over time, by tier and by task, and their totals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
from rich.table import Table
from rich.text import Text

from dibs.cli.kinds import QUEUE
from dibs.cli.options import SPAN, TIME, json_option, with_store
from dibs.client.app import Dibs
from dibs.client.series import Percentiles, Point
from dibs.client.stats import QueueStats
from dibs.core.humanize import format_duration, format_rate
from dibs.core.settings import Tier
from dibs.core.states import State
from dibs.engines.figures import Counter
from dibs.terminal import Listing, emit, facts_table, number, say, show, table

__all__ = ["stats"]

NAMES = 20
"""Task names and types of errors that are shown."""
FEW_POINTS = 24
STEPS = (60, 300, 600, 1800, 3600, 4 * 3600, 12 * 3600, 24 * 3600)
"""Seconds a point, the first of which makes few points."""

FIGURES: dict[str, list[str]] = {
    "PENDING": [State.PENDING],
    "RUNNING": [State.RUNNING],
    "ENQUEUED": [Counter.ENQUEUED],
    "COMPLETED": [Counter.COMPLETIONS],
    "FAILED": [Counter.FAILURES],
    "DEAD": [counter for counter in Counter if counter.startswith("dead_")],
}
"""The columns of tables, and what is added up in them."""


@click.command()
@click.argument("queue", required=False, type=QUEUE)
@click.option("--since", "start", type=TIME, default="1h", show_default=True, help="From this time, or this long ago.")
@click.option("--until", "end", type=TIME, help="Until this time, or this long ago; otherwise until now.")
@click.option("--resolution", type=SPAN, help="Time between two lines: whole minutes, such as 5m.")
@json_option
@with_store
def stats(
    app: Dibs, queue: str | None, start: datetime, end: datetime | None, resolution: float | None, as_json: bool
) -> None:
    """What QUEUE, or all queues, did over time, and what is in them by tier and by task.

    Totals are exact and count from the making of the store. Figures over time come from workers, who report them within
    seconds, and are kept for 7 days.
    """
    step = few_points((end or datetime.now(UTC)) - start) if resolution is None else resolution
    points = app.series(queue, start=start, end=end, resolution=step)
    found = app.stats(queue)
    if queue is not None:
        app.queues.get(queue)  # says so if there is no such queue
    if as_json:
        emit({"queue": queue, "resolution": step, "series": points, "stats": found})
        return
    show(now_and_totals(found))
    for title, part in (
        ("by tier", tier_table(found)),
        ("by task", name_table(found)),
        ("errors", error_table(found)),
        (f"over time, {format_duration(step)} a line", series_table(points, step)),
    ):
        if part.row_count:
            say(Text(f"\n{title}", style="bold"))
            show(part)


def few_points(span: timedelta) -> float:
    """The resolution that shows a span of time in a few lines."""
    return next((step for step in STEPS if span.total_seconds() <= FEW_POINTS * step), STEPS[-1])


def now_and_totals(found: QueueStats) -> Table:
    tasks = ", ".join(f"{n:,} {state}" for state, n in found.counts.items() if n) or "none"
    facts = facts_table([("queue", found.queue or "all"), ("tasks", tasks)])
    facts.add_row("oldest pending", format_duration(found.oldest_pending_seconds))
    facts.add_row("workers", f"{found.workers_active} active")
    totals = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in found.counters.items() if n)
    facts.add_row("totals", totals or "nothing has happened yet")
    return facts


def tier_table(found: QueueStats) -> Listing:
    """Depth, age and totals of each tier that has seen a task."""
    columns = [*FIGURES, "OLDEST", "WAIT P95"]
    made = table("TIER", *columns, right=columns, leave=["RUNNING", "ENQUEUED", "OLDEST"])
    for tier in reversed(Tier):
        if found.by_tier[tier]:
            waited, wait = found.oldest_by_tier[tier], found.wait_by_tier[tier]
            made.add_row(tier, *figures(found.by_tier[tier]), format_duration(waited), format_duration(wait.p95))
    return made


def name_table(found: QueueStats) -> Listing:
    """The tasks that were enqueued most often."""
    names = sorted(found.by_name, key=lambda name: (-found.by_name[name].get(Counter.ENQUEUED, 0), name))
    made = table("TASK", *FIGURES, right=FIGURES, short={"TASK": 22}, leave=["RUNNING", "ENQUEUED"])
    for name in names[:NAMES]:
        made.add_row(name, *figures(found.by_name[name]))
    if len(names) > NAMES:
        made.add_row(f"and {len(names) - NAMES:,} more")
    return made


def figures(of: dict[str, int]) -> list[Text]:
    return [number(sum(of.get(name, 0) for name in names)) for names in FIGURES.values()]


def error_table(found: QueueStats) -> Listing:
    made = table("TYPE", "FAILED ATTEMPTS", right=["FAILED ATTEMPTS"], short={"TYPE": 20})
    for kind, n in list(found.errors.items())[:NAMES]:
        made.add_row(kind, number(n))
    return made


def series_table(points: list[Point], step: float) -> Listing:
    columns = ("COMPLETED", "RATE", "FAILED", "DEAD", "CANCELLED", "WAIT P95", "RUN P95")
    made = table("FROM", *columns, right=columns, leave=["CANCELLED", "RATE"])
    for point in points:
        made.add_row(
            f"{point.at.astimezone():%m-%d %H:%M}",
            number(point.completed),
            format_rate(point.completed / step),
            number(point.failed),
            number(point.dead),
            number(point.cancelled),
            p95(point.wait),
            p95(point.run),
        )
    return made


def p95(values: Percentiles) -> str:
    return format_duration(values.p95)
