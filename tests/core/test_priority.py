"""Claim order: the stored rank is the order by effective priority, at every instant, and the bound is kept."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from dibs.core.priority import (
    CLIMBING,
    LEVEL,
    MOST_EFFECTIVE,
    STEPS,
    STRICT_SCALE,
    TIER_PRIORITY,
    Bound,
    Ranking,
    deadline_steps,
    effective,
    merge_key,
    overtaking,
    parse_priority,
    rank,
    scale,
    tiers_climbed,
)
from dibs.core.settings import DURATIONS, Policy, QueueSettings, Tier, tier_of
from dibs.core.times import DAY, HOUR, SECOND, Duration, Instant
from dibs.errors import InvalidOption

START: Instant = 1_760_000_000 * SECOND
EXACT = 2**53

priorities = st.integers(0, 100)
agings = st.integers(*DURATIONS["aging"])
short_agings = st.integers(1_000, HOUR)


@st.composite
def queue_settings(draw: st.DrawFn, aging: st.SearchStrategy[Duration] = short_agings) -> QueueSettings:
    promote_low = draw(st.integers(0, HOUR))
    return QueueSettings(
        policy=draw(st.sampled_from(Policy)),
        aging=draw(aging),
        max_aging_bonus=draw(st.none() | st.integers(0, 100)),
        retry_penalty=draw(st.integers(0, 100)),
        deadline_weight=draw(st.integers(0, 100)),
        deadline_horizon=draw(st.integers(6, 2 * DAY)),
        promote_low=promote_low,
        promote_medium=promote_low + draw(st.integers(0, HOUR)),
    )


class Waiting(Struct, frozen=True):
    """A task that waits."""

    priority: int
    ready_at: Instant
    attempts: int = 0
    deadline: Instant | None = None

    def ranking(self, queue: QueueSettings, now: Instant) -> Ranking:
        return rank(
            queue,
            priority=self.priority,
            attempts=self.attempts,
            deadline=self.deadline,
            ready_at=self.ready_at,
            now=now,
        )

    def rank(self, queue: QueueSettings, now: Instant) -> int:
        return self.ready_at + self.ranking(queue, now).offset


waiting = st.builds(
    Waiting,
    priority=priorities,
    ready_at=st.integers(START - 2 * HOUR, START),
    attempts=st.integers(0, 9),
    deadline=st.none() | st.integers(START - 3 * HOUR, START + 3 * DAY),
)


def by_definition(queue: QueueSettings, task: Waiting, now: Instant) -> Fraction:
    """Effective priority as the design's table words it, in exact numbers, with FIFO as the last fraction."""
    waited = now - task.ready_at
    if queue.policy is Policy.STRICT:
        return task.priority + Fraction(waited, STRICT_SCALE)
    if queue.policy is Policy.TIERS:
        tier = tier_of(task.priority)
        if tier is Tier.LOW and waited >= queue.promote_low:
            tier = Tier.MEDIUM
        if tier is Tier.MEDIUM and waited >= queue.promote_medium:
            tier = Tier.HIGH
        return TIER_PRIORITY[tier] + Fraction(waited, STRICT_SCALE)
    points = Fraction(max(0, task.priority - queue.retry_penalty * task.attempts))
    if task.deadline is not None:
        elapsed = Fraction(now - (task.deadline - queue.deadline_horizon), queue.deadline_horizon)
        points += queue.deadline_weight * Fraction(int(min(max(elapsed, Fraction(0)), Fraction(1)) * 6), 6)
    aged = Fraction(waited, queue.aging)
    bonus = queue.max_aging_bonus
    if bonus is not None and aged >= bonus:
        return min(points + bonus, Fraction(MOST_EFFECTIVE)) + Fraction(waited, STRICT_SCALE)
    return points + aged


@given(queue=queue_settings(), task=waiting, later=st.integers(0, 3 * DAY))
def test_effective_priority_is_what_the_policy_says(queue: QueueSettings, task: Waiting, later: Duration) -> None:
    now = START + later
    ranking = task.ranking(queue, now)
    points = Fraction(now - task.ready_at - ranking.offset, scale(queue, ranking.lane))
    rounding = Fraction(1, scale(queue, ranking.lane))
    assert abs(points - by_definition(queue, task, now)) < rounding


@given(queue=queue_settings(), tasks=st.lists(waiting, min_size=2, max_size=6), later=st.integers(0, 3 * DAY))
def test_static_order_is_the_order_by_effective_priority(
    queue: QueueSettings, tasks: list[Waiting], later: Duration
) -> None:
    """Ranks stored long ago, and renewed only when they said so, order tasks like their effective priorities do."""
    now = START + later
    lanes: dict[int, list[tuple[int, Fraction]]] = {}
    for task in tasks:
        ranking = stored_ranking(queue, task, now)
        lanes.setdefault(ranking.lane, []).append((task.ready_at + ranking.offset, by_definition(queue, task, now)))
    for lane, ranked in lanes.items():
        rounding = Fraction(1, scale(queue, lane))
        in_order = [points for _, points in sorted(ranked)]
        assert all(first > second - rounding for first, second in pairwise(in_order))


def stored_ranking(queue: QueueSettings, task: Waiting, now: Instant) -> Ranking:
    """The ranking that a store holds at `now`: computed when the task became ready, and again whenever it asked to."""
    ranking = task.ranking(queue, task.ready_at)
    while ranking.rerank_in is not None and task.ready_at + ranking.rerank_in <= now:
        at = task.ready_at + ranking.rerank_in
        ranking = task.ranking(queue, at)
        assert ranking.rerank_in is None or task.ready_at + ranking.rerank_in > at, "it would be renewed for ever"
    return ranking


@given(queue=queue_settings(), task=waiting, later=st.integers(0, 3 * DAY))
def test_a_rank_holds_until_it_says_so(queue: QueueSettings, task: Waiting, later: Duration) -> None:
    now = START + later
    assert stored_ranking(queue, task, now) == task.ranking(queue, now)


@given(queue=queue_settings(), task=waiting)
def test_a_rank_is_renewed_only_when_it_changes(queue: QueueSettings, task: Waiting) -> None:
    ranking = task.ranking(queue, task.ready_at)
    if ranking.rerank_in is not None:
        after = task.ranking(queue, task.ready_at + ranking.rerank_in)
        before = task.ranking(queue, task.ready_at + ranking.rerank_in - 1)
        assert before == ranking
        assert after != ranking


@given(queue=queue_settings(), task=waiting, later=st.integers(0, 3 * DAY))
def test_renewals_are_few(queue: QueueSettings, task: Waiting, later: Duration) -> None:
    """Six steps of a deadline, and one change of lane; two promotions between tiers."""
    renewals, ranking = 0, task.ranking(queue, task.ready_at)
    while ranking.rerank_in is not None:
        ranking = task.ranking(queue, task.ready_at + ranking.rerank_in)
        renewals += 1
    most = {Policy.AGING: STEPS + 1, Policy.TIERS: 2, Policy.STRICT: 0}
    assert renewals <= most[queue.policy]


@given(queue=queue_settings(agings), task=waiting, later=st.integers(0, 100 * 366 * DAY))
def test_nothing_exceeds_exact_doubles(queue: QueueSettings, task: Waiting, later: Duration) -> None:
    now = START + later
    ranking = task.ranking(queue, now)
    rank_value = task.ready_at + ranking.offset
    assert abs(ranking.offset) < EXACT
    assert abs(rank_value) < EXACT
    assert float(rank_value) == rank_value
    if ranking.rerank_in is not None:
        assert task.ready_at + ranking.rerank_in < EXACT


def test_the_extremes_fit_exactly() -> None:
    longest = DURATIONS["aging"][1]
    future = START + 100 * 366 * DAY
    most = QueueSettings(aging=longest, deadline_weight=100)
    level = QueueSettings(aging=1_000, max_aging_bonus=100, deadline_weight=100)
    for queue in (most, level, QueueSettings(policy=Policy.STRICT)):
        for ready_at in (0, START, future):
            task = Waiting(100, ready_at, deadline=ready_at)
            assert abs(task.rank(queue, ready_at + HOUR)) < EXACT


@given(queue=queue_settings(), priority=priorities, ahead=st.integers(1, 400 * DAY))
def test_far_deadline_gives_no_boost(queue: QueueSettings, priority: int, ahead: Duration) -> None:
    deadline = START + queue.deadline_horizon + ahead
    far = rank(queue, priority=priority, deadline=deadline, ready_at=START, now=START)
    none = rank(queue, priority=priority, ready_at=START, now=START)
    assert (far.offset, far.lane) == (none.offset, none.lane)


@given(weight=st.integers(1, 100), horizon=st.integers(6, DAY))
def test_deadline_boost_grows_in_six_steps(weight: int, horizon: Duration) -> None:
    queue = QueueSettings(deadline_weight=weight, deadline_horizon=horizon)
    deadline = START + 10 * DAY
    at: Instant | None = deadline - horizon
    taken = []
    while at is not None:
        steps, following = deadline_steps(queue, deadline, at)
        assert deadline_steps(queue, deadline, at - 1)[0] < steps or steps == 0
        taken.append(steps)
        at = following
    assert taken == list(range(STEPS + 1))
    assert deadline_steps(queue, deadline, deadline) == (STEPS, None)
    assert deadline_steps(queue, deadline, deadline + 400 * DAY) == (STEPS, None)
    assert deadline_steps(queue, deadline, deadline - 1)[0] < STEPS


def test_full_boost_is_the_weight() -> None:
    queue = QueueSettings()
    late = rank(queue, priority=50, deadline=START - 1, ready_at=START, now=START)
    assert late == Ranking(-queue.aging * 80)


def test_a_deadline_without_weight_asks_for_nothing() -> None:
    queue = QueueSettings(deadline_weight=0)
    assert rank(queue, priority=50, deadline=START, ready_at=START, now=START) == Ranking(-queue.aging * 50)


def test_failed_attempts_cost_points_but_never_below_zero() -> None:
    queue = QueueSettings(retry_penalty=2)
    offsets = [rank(queue, priority=3, attempts=n, ready_at=START, now=START).offset for n in range(4)]
    assert offsets == [-3 * queue.aging, -queue.aging, 0, 0]


def test_tasks_ready_in_the_future_are_ranked_for_then() -> None:
    queue = QueueSettings(max_aging_bonus=10)
    ranking = rank(queue, priority=50, ready_at=START + HOUR, now=START)
    assert (ranking.lane, ranking.rerank_in) == (CLIMBING, 10 * queue.aging)


def test_capped_ageing_changes_lane_once() -> None:
    queue = QueueSettings(max_aging_bonus=10)
    climbing = rank(queue, priority=50, ready_at=START, now=START + 10 * queue.aging - 1)
    level = rank(queue, priority=50, ready_at=START, now=START + 10 * queue.aging)
    assert (climbing.lane, level.lane, level.rerank_in) == (CLIMBING, LEVEL, None)
    assert level.offset == -60 * STRICT_SCALE


@given(a=waiting, b=waiting, one=queue_settings(), two=queue_settings(), later=st.integers(0, 3 * DAY))
def test_heads_are_merged_by_effective_priority(
    a: Waiting, b: Waiting, one: QueueSettings, two: QueueSettings, later: Duration
) -> None:
    now = START + later
    keys, points = [], []
    for order, (task, queue) in enumerate(((a, one), (b, two))):
        ranking = task.ranking(queue, now)
        value = effective(task.ready_at + ranking.offset, ranking.lane, queue, now)
        keys.append(merge_key(value, task.ready_at, order))
        points.append(min(by_definition(queue, task, now), Fraction(100)))
    assume(abs(points[0] - points[1]) > Fraction(1, 1_000))
    assert (keys[0] < keys[1]) is (points[0] > points[1])


def test_equal_heads_go_by_ready_time_then_order() -> None:
    assert merge_key(50.0, 1, 9) < merge_key(50.0, 2, 0)
    assert merge_key(50.0, 1, 0) < merge_key(50.0, 1, 1)
    assert merge_key(150.0, 1, 9) < merge_key(170.0, 2, 0), "above 100 only time counts"


# The bound.


def overtakes(queue: QueueSettings, mine: Waiting, other: Waiting, now: Instant) -> bool:
    """Whether at `now`, when both wait, the other would be claimed first. A tie goes to the one that came first."""
    heads = []
    for order, task in enumerate((mine, other)):
        ranking = task.ranking(queue, now)
        heads.append((ranking.lane, task.ready_at + ranking.offset, order, task))
    if heads[0][0] == heads[1][0]:
        return heads[1][:3] < heads[0][:3]
    keys = [(*merge_key(effective(value, lane, queue, now), task.ready_at, 0), lane) for lane, value, _, task in heads]
    return keys[1] < keys[0]


@settings(max_examples=300)
@given(
    queue=queue_settings(),
    mine=priorities,
    other=priorities,
    beyond=st.integers(0, 2 * DAY),
    wait=st.integers(0, 30 * DAY),
)
def test_bound_holds(queue: QueueSettings, mine: int, other: int, beyond: Duration, wait: Duration) -> None:
    """A task that is ready once the bound has passed never goes first, however long both wait."""
    limit = overtaking(queue, mine, other)
    assume(limit is not None)
    assert limit is not None
    first = Waiting(mine, START)
    second = Waiting(other, START + limit + beyond)
    assert not overtakes(queue, first, second, second.ready_at + wait)


@settings(max_examples=300)
@given(
    queue=queue_settings(),
    policy=st.sampled_from((Policy.AGING, Policy.TIERS)),
    pair=st.lists(priorities, min_size=2, max_size=2, unique=True).map(sorted),
)
def test_bound_is_tight(queue: QueueSettings, policy: Policy, pair: list[int]) -> None:
    """A task that is ready a microsecond before does go first, if claimed at once."""
    mine, other = pair
    queue = structs.replace(queue, policy=policy, max_aging_bonus=None)
    limit = overtaking(queue, mine, other)
    assume(limit)
    assert limit is not None
    first, second = Waiting(mine, START), Waiting(other, START + limit - 1)
    assert overtakes(queue, first, second, second.ready_at)


@settings(max_examples=300, suppress_health_check=[HealthCheck.filter_too_much])  # most draws have a bound
@given(queue=queue_settings(), mine=priorities, other=priorities, after=st.integers(0, 300 * DAY))
def test_no_bound_means_none(queue: QueueSettings, mine: int, other: int, after: Duration) -> None:
    """Where no bound is promised, tasks do overtake however late they come, once they have waited enough."""
    assume(overtaking(queue, mine, other) is None)
    first, second = Waiting(mine, START), Waiting(other, START + after)
    full = 101 * queue.aging
    assert overtakes(queue, first, second, second.ready_at + full)


@given(mine=priorities, other=priorities, beyond=st.integers(0, HOUR), left=st.integers(-HOUR, DAY))
def test_bound_allows_for_deadlines(mine: int, other: int, beyond: Duration, left: Duration) -> None:
    queue = QueueSettings()
    limit = overtaking(queue, mine, other, boost=Bound(queue).boost)
    assert limit is not None
    first = Waiting(mine, START)
    second = Waiting(other, START + limit + beyond, deadline=START + limit + beyond + left)
    for wait in (0, HOUR, 30 * DAY):
        assert not overtakes(queue, first, second, second.ready_at + wait)


def test_worst_bound_of_the_default_policy() -> None:
    assert Bound(QueueSettings()).worst == timedelta(seconds=130 * 600)
    assert "21 h 40 min" in str(Bound(QueueSettings()))


def test_policies_that_can_starve_say_so() -> None:
    for queue in (
        QueueSettings(policy=Policy.STRICT),
        QueueSettings(policy=Policy.TIERS),
        QueueSettings(max_aging_bonus=50),
    ):
        assert Bound(queue).worst is None
        assert str(Bound(queue)).startswith("none")


def test_tiers_bound_all_but_the_critical() -> None:
    queue = QueueSettings(policy=Policy.TIERS)
    assert overtaking(queue, 10, 50) == queue.promote_low
    assert overtaking(queue, 10, 70) == queue.promote_medium
    assert overtaking(queue, 50, 70) == queue.promote_medium
    assert overtaking(queue, 50, 10) == 0
    assert overtaking(queue, 70, 90) is None


@pytest.mark.parametrize(
    ("priority", "before", "after", "climbed"),
    [
        (30, 0, 600, [Tier.MEDIUM]),
        (30, 0, 1200, [Tier.MEDIUM, Tier.HIGH]),
        (30, 600, 1200, [Tier.HIGH]),
        (50, 600, 1200, [Tier.HIGH]),
        (50, 1200, 1300, []),
        (90, 0, 1200, []),
    ],
)
def test_tiers_climbed_by_waiting(priority: int, before: int, after: int, climbed: list[Tier]) -> None:
    queue = QueueSettings(policy=Policy.TIERS)
    offsets = [
        rank(queue, priority=priority, ready_at=START, now=START + waited * SECOND).offset for waited in (before, after)
    ]
    assert tiers_climbed(queue, *offsets) == climbed
    assert tiers_climbed(QueueSettings(), *offsets) == []


def test_another_policy_is_no_promotion() -> None:
    aging, tiers = QueueSettings(), QueueSettings(policy=Policy.TIERS)
    before, after = (rank(queue, priority=70, ready_at=START, now=START).offset for queue in (aging, tiers))
    assert tiers_climbed(tiers, before, after) == []


# Names.


def test_priority_names_and_numbers() -> None:
    assert [parse_priority(name) for name in ("critical", "high", "normal", "medium", "low")] == [90, 70, 50, 50, 30]
    assert [parse_priority(number) for number in (0, 57, 100)] == [0, 57, 100]


@pytest.mark.parametrize("value", [-1, 101, 50.0, True, None, "", "urgent"])
def test_bad_priorities_are_refused(value: object) -> None:
    with pytest.raises(InvalidOption, match="0 to 100"):
        parse_priority(value)  # type: ignore[arg-type]


def test_misspelt_priority_suggests_the_nearest() -> None:
    with pytest.raises(InvalidOption, match="Did you mean 'critical'"):
        parse_priority("critcal")
