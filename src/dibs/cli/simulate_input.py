"""What `dibs simulate` is asked: which arrivals, under which settings, with how many workers, in which cases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, product
from math import prod
from typing import Any, TypeVar

from msgspec import Struct, structs

from dibs.cli.options import priority_of
from dibs.cli.output import span
from dibs.cli.queue_settings import limit_changes, setting_value
from dibs.client.app import Dibs
from dibs.core.options import as_number, check_name, check_number, check_real, shown
from dibs.core.priority import parse_priority
from dibs.core.settings import QueueSettings, change_settings
from dibs.core.states import State
from dibs.core.task import TaskRecord
from dibs.core.times import DAY, SECOND, Duration, duration
from dibs.engines.values import Query
from dibs.errors import InvalidOption, Refused
from dibs.simulation.arrivals import Arrivals, recorded, squeezed
from dibs.simulation.measure import Waits, waits_of
from dibs.simulation.synthetic import Durations, Pattern, Plan, synthetic

__all__ = ["Case", "Source", "cases_of", "from_queue", "made_up", "settings_of"]

MOST_TASKS = 10_000_000
MOST_CASES = 100
PAGE = 1000
RANGE = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})")

Key = TypeVar("Key")


class Source(Struct, frozen=True):
    """Arrivals, where they come from, and how long they really waited if they are recorded."""

    arrivals: Arrivals
    text: str
    recorded_wait: Waits | None = None


class Case(Struct, frozen=True):
    """One run to simulate; `label` says in what it differs from the others."""

    label: str
    settings: QueueSettings
    workers: int
    concurrency: int

    @property
    def slots(self) -> int:
        return self.workers * self.concurrency


def made_up(given: Mapping[str, Any]) -> Source:
    """Arrivals by the options of the command line."""
    plan = Plan(
        tasks=check_number(given["tasks"], "--tasks", 1, MOST_TASKS),
        rate=check_real(given["rate"], "--rate", 1e-6, 1e6),
        pattern=Pattern(given["pattern"]),
        period=None if given["period"] is None else check_span(given["period"], "--period"),
        mix=weights(given["mix"], "--mix", lambda word: parse_priority(priority_of(word))),
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
        text += f"; less than one period of {span(plan.cycle / SECOND)}: give more --tasks, or a shorter --period"
    return Source(arrivals, text)


def check_span(seconds: float, option: str) -> Duration:
    found = duration(seconds, option)
    if not 1 <= found <= 400 * DAY:
        raise InvalidOption(f"{option} must be more than nothing and at most 400 days, not {seconds:g} s.")
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


def from_queue(app: Dibs, name: str, most: int, load: float) -> Source:
    """Arrivals that a queue has seen: its newest completed tasks, as many times as fast as `load` says."""
    check_number(most, "--tasks", 1, MOST_TASKS)
    check_real(load, "--load", 0.001, 1000)
    found = recorded(islice(completed(app, name), most))
    if not found.waits:
        raise Refused(f"queue {name!r} has no completed tasks to learn from (they are kept as long as `keep` says).")
    text = f"recorded from queue {name!r}"
    text += f" at {load:g} times the speed" if load != 1 else ""
    text += f"; of {found.retried:,} tasks that failed before only the last run counts" if found.retried else ""
    arrivals = found.arrivals if load == 1 else squeezed(found.arrivals, load)
    return Source(arrivals, text, waits_of(found.waits))


def completed(app: Dibs, name: str) -> Iterator[TaskRecord]:
    """The newest first."""
    query = Query(states=(State.COMPLETED,), queues=(name,), limit=PAGE)
    while True:
        page = app.hub.runner.run(app.hub.engine.search(query))
        yield from page.records
        if page.cursor is None:
            return
        query = structs.replace(query, cursor=page.cursor)


def settings_of(base: QueueSettings, changes: Mapping[str, str], given: Mapping[str, Any]) -> QueueSettings:
    """The settings as `dibs queues set` would make them."""
    wanted = {name: setting_value(name, text) for name, text in changes.items()}
    wanted |= limit_changes(base, given["per_task"], given["per_partition"], given["weight"])
    if given["fair"] is not None:
        wanted["fair"] = given["fair"]
    return change_settings(base, wanted)


def cases_of(settings: QueueSettings, workers: int, concurrency: int, sweeps: Mapping[str, str]) -> list[Case]:
    """Every combination of the values swept over, in the order given; without a sweep the one case there is."""
    axes = [[(name, value) for value in values_of(name, text)] for name, text in sweeps.items()]
    runs = prod(len(axis) for axis in axes)
    if runs > MOST_CASES:
        raise InvalidOption(f"that makes {runs:,} runs: sweep over at most {MOST_CASES}.")
    combinations = product(*axes)
    return [case_of(settings, workers, concurrency, combination) for combination in combinations]


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


def case_of(settings: QueueSettings, workers: int, concurrency: int, combination: Iterable[tuple[str, str]]) -> Case:
    crew: dict[str, int | str] = {"workers": workers, "concurrency": concurrency}
    changes: dict[str, Any] = {}
    label = []
    for name, text in combination:
        label.append(f"{name}={text}")
        if name in crew:
            crew[name] = as_number(text)
        else:
            changes[name] = setting_value(name, text)
    counts = [check_number(count, f"--{name}", 1, 10_000) for name, count in crew.items()]
    return Case(" ".join(label), change_settings(settings, changes), *counts)
