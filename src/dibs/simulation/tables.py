"""A simulation on a terminal: tables with bars for one run, a line per run for a sweep, and advice."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from dibs.core.humanize import format_duration
from dibs.core.times import SECOND
from dibs.simulation.cases import Outcome, Source, busiest, recommendation, slots_text
from dibs.simulation.measure import Report, Waits, label
from dibs.simulation.overtaking import Overtaking
from dibs.simulation.targets import Target, Verdict
from dibs.terminal import Listing, say, share, show, table

__all__ = ["show_outcomes"]

BAR = 32
SHADES = (("p50", "█", "green"), ("p95", "▓", "yellow"), ("p99", "░", "red"))
TICKS = " ▁▂▃▄▅▆▇█"
MOST_TENANTS = 10
MOST_PAIRS = 10
BARS = "WAIT: █ P50 ▓ P95 ░ P99"
FIGURES = ("P50", "P90", "P95", "P99", "MAX")


def show_outcomes(source: Source, outcomes: Sequence[Outcome], settings: str) -> None:
    """Everything for people; `settings` are those of the only case, in words."""
    arrivals = source.arrivals
    while_arriving = format_duration((arrivals.ends - arrivals.begins) / SECOND)
    say(Text(f"{len(arrivals):,} tasks within {while_arriving}", style="bold").append(f" ({source.text})", "default"))
    if source.recorded_wait is not None:
        say(f"They really waited: {waits_text(source.recorded_wait)}.")
    say("")
    if len(outcomes) == 1:
        show_one(outcomes[0], settings)
    else:
        show_sweep(outcomes)


def waits_text(waits: Waits) -> str:
    parts = {"P50": waits.p50, "P95": waits.p95, "P99": waits.p99, "at most": waits.max}
    return ", ".join(f"{name} {format_duration(seconds)}" for name, seconds in parts.items())


def show_one(outcome: Outcome, settings: str) -> None:
    case, report = outcome.case, outcome.report
    say(f"{slots_text(case)}; settings: {settings}")
    say(
        f"utilisation {report.utilisation:.0%} ({report.slots_needed:.1f} slots needed on average), backlog at most "
        f"{report.peak:,}, drained {format_duration(report.drain_seconds)} after the last arrival"
    )
    if report.refused:
        say(f"{report.refused:,} tasks refused: the queue was full (max_depth)")
    say("")
    show(waits_table("PRIORITY", {**report.by_priority, "all": report.wait}))
    if report.by_tenant:
        say("")
        show(waits_table("TENANT", dict(list(report.by_tenant.items())[:MOST_TENANTS])))
        if len(report.by_tenant) > MOST_TENANTS:
            say(f"… and {len(report.by_tenant) - MOST_TENANTS:,} tenants with fewer tasks")
    show_promises(report)
    say(f"\nbacklog  {sparkline(report.backlog)}  0 to {report.peak:,} over {format_duration(report.seconds)}")
    if outcome.verdicts:
        say("")
        for verdict in outcome.verdicts:
            say(verdict_text(verdict))


def waits_table(what: str, rows: dict[str, Waits]) -> Listing:
    numbers = ["TASKS", *FIGURES]
    made = table(what, *numbers, BARS, right=numbers, short={what: 12}, leave=[BARS, "P90"])
    longest = max((waits.p99 for waits in rows.values()), default=0.0)
    for who, waits in rows.items():
        figures = [format_duration(getattr(waits, name.lower())) for name in FIGURES]
        made.add_row(who or "(none)", f"{waits.tasks:,}", *figures, bar(waits, longest))
    return made


def bar(waits: Waits, longest: float) -> Text:
    """Three lengths in one bar, relative to the longest of the table."""
    made = Text()
    for name, character, colour in SHADES:
        length = round(BAR * getattr(waits, name) / longest) if longest else 0
        made.append(character * (length - len(made)), colour)
    return made


def sparkline(values: Sequence[int]) -> str:
    """A column of eight steps for each value; only zero is blank."""
    highest = max(values, default=0)
    return "".join(TICKS[-(-value * 8 // highest)] if highest else TICKS[0] for value in values)


def show_promises(report: Report) -> None:
    """The worst cases, beside their bounds."""
    if report.overtaking:
        say("")
        made = table("OVERTAKEN", "BY", "FOR AT MOST", "BOUND", right=["FOR AT MOST", "BOUND"])
        for each in report.overtaking[:MOST_PAIRS]:
            made.add_row(label(each.priority), label(each.by), format_duration(each.worst_seconds), bound_text(each))
        show(made)
    if report.turns:
        say("")
        made = table(
            "TENANT", "STARTS OF OTHERS BEFORE ITS TURN", "BOUND", right=["STARTS OF OTHERS BEFORE ITS TURN", "BOUND"]
        )
        for turn in report.turns[:MOST_TENANTS]:
            bound = "none" if turn.bound is None else f"{turn.bound:,}"
            made.add_row(turn.tenant or "(none)", f"at most {turn.most_before:,}", bound)
        show(made)


def bound_text(overtaking: Overtaking | None) -> str:
    if overtaking is None:
        return "–"
    return "none" if overtaking.bound_seconds is None else format_duration(overtaking.bound_seconds)


def verdict_text(verdict: Verdict) -> Text:
    mark = Text("met     ", "green") if verdict.met else Text("MISSED  ", "bold red")
    return mark.append(f"{measured_text(verdict)} (target {format_duration(verdict.target.seconds)})", "default")


def measured_text(verdict: Verdict) -> str:
    if verdict.seconds is None:
        return f"no task of {verdict.target.who} ran"
    return f"{wait_text(verdict.target)} is {format_duration(verdict.seconds)}"


def wait_text(target: Target) -> str:
    part = "longest wait" if target.part == "max" else f"{target.part.upper()} wait"
    return f"the {part} of {'all tasks' if target.who == 'all' else target.who}"


def show_sweep(outcomes: Sequence[Outcome]) -> None:
    """One row per case, then what to choose."""
    shown = busiest(outcomes[0].report)
    waits = [f"P95 {who}" for who in shown]
    columns = ["SLOTS", "UTILISED", "DRAIN", "BACKLOG", *waits, "OVERTAKEN", "BOUND"]
    has_targets = bool(outcomes[0].verdicts)
    made = table("CASE", *columns, *["TARGETS"] * has_targets, right=columns, leave=["SLOTS", *reversed(columns[1:])])
    for outcome in outcomes:
        made.add_row(*sweep_row(outcome, shown), *([met_text(outcome)] if has_targets else []))
    show(made)
    if has_targets:
        say("")
        say(advice(outcomes))


def sweep_row(outcome: Outcome, shown: Sequence[str]) -> list[str]:
    report = outcome.report
    worst = report.overtaking[0] if report.overtaking else None
    return [
        outcome.case.label,
        f"{outcome.case.slots:,}",
        share(report.utilisation, 1),
        format_duration(report.drain_seconds),
        f"{report.peak:,}",
        *(format_duration(report.by_priority[who].p95) if who in report.by_priority else "–" for who in shown),
        "–" if worst is None else format_duration(worst.worst_seconds),
        bound_text(worst),
    ]


def met_text(outcome: Outcome) -> Text:
    missed = sum(not verdict.met for verdict in outcome.verdicts)
    return Text("met", "green") if not missed else Text(f"{missed} missed" if missed > 1 else "missed", "red")


def advice(outcomes: Sequence[Outcome]) -> str:
    """Which case to choose, and why not the one before it."""
    best = recommendation(outcomes)
    if best is None:
        last = outcomes[-1]
        missed = next(verdict for verdict in last.verdicts if not verdict.met)
        target = format_duration(missed.target.seconds)
        return f"None meets every target: with {last.case.label} {measured_text(missed)} (target {target})."
    chosen = outcomes[best]
    text = f"{chosen.case.label} is the first to meet every target: "
    text += ", ".join(
        f"{measured_text(each)} (target {format_duration(each.target.seconds)})" for each in chosen.verdicts
    )
    if best:
        before = outcomes[best - 1]
        missed = next(verdict for verdict in before.verdicts if not verdict.met)
        text += f". With {before.case.label} {measured_text(missed)}"
    return f"{text}."
