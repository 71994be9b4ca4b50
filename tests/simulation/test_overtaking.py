"""What is measured about overtaking is right, and no run breaks a promise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reality import arrivals_of

from dibs.core.settings import QueueSettings, change_settings
from dibs.core.times import SECOND
from dibs.simulation import Run, simulate
from dibs.simulation.overtaking import overtakings, turns
from dibs.simulation.synthetic import Pattern, Plan, synthetic

POLICIES: dict[str, dict[str, Any]] = {
    "ageing": {"aging": 1},
    "capped ageing": {"aging": 1, "max_aging_bonus": 5},
    "tiers": {"policy": "tiers", "promote_low": 2, "promote_medium": 5},
    "strict": {"policy": "strict"},
}


def plan(**facts: Any) -> Plan:
    return Plan(**{"tasks": 2000, "rate": 12, "mix": {28: 4, 30: 4, 50: 3, 70: 1, 90: 1, 100: 1}, **facts})


def by_comparing_all(run: Run) -> dict[tuple[int, int], float]:
    """The worst by pair of priorities, the slow way."""
    worst: dict[tuple[int, int], float] = {}
    ready, priority = run.arrivals.ready, run.arrivals.priority
    for place, task in enumerate(run.order):
        for earlier in run.order[:place]:
            late_by = (ready[earlier] - ready[task]) / SECOND
            pair = priority[task], priority[earlier]
            if late_by > worst.get(pair, 0):
                worst[pair] = late_by
    return worst


@pytest.mark.parametrize("chosen", POLICIES.values(), ids=list(POLICIES))
def test_one_pass_finds_what_comparing_all_finds(chosen: dict[str, Any]) -> None:
    run = simulate(synthetic(plan(tasks=400)), change_settings(QueueSettings(), chosen), 8)
    found = {(each.priority, each.by): each.worst_seconds for each in overtakings(run)}
    assert found == by_comparing_all(run)
    assert found


@pytest.mark.parametrize("chosen", POLICIES.values(), ids=list(POLICIES))
@pytest.mark.parametrize("fair", [False, True])
@pytest.mark.parametrize(
    "limits", [{}, {"per_task": {"send": 3}, "per_partition": {"rate": 3}}], ids=["free", "limited"]
)
def test_no_run_goes_beyond_the_bound(chosen: dict[str, Any], fair: bool, limits: dict[str, Any]) -> None:
    shape = plan(pattern=Pattern.BURST, period=30 * SECOND, tenants=4, partitions=5, names={"send": 1, "other": 1})
    run = simulate(synthetic(shape), change_settings(QueueSettings(), {**chosen, **limits, "fair": fair}), 10)
    found = overtakings(run)
    assert found
    for each in found:
        assert each.bound_seconds is None or each.worst_seconds <= each.bound_seconds, each


def test_the_bound_is_reached() -> None:
    """A low task, and critical ones that keep coming: they go first for exactly as long as they may."""
    ready = [0, 1, *(SECOND * second for second in range(1, 100))]
    arrivals = arrivals_of(ready, [70, 30, *[90] * 99], [SECOND] * 101)
    run = simulate(arrivals, change_settings(QueueSettings(), {"aging": 1}), 1)
    (found,) = [each for each in overtakings(run) if (each.priority, each.by) == (30, 90)]
    assert (found.worst_seconds, found.bound_seconds) == (pytest.approx(60, abs=1e-4), 60)


def test_deadlines_widen_the_bound() -> None:
    settings = change_settings(QueueSettings(), {"aging": 1, "deadline_horizon": 6, "deadline_weight": 10})
    ready = [0, 1, *(SECOND * second for second in range(1, 30))]
    due = [None, None, *(SECOND * second for second in range(1, 30))]
    arrivals = arrivals_of(ready, [50] * 31, [SECOND] * 31, deadline=due)
    found = overtakings(simulate(arrivals, settings, 1))[0]
    assert 0 < found.worst_seconds <= 10 == found.bound_seconds


def test_what_a_limit_holds_back_is_not_called_overtaken() -> None:
    arrivals = arrivals_of([0, 1, 2, 3], name=["send", "send", "other", "other"])
    settings = change_settings(QueueSettings(), {"per_task": {"send": 1}})
    run = simulate(arrivals, settings, 10)
    assert run.order == [0, 2, 3, 1]
    assert overtakings(run) == []


def test_turns_of_tenants() -> None:
    """Forty tasks of one tenant were there first; the other's two go in turn with them."""
    arrivals = arrivals_of([0] * 40 + [1, 1], tenant=["crowd"] * 40 + ["pair"] * 2)
    run = simulate(arrivals, change_settings(QueueSettings(), {"fair": True}), 1)
    assert run.order[:5] == [0, 40, 1, 41, 2]
    pair = next(turn for turn in turns(run) if turn.tenant == "pair")
    assert (pair.most_before, pair.bound) == (1, 2)


@settings(max_examples=150, deadline=None)
@given(
    weights=st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from([0.25, 0.5, 2, 3, 5])),
    tasks=st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abcd")), min_size=10, max_size=80),
    slots=st.integers(1, 4),
)
def test_no_tenant_waits_longer_for_its_turn_than_promised(
    weights: dict[str, float], tasks: list[tuple[int, str]], slots: int
) -> None:
    arrivals = arrivals_of(
        [SECOND * at for at, _ in tasks], tenant=[who for _, who in tasks], duration=[3 * SECOND] * len(tasks)
    )
    run = simulate(arrivals, change_settings(QueueSettings(), {"fair": True, "weights": weights}), slots)
    for turn in turns(run):
        assert turn.bound is not None
        assert turn.most_before <= turn.bound


def test_limits_take_the_bound_of_turns_away() -> None:
    arrivals = arrivals_of([0, 1, 2], tenant=["a", "b", "a"])
    run = simulate(arrivals, change_settings(QueueSettings(), {"fair": True, "per_partition": 1}), 1)
    assert [turn.bound for turn in turns(run)] == [None, None]
