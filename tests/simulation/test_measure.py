"""Figures of runs that can be worked out by hand, or by theory; and targets."""

from __future__ import annotations

from statistics import fmean

import pytest
from reality import arrivals_of

from dibs.core.settings import QueueSettings, change_settings
from dibs.core.times import SECOND
from dibs.errors import InvalidOption
from dibs.simulation import measure, simulate
from dibs.simulation.measure import waits_of
from dibs.simulation.synthetic import Plan, synthetic
from dibs.simulation.targets import Target, judge, parse_target


def test_a_run_that_can_be_worked_out_by_hand() -> None:
    """Two slots; at 0 s four tasks of 2 s, at 3 s an urgent one, at 10 s the last."""
    at = [0, 0, 0, 0, 3 * SECOND, 10 * SECOND]
    arrivals = arrivals_of(at, [50, 50, 30, 30, 90, 50], [2 * SECOND] * 6, tenant=["a", "b", "a", "b", "a", "a"])
    report = measure(simulate(arrivals, QueueSettings(), 2))
    assert report.by_priority["low"].max == 2
    assert report.by_priority["critical"].max == 1
    assert report.by_priority["normal"].max == 0
    assert list(report.by_priority) == ["critical", "normal", "low"]
    assert {tenant: waits.tasks for tenant, waits in report.by_tenant.items()} == {"a": 4, "b": 2}
    assert (report.seconds, report.drain_seconds) == (12, 2)
    assert report.utilisation == 12 / 24
    assert report.slots_needed == 12 / 10
    assert report.backlog[:20] == [2] * 10 + [0] * 5 + [1] * 5
    assert (report.peak, report.refused) == (2, 0)


def test_refused_tasks_are_counted_and_wait_for_nothing() -> None:
    report = measure(simulate(arrivals_of([0] * 5), change_settings(QueueSettings(), {"max_depth": 2}), 1))
    assert (report.tasks, report.refused, report.wait.tasks) == (5, 3, 2)


def test_nothing_at_all() -> None:
    report = measure(simulate(arrivals_of([]), QueueSettings(), 1))
    assert (report.tasks, report.peak, report.wait.tasks, report.by_priority) == (0, 0, 0, {})


def test_percentiles() -> None:
    waits = waits_of(number * SECOND for number in range(1, 101))
    assert (waits.p50, waits.p90, waits.p95, waits.p99, waits.max) == (50, 90, 95, 99, 100)
    lone = waits_of([7 * SECOND])
    assert lone.p50 == lone.max == 7


@pytest.mark.parametrize(
    ("slots", "rate", "mean"),
    [(1, 0.5, 1.0), (1, 0.8, 4.0), (2, 1.6, 16 / 9)],  # M/M/1: ρ/(1−ρ); M/M/2: ρ²/(1−ρ²), with a mean duration of 1 s
)
def test_waits_are_those_of_queueing_theory(slots: int, rate: float, mean: float) -> None:
    run = simulate(synthetic(Plan(tasks=150_000, rate=rate)), QueueSettings(), slots)
    waits = [started - ready for started, ready in zip(run.started, run.arrivals.ready, strict=True)]
    assert fmean(waits) / SECOND == pytest.approx(mean, rel=0.05)


def test_targets() -> None:
    arrivals = arrivals_of([0, 0, 0], [50, 50, 90], tenant=["acme"] * 3)
    report = measure(simulate(arrivals, QueueSettings(), 1))

    def verdict(text: str) -> tuple[float | None, bool]:
        found = judge(parse_target(text, float), report)
        return found.seconds, found.met

    assert verdict("critical:p95<1") == (0, True)
    assert verdict("50:max<2") == (2, True)
    assert verdict("normal : MAX <= 1.5") == (2, False)
    assert verdict("all:p50<1") == (1, True)
    assert verdict("acme:p99<0.5") == (2, False)
    assert verdict("nobody:p50<100") == (None, False)


def test_a_target_is_known_by_the_name_that_reports_use() -> None:
    assert parse_target("medium:p95<3", float) == parse_target("50:p95<3", float) == Target("normal", "p95", 3)
    assert parse_target("31:p95<3", float).who == "31"


@pytest.mark.parametrize(
    ("text", "word"),
    [("critical<30", "who:p95<30s"), ("critical:p97<30", "'p97'"), ("critical:p95>30", "not a target")],
)
def test_what_is_no_target_is_refused(text: str, word: str) -> None:
    with pytest.raises(InvalidOption, match=word):
        parse_target(text, float)
