"""The picture that `dibs simulate --svg` draws: waits as dots on a logarithmic scale, and the course of the backlog.

It has its own background, light or dark like the reader's system.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import log10

from dibs.core.humanize import format_duration
from dibs.simulation.cases import Outcome, busiest, slots_text
from dibs.simulation.measure import Report, Waits

__all__ = ["picture"]

WIDTH = 760
LEFT, RIGHT = 150, 40
ROW, HEADING, GAP = 24, 30, 26
BACKLOG = 110
TOP = 78
MOST_TENANTS = 10
NAMES = {
    0.001: "≤ 1 ms",
    0.01: "10 ms",
    0.1: "100 ms",
    1: "1 s",
    10: "10 s",
    60: "1 min",
    600: "10 min",
    3600: "1 h",
    36_000: "10 h",
    86_400: "1 day",
    864_000: "10 days",
}
TICKS = tuple(NAMES)
"""Seconds that the scale of waits names; waits beyond its ends are drawn there."""

DOTS = (("p50", "P50"), ("p95", "P95"), ("p99", "P99"))

STYLE = """
  .back { fill: #ffffff } text { fill: #24292f; font: 13px system-ui, sans-serif }
  .title { font-size: 16px; font-weight: 600 } .heading { font-weight: 600 } .small { font-size: 11px; fill: #57606a }
  .grid { stroke: #d0d7de } .span { stroke: #8c959f; stroke-width: 3 } .end { text-anchor: end }
  .middle { text-anchor: middle } .p50 { fill: #1a7f64 } .p95 { fill: #c77700 } .p99 { fill: #cf3a4b }
  .area { fill: #5b8def; fill-opacity: 0.35; stroke: #3b6fd4 }
  @media (prefers-color-scheme: dark) {
    .back { fill: #15191f } text { fill: #e6edf3 } .small { fill: #9da7b3 } .grid { stroke: #363d47 }
    .p50 { fill: #3fb893 } .p95 { fill: #e3a33c } .p99 { fill: #f0707d } .area { stroke: #7ba6f7 }
  }"""

Group = tuple[str, list[tuple[str, Waits]]]
"""A heading and its rows."""


def picture(outcomes: Sequence[Outcome]) -> str:
    """The whole file."""
    one = outcomes[0]
    groups = groups_of_one(one.report) if len(outcomes) == 1 else [group_of(outcome) for outcome in outcomes]
    title = f"{one.report.tasks:,} tasks"
    title += f", {slots_text(one.case)}" if len(outcomes) == 1 else f", {len(outcomes)} ways to run them"
    chart_height = sum(HEADING + ROW * len(rows) for _, rows in groups)
    height = TOP + chart_height + GAP
    body = list(waits_chart(groups, TOP, chart_height))
    if len(outcomes) == 1:
        body += backlog_chart(one.report, height + GAP)
        height += GAP + HEADING + BACKLOG + GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}\n</style>",
        f'<rect class="back" width="{WIDTH}" height="{height}"/>',
        text(20, 30, title, "title"),
        text(20, 54, "Wait from ready to start", "small"),
        *legend(),
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def groups_of_one(report: Report) -> list[Group]:
    groups: list[Group] = [("by priority", [*report.by_priority.items(), ("all", report.wait)])]
    if report.by_tenant:
        shown = list(report.by_tenant.items())[:MOST_TENANTS]
        groups.append(("by tenant", [(tenant or "(none)", waits) for tenant, waits in shown]))
    return groups


def group_of(outcome: Outcome) -> Group:
    report = outcome.report
    heading = f"{outcome.case.label}: {report.utilisation:.0%} utilised"
    return heading, [(who, report.by_priority[who]) for who in busiest(report)]


def text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def legend() -> Iterator[str]:
    for number, (kind, name) in enumerate(DOTS):
        x = WIDTH - RIGHT - 150 + 54 * number
        yield f'<circle cx="{x}" cy="50" r="5" class="{kind}"/>'
        yield text(x + 9, 54, name, "small")


def waits_chart(groups: Sequence[Group], top: float, height: float) -> Iterator[str]:
    """A row per name: a dot for each percentile, joined by a line."""
    ticks = scale_of(groups)
    for seconds in ticks:
        x = place(seconds, ticks)
        yield line(x, top, x, top + height, "grid")
        yield text(x, top + height + 16, NAMES[seconds], "small middle")
    y = top
    for heading, rows in groups:
        y += HEADING
        yield text(20, y - 9, heading, "heading")
        for who, waits in rows:
            y += ROW
            yield from row(who, waits, ticks, y - ROW / 2)


def row(who: str, waits: Waits, ticks: Sequence[float], y: float) -> Iterator[str]:
    yield text(LEFT - 14, y + 4, who if len(who) <= 18 else f"{who[:17]}…", "end")
    yield line(place(waits.p50, ticks), y, place(waits.p99, ticks), y, "span")
    for kind, name in reversed(DOTS):  # where dots meet, the smaller wait is on top
        wait = getattr(waits, kind)
        title = f"<title>{escape(who)}: {name} {format_duration(wait)}</title>"
        yield f'<circle cx="{place(wait, ticks):.1f}" cy="{y:.1f}" r="5" class="{kind}">{title}</circle>'


def scale_of(groups: Sequence[Group]) -> Sequence[float]:
    """The ticks between which all waits lie, at least two."""
    waits = [waits for _, rows in groups for _, waits in rows]
    low = min((each.p50 for each in waits), default=0.0)
    high = max((each.p99 for each in waits), default=0.0)
    first = max((number for number, tick in enumerate(TICKS) if tick <= low), default=0)
    last = next((number for number, tick in enumerate(TICKS) if tick >= high), len(TICKS) - 1)
    first = min(first, len(TICKS) - 2)
    return TICKS[first : max(last, first + 1) + 1]


def place(seconds: float, ticks: Sequence[float]) -> float:
    """Where a wait lies on the logarithmic scale."""
    inside = min(max(seconds, ticks[0]), ticks[-1])
    return LEFT + (WIDTH - LEFT - RIGHT) * log10(inside / ticks[0]) / log10(ticks[-1] / ticks[0])


def backlog_chart(report: Report, top: float) -> Iterator[str]:
    """How many waited, over time."""
    highest = max(1, *report.backlog)
    floor = top + HEADING + BACKLOG
    width = WIDTH - LEFT - RIGHT
    yield text(20, top + HEADING - 16, "waiting tasks", "heading")
    for part in (0.0, 0.5, 1.0):
        y = floor - BACKLOG * part
        yield line(LEFT, y, WIDTH - RIGHT, y, "grid")
        yield text(LEFT - 14, y + 4, f"{highest * part:,.0f}" if part != 0.5 or highest > 1 else "", "small end")
        yield text(
            LEFT + width * part, floor + 16, format_duration(report.seconds * part) if part else "0", "small middle"
        )
    steps = len(report.backlog) - 1
    points = [
        f"{LEFT + width * step / steps:.1f},{floor - BACKLOG * count / highest:.1f}"
        for step, count in enumerate(report.backlog)
    ]
    yield f'<polygon class="area" points="{LEFT},{floor} {" ".join(points)} {WIDTH - RIGHT},{floor}"/>'
