"""What to simulate (arrivals, settings, workers, in which cases), and which case to recommend."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, TypeVar

from msgspec import Struct

from dibs.core.humanize import format_duration
from dibs.core.options import as_number, check_name, check_number, check_real, shown
from dibs.core.priority import parse_priority
from dibs.core.settings import QueueSettings, change_settings
from dibs.core.task import TaskRecord
from dibs.core.times import DAY, SECOND, Duration, duration
from dibs.errors import InvalidOption
from dibs.simulation.arrivals import Arrivals, recorded, squeezed
from dibs.simulation.measure import Report, Waits, waits_of
from dibs.simulation.synthetic import Durations, Pattern, Plan, synthetic
from dibs.simulation.targets import Verdict

__all__ = [
    "MOST_TASKS",
    "Case",
    "Outcome",
    "Source",
    "busiest",
    "cases_of",
    "made_up",
    "recommendation",
    "recorded_source",
    "slots_text",
]

MOST_TASKS = 10_000_000
MOST_CASES = 100
MOST_COLUMNS = 5
RANGE = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})")

Key = TypeVar("Key")
SettingValue = Callable[[str, str], Any]
"""A setting's value from its name and text."""


class Source(Struct, frozen=True):
    """Arrivals, where they come from, and if they are recorded how long they really waited."""

    arrivals: Arrivals
    text: str
    recorded_wait: Waits | None = None


class Case(Struct, frozen=True):
    """One run to simulate; `label` names how it differs from the others."""

    label: str
    settings: QueueSettings
    workers: int
    concurrency: int

    @property
    def slots(self) -> int:
        return self.workers * self.concurrency


def made_up(given: Mapping[str, Any]) -> Source:
    """Arrivals from the options of the command line."""
    plan = Plan(
        tasks=check_number(given["tasks"], "--tasks", 1, MOST_TASKS),
        rate=check_real(given["rate"], "--rate", 1e-6, 1e6),
        pattern=Pattern(given["pattern"]),
        period=None if given["period"] is None else check_span(given["period"], "--period"),
        mix=weights(given["mix"], "--mix", lambda word: parse_priority(as_number(word))),
        names=weights(given["names"], "--names", lambda word: check_name(word, "a task's name")),
        tenants=check_number(given["tenants"], "--tenants", 0, 100_000),
        skew=check_real(given["skew"], "--skew", 0, 10),
        partitions=check_number(given["partitions"], "--partitions", 0, 1_000_000),
        duration=check_span(given["duration"], "--duration"),
        durations=Durations(given["durations"]),
        seed=given["seed"],
    )
    arrivals = synthetic(plan)
    text = f"made up, {plan.pattern}, {plan.rate:g} per second, seed {plan.seed}"
    if plan.pattern is not Pattern.STEADY and arrivals.ends < plan.cycle:
        cycle = format_duration(plan.cycle / SECOND)
        text += f"; less than one period of {cycle}: give more --tasks, or a shorter --period"
    return Source(arrivals, text)


def check_span(seconds: float, option: str) -> Duration:
    found = duration(seconds, option)
    if not 1 <= found <= 400 * DAY:
        raise InvalidOption(f"{option} must be more than 0 s and at most 400 days, not {seconds:g} s.")
    return found


def weights(text: str, option: str, read: Callable[[str], Key]) -> dict[Key, float]:
    """`low:60,normal:30`; a word without a number weighs 1."""
    found: dict[Key, float] = {}
    for part in text.split(","):
        word, colon, number = part.strip().rpartition(":")
        key = read(word if colon else number)
        found[key] = found.get(key, 0.0) + (weight(number, part, option) if colon else 1.0)
    return found


def weight(number: str, part: str, option: str) -> float:
    try:
        found = float(number)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e9:
        raise InvalidOption(f"{option}: in {shown(part)} the weight must be a number above 0, as in low:60,normal:30.")
    return found


def recorded_source(records: Iterable[TaskRecord], name: str, load: float) -> Source | None:
    """Arrivals that a queue has seen, `load` times as fast; None if it has completed nothing."""
    found = recorded(records)
    if not found.waits:
        return None
    text = f"recorded from queue {name!r}"
    text += f" at {load:g} times the speed" if load != 1 else ""
    text += f"; of {found.retried:,} tasks that failed before only the last run counts" if found.retried else ""
    arrivals = found.arrivals if load == 1 else squeezed(found.arrivals, load)
    return Source(arrivals, text, waits_of(found.waits))


def cases_of(
    settings: QueueSettings, workers: int, concurrency: int, sweeps: Mapping[str, str], setting_value: SettingValue
) -> list[Case]:
    """Every combination of the values swept over, in the given order; without a sweep, one case.

    `setting_value` reads the text of a setting.
    """
    axes = [[(name, value) for value in values_of(name, text)] for name, text in sweeps.items()]
    runs = prod(len(axis) for axis in axes)
    if runs > MOST_CASES:
        raise InvalidOption(f"that makes {runs:,} runs: sweep over at most {MOST_CASES}.")
    combinations = product(*axes)
    return [case_of(settings, workers, concurrency, combination, setting_value) for combination in combinations]


def values_of(name: str, text: str) -> Iterable[str]:
    """`2,4,8` or `1..8`, as texts."""
    for part in text.split(","):
        found = RANGE.fullmatch(part.strip())
        if found is None:
            yield part.strip()
        else:
            low, high = int(found[1]), int(found[2])
            if not low <= high < low + MOST_CASES:
                raise InvalidOption(f"--sweep {name}: {shown(part)} must go up, by less than {MOST_CASES}.")
            yield from map(str, range(low, high + 1))


def case_of(
    settings: QueueSettings,
    workers: int,
    concurrency: int,
    combination: Iterable[tuple[str, str]],
    setting_value: SettingValue,
) -> Case:
    counted: dict[str, int | str] = {"workers": workers, "concurrency": concurrency}
    changes: dict[str, Any] = {}
    label = []
    for name, text in combination:
        label.append(f"{name}={text}")
        if name in counted:
            counted[name] = as_number(text)
        else:
            changes[name] = setting_value(name, text)
    counts = [check_number(count, f"--{name}", 1, 10_000) for name, count in counted.items()]
    return Case(" ".join(label), change_settings(settings, changes), *counts)


class Outcome(Struct, frozen=True):
    """A case, what happened, and whether it was good enough."""

    case: Case
    report: Report
    verdicts: list[Verdict]

    @property
    def meets_all(self) -> bool:
        return all(verdict.met for verdict in self.verdicts)


def recommendation(outcomes: Sequence[Outcome]) -> int | None:
    """The number of the first case that meets all targets; None without targets."""
    good = (number for number, outcome in enumerate(outcomes) if outcome.verdicts and outcome.meets_all)
    return next(good, None)


def busiest(report: Report) -> list[str]:
    """The priorities that a sweep shows: those with the most tasks, the most urgent first."""
    most = sorted(report.by_priority, key=lambda who: -report.by_priority[who].tasks)[:MOST_COLUMNS]
    return [who for who in report.by_priority if who in most]


def slots_text(case: Case) -> str:
    workers = f"{case.workers:,} worker{'s' * (case.workers != 1)}"
    return f"{workers} × {case.concurrency:,} = {case.slots:,} slot{'s' * (case.slots != 1)}"
