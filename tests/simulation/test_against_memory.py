"""The simulator starts the same tasks at the same microsecond, in the same order, as the memory engine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reality import START, arrivals_of, work_off

from dibs.core.settings import QueueSettings, change_settings
from dibs.core.times import MS, SECOND
from dibs.engines.memory import MemoryEngine
from dibs.simulation import Arrivals, simulate
from dibs.simulation.synthetic import Durations, Pattern, Plan, synthetic

SETTINGS: dict[str, dict[str, Any]] = {
    "ageing": {"aging": 1},
    "slow ageing": {},
    "capped ageing": {"aging": 0.2, "max_aging_bonus": 25},
    "tiers": {"policy": "tiers", "promote_low": 4, "promote_medium": 9},
    "strict": {"policy": "strict"},
    "at most three at once": {"max_concurrent": 3},
    "three starts a second": {"rate": 3, "burst": 2},
    "limits of names": {"per_task": {"send": 2, "report": {"rate": 1}}},
    "limits of partitions": {"per_partition": {"max_concurrent": 1, "rate": 4}},
    "limits of everything": {
        "max_concurrent": 6,
        "rate": 5,
        "per_task": {"send": 2},
        "per_partition": {"rate": 2, "max_concurrent": 2},
    },
    "fair shares": {"fair": True, "weights": {"tenant-1": 2, "tenant-3": 0.5}},
    "fair shares, capped ageing": {"fair": True, "aging": 0.2, "max_aging_bonus": 25},
    "fair shares and limits": {
        "fair": True,
        "policy": "tiers",
        "promote_low": 4,
        "promote_medium": 9,
        "per_task": {"send": 2},
        "per_partition": {"max_concurrent": 1},
    },
}


def same(arrivals: Arrivals, chosen: QueueSettings, slots: int) -> None:
    run = simulate(arrivals, chosen, slots)
    simulated = [(run.started[task], task) for task in run.order]
    assert simulated == asyncio.run(work_off(MemoryEngine(), arrivals, chosen, slots))


def moved(arrivals: Arrivals) -> Arrivals:
    """From the beginning of time into the present."""
    ready = [START + at for at in arrivals.ready]
    return Arrivals(
        created=ready,
        ready=ready,
        priority=arrivals.priority,
        duration=arrivals.duration,
        tenant=arrivals.tenant,
        name=arrivals.name,
        partition=arrivals.partition,
        deadline=arrivals.deadline,
    )


@pytest.mark.parametrize("chosen", SETTINGS.values(), ids=list(SETTINGS))
@pytest.mark.parametrize("pattern", [Pattern.STEADY, Pattern.BURST])
def test_a_busy_queue(chosen: dict[str, Any], pattern: Pattern) -> None:
    plan = Plan(
        tasks=300,
        rate=10,
        pattern=pattern,
        period=10 * SECOND,
        mix={30: 5, 50: 3, 70: 1, 90: 1},
        names={"send": 2, "report": 1, "other": 1},
        tenants=5,
        partitions=6,
        duration=600 * MS,
        durations=Durations.LOGNORMAL,
    )
    same(moved(synthetic(plan)), change_settings(QueueSettings(), chosen), 6)


TASKS = st.fixed_dictionaries(
    {
        "ready": st.integers(0, 12),
        "delay": st.sampled_from([0, 0, 0, 1, 5]),
        "priority": st.sampled_from([28, 30, 31, 50, 90, 100]),
        "duration": st.integers(0, 6),
        "tenant": st.sampled_from(["", "a", "b", "c"]),
        "name": st.sampled_from(["send", "report", "other"]),
        "partition": st.sampled_from([None, "x", "y"]),
        "deadline": st.sampled_from([None, None, 2, 9]),
    }
)
LIMIT = st.fixed_dictionaries(
    {},
    optional={"max_concurrent": st.integers(1, 2), "rate": st.sampled_from([1, 2, 4])},
).filter(bool)
CHOICES = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(["aging", "aging", "tiers", "strict"]),
        "aging": st.sampled_from([0.5, 1, 600]),
        "promote_low": st.integers(1, 3),
        "promote_medium": st.integers(3, 6),
    },
    optional={
        "max_aging_bonus": st.integers(0, 6),
        "deadline_horizon": st.just(6),
        "deadline_weight": st.integers(0, 12),
        "max_concurrent": st.integers(1, 3),
        "rate": st.sampled_from([1, 2]),
        "per_task": st.dictionaries(st.sampled_from(["send", "report"]), LIMIT, min_size=1),
        "per_partition": LIMIT,
        "fair": st.booleans(),
        "weights": st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from([0.5, 2, 3]), min_size=1),
    },
)


@settings(max_examples=300, deadline=None)
@given(tasks=st.lists(TASKS, max_size=30), chosen=CHOICES, slots=st.integers(1, 4))
def test_anything(tasks: list[dict[str, Any]], chosen: dict[str, Any], slots: int) -> None:
    arrivals = arrivals_of(
        [task["ready"] * SECOND for task in tasks],
        [task["priority"] for task in tasks],
        [task["duration"] * SECOND for task in tasks],
        delay=[task["delay"] * SECOND for task in tasks],
        tenant=[task["tenant"] for task in tasks],
        name=[task["name"] for task in tasks],
        partition=[task["partition"] for task in tasks],
        deadline=[None if task["deadline"] is None else task["deadline"] * SECOND for task in tasks],
    )
    same(arrivals, change_settings(QueueSettings(), chosen), slots)


@pytest.mark.parametrize("depth", [1, 3, 10])
def test_a_full_queue_refuses(depth: int) -> None:
    plan = Plan(tasks=200, rate=10, duration=SECOND)
    arrivals = moved(synthetic(plan))
    chosen = change_settings(QueueSettings(), {"max_depth": depth})
    same(arrivals, chosen, 5)
    assert 0 < len(simulate(arrivals, chosen, 5).order) < 200
