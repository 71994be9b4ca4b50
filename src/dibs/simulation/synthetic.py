"""Made-up arrivals: a rate, a pattern over time, a mix of priorities, tenants and names, and durations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import accumulate
from math import cos, log, pi
from random import Random
from typing import TypeVar

from msgspec import Struct, field

from dibs.core.times import DAY, MINUTE, SECOND, Duration, Instant
from dibs.simulation.arrivals import Arrivals

__all__ = ["Durations", "Pattern", "Plan", "synthetic"]


class Pattern(StrEnum):
    """How the rate changes over a period; on average it is the rate asked for."""

    STEADY = "steady"
    BURST = "burst"
    DAILY = "daily"


class Durations(StrEnum):
    """How durations spread around their mean."""

    EXPONENTIAL = "exponential"
    LOGNORMAL = "lognormal"
    CONSTANT = "constant"


PERIODS = {Pattern.STEADY: DAY, Pattern.BURST: 10 * MINUTE, Pattern.DAILY: DAY}
SIGMA = 1.0
"""The spread of lognormal durations: the slowest of a hundred takes ten times as long as the median."""


class Plan(Struct, frozen=True, kw_only=True):
    """What to make up. `mix` and `names` are relative weights; tenant k is 1/k^`skew` as busy as the first."""

    tasks: int
    rate: float
    pattern: Pattern = Pattern.STEADY
    period: Duration | None = None
    mix: Mapping[int, float] = field(default_factory=lambda: {50: 1.0})
    names: Mapping[str, float] = field(default_factory=lambda: {"work": 1.0})
    tenants: int = 0
    skew: float = 1.0
    partitions: int = 0
    duration: Duration = SECOND
    durations: Durations = Durations.EXPONENTIAL
    seed: int = 0

    @property
    def cycle(self) -> Duration:
        """How long a period of its pattern is."""
        return PERIODS[self.pattern] if self.period is None else self.period


def synthetic(plan: Plan) -> Arrivals:
    """The arrivals of a plan; the same plan gives the same ones.

    Each fact has its own source of randomness: another mix of priorities does not change the instants.
    """
    count = plan.tasks

    def source(fact: str) -> Random:
        return Random(f"{plan.seed} {fact}")

    ready = instants(source("instants"), plan)
    tenants = {f"tenant-{k}": k**-plan.skew for k in range(1, plan.tenants + 1)} or {"": 1.0}
    partitions: dict[str | None, float] = {f"partition-{k}": 1.0 for k in range(1, plan.partitions + 1)}
    return Arrivals(
        created=ready,
        ready=ready,
        priority=drawn(source("priorities"), plan.mix, count),
        duration=spans(source("durations"), plan.durations, plan.duration, count),
        tenant=drawn(source("tenants"), tenants, count),
        name=drawn(source("names"), plan.names, count),
        partition=drawn(source("partitions"), partitions or {None: 1.0}, count),
        deadline=[None] * count,
    )


def instants(random: Random, plan: Plan) -> list[Instant]:
    """A Poisson process whose rate is constant within each step of the pattern.

    The gaps are drawn in units of load, where the rate is 1, and then converted to time: so a task costs the same
    however short the period is.
    """
    begins, loads, factors = [0.0], [0.0], []
    for span, factor in steps(plan.pattern, plan.cycle / SECOND):
        begins.append(begins[-1] + span)
        loads.append(loads[-1] + span * factor)
        factors.append(factor)
    found: list[Instant] = []
    total = 0.0
    for _ in range(plan.tasks):
        total += random.expovariate(1.0)
        periods, load = divmod(total / plan.rate, loads[-1])
        step = min(bisect_right(loads, load), len(factors)) - 1
        found.append(round((periods * begins[-1] + begins[step] + (load - loads[step]) / factors[step]) * SECOND))
    return found


def steps(pattern: Pattern, period: float) -> Iterator[tuple[float, float]]:
    """Seconds, and the factor of the rate for that time."""
    if pattern is Pattern.STEADY:
        yield period, 1.0
    elif pattern is Pattern.BURST:  # four fifths of the tasks come in a tenth of the time
        yield 0.1 * period, 8.0
        yield 0.9 * period, 0.2 / 0.9
    else:  # a day in 24 steps: 0.2 of the mean at midnight, 1.8 at noon
        for hour in range(24):
            yield period / 24, 1 - 0.8 * cos(2 * pi * (hour + 0.5) / 24)


Fact = TypeVar("Fact")


def drawn(random: Random, weights: Mapping[Fact, float], count: int) -> list[Fact]:
    """`count` independent draws."""
    facts = list(weights)
    if len(facts) == 1:
        return facts * count
    return random.choices(facts, cum_weights=list(accumulate(weights.values())), k=count)


def spans(random: Random, durations: Durations, mean: Duration, count: int) -> list[Duration]:
    """Durations with that mean, at least a microsecond each."""
    if durations is Durations.CONSTANT:
        return [max(1, mean)] * count
    if durations is Durations.LOGNORMAL:
        middle = log(max(1, mean)) - SIGMA**2 / 2
        return [max(1, round(random.lognormvariate(middle, SIGMA))) for _ in range(count)]
    return [max(1, round(random.expovariate(1 / max(1, mean)))) for _ in range(count)]
