"""Made-up and recorded arrivals are what they say they are."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from statistics import fmean

import pytest

from dibs.core.settings import FALLBACK
from dibs.core.states import State
from dibs.core.task import TaskRecord, TaskSpec, with_spec
from dibs.core.times import HOUR, MINUTE, MS, SECOND
from dibs.simulation.arrivals import recorded, squeezed
from dibs.simulation.synthetic import Durations, Pattern, Plan, synthetic


def test_the_same_plan_gives_the_same_arrivals() -> None:
    plan = Plan(tasks=500, rate=3, mix={30: 1, 90: 2}, tenants=3, names={"a": 1, "b": 1}, partitions=2)
    assert synthetic(plan) == synthetic(plan)


def test_each_fact_has_randomness_of_its_own() -> None:
    one = synthetic(Plan(tasks=500, rate=3, mix={30: 1, 90: 2}))
    other = synthetic(Plan(tasks=500, rate=3, mix={50: 1}, tenants=5, seed=0))
    assert (one.ready, one.duration) == (other.ready, other.duration)
    assert one.ready != synthetic(Plan(tasks=500, rate=3, seed=1)).ready


@pytest.mark.parametrize("pattern", Pattern)
def test_on_average_the_rate_is_the_one_asked_for(pattern: Pattern) -> None:
    arrivals = synthetic(Plan(tasks=60_000, rate=100, pattern=pattern, period=30 * SECOND))
    assert arrivals.ready == sorted(arrivals.ready)
    assert arrivals.ends / SECOND == pytest.approx(600, rel=0.03)


def test_a_steady_stream_is_a_poisson_process() -> None:
    ready = synthetic(Plan(tasks=100_000, rate=50)).ready
    gaps = [after - before for before, after in pairwise(ready)]
    assert fmean(gaps) == pytest.approx(20 * MS, rel=0.02)
    assert sum(gap > 60 * MS for gap in gaps) / len(gaps) == pytest.approx(0.0498, rel=0.05)  # e⁻³


def test_bursts() -> None:
    ready = synthetic(Plan(tasks=50_000, rate=100, pattern=Pattern.BURST, period=MINUTE)).ready
    in_burst = sum(at % MINUTE < 6 * SECOND for at in ready)
    assert in_burst / len(ready) == pytest.approx(0.8, abs=0.03)


def test_days() -> None:
    ready = synthetic(Plan(tasks=50_000, rate=1, pattern=Pattern.DAILY)).ready
    hours = Counter(at // HOUR for at in ready if at < 12 * HOUR)
    assert hours[11] / hours[0] == pytest.approx(9, rel=0.2)


def test_mix_tenants_and_names() -> None:
    plan = Plan(tasks=60_000, rate=1, mix={30: 3, 90: 1}, tenants=3, skew=1, names={"a": 9, "b": 1}, partitions=4)
    arrivals = synthetic(plan)
    count = len(arrivals)
    assert Counter(arrivals.priority)[30] / count == pytest.approx(0.75, abs=0.01)
    assert Counter(arrivals.name)["b"] / count == pytest.approx(0.1, abs=0.01)
    assert Counter(arrivals.tenant)["tenant-1"] / count == pytest.approx(6 / 11, abs=0.01)
    assert Counter(arrivals.tenant)["tenant-3"] / count == pytest.approx(2 / 11, abs=0.01)
    assert sorted(set(arrivals.partition), key=str) == [f"partition-{number}" for number in range(1, 5)]


@pytest.mark.parametrize("durations", Durations)
def test_durations_have_their_mean(durations: Durations) -> None:
    spans = synthetic(Plan(tasks=100_000, rate=1, duration=700 * MS, durations=durations)).duration
    assert min(spans) >= 1
    assert fmean(spans) == pytest.approx(700 * MS, rel=0.02)


def record(number: int, **facts: object) -> TaskRecord:
    plain: dict[str, object] = {
        "id": f"{number:03}",
        "queue": "mail",
        "name": "send",
        "args": b"{}",
        "spec": TaskSpec(),
        "state": State.COMPLETED,
        "options": FALLBACK,
        "created_at": 10 * number,
        "ready_at": 10 * number,
        "started_at": 10 * number + 3,
        "finished_at": 10 * number + 5,
    }
    said = {name: facts.pop(name) for name in TaskSpec.__struct_fields__ if name in facts}
    return with_spec(TaskRecord(**{**plain, **facts}), **said)  # type: ignore[arg-type]


def test_recorded_arrivals() -> None:
    late = record(2, ready_at=95, started_at=100, finished_at=107, tenant="acme", partition="p", deadline=200)
    found = recorded([late, record(1, inherited=80, attempts=1), record(3, started_at=None, finished_at=40)])
    assert (found.waits, found.retried) == ([5, 3], 1)
    arrivals = found.arrivals
    assert (arrivals.created, arrivals.ready) == ([10, 20], [10, 95])
    assert (arrivals.duration, arrivals.priority) == ([2, 7], [80, 50])
    assert (arrivals.tenant, arrivals.partition) == (["", "acme"], [None, "p"])
    assert (arrivals.name, arrivals.deadline) == (["send", "send"], [None, 200])
    assert arrivals.in_order() == [0, 1]


def test_nothing_recorded() -> None:
    assert len(recorded([]).arrivals) == 0


def test_recorded_arrivals_come_faster() -> None:
    arrivals = recorded([record(1), record(2), record(5, ready_at=60, deadline=75)]).arrivals
    faster = squeezed(arrivals, 2)
    assert (faster.created, faster.ready) == ([10, 15, 30], [10, 15, 35])
    assert faster.deadline == [None, None, 50]
    assert faster.duration == arrivals.duration


@pytest.mark.parametrize("pattern", Pattern)
def test_a_period_much_shorter_than_the_gaps_costs_nothing(pattern: Pattern) -> None:
    arrivals = synthetic(Plan(tasks=1000, rate=1e-6, pattern=pattern, period=1))
    assert len(arrivals) == 1000
    assert 0.8e9 < arrivals.ends / SECOND < 1.2e9
