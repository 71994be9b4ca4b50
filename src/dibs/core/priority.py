"""The order of claims: one number per task, its *rank*; the smallest goes first.

Every policy has the form ``rank = now − scale · effective priority``. Under linear ageing the clock cancels out:
with A microseconds per point, a task that became ready at t with priority p has effective priority
``p + (now − t)/A`` at every instant, so ordering by ``t − A·p`` is ordering by effective priority, for ever, and
nothing needs to be rewritten while tasks wait.

Functions here return offsets to `ready_at`; the engine adds its own clock. All values are integer microseconds below
2⁵³, so that SQL, Lua and JSON agree to the bit.
"""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from dibs.core.humanize import format_exact_duration
from dibs.core.options import nearest, shown
from dibs.core.settings import Policy, QueueSettings, Tier, tier_of
from dibs.core.times import SECOND, Duration, Instant
from dibs.errors import InvalidOption

__all__ = [
    "CLIMBING",
    "HIGHEST",
    "LEVEL",
    "MOST_EFFECTIVE",
    "NAMES",
    "STEPS",
    "STRICT_SCALE",
    "TIER_PRIORITY",
    "Bound",
    "Ranking",
    "deadline_steps",
    "effective",
    "merge_key",
    "overtaking",
    "parse_priority",
    "rank",
    "scale",
    "tiers_climbed",
]

NAMES = {"critical": 90, "high": 70, "normal": 50, "medium": 50, "low": 30}
LOWEST, HIGHEST = 0, 100
STEPS = 6
STRICT_SCALE: Duration = 4 * 10**7 * SECOND
MOST_EFFECTIVE = 200

CLIMBING, LEVEL = 0, 1
"""The two lanes of a queue whose ageing is capped: still ageing, and at the cap. Other queues only use the first."""

TIER_PRIORITY = {Tier.LOW: 30, Tier.MEDIUM: 50, Tier.HIGH: 70, Tier.CRITICAL: 90}
TIER_OFFSETS = {-STRICT_SCALE * priority: tier for tier, priority in TIER_PRIORITY.items()}
PROMOTED = (Tier.MEDIUM, Tier.HIGH)
"""The tiers to which a task can come by waiting."""


class Ranking(Struct, frozen=True):
    """Where a task stands: ``rank = ready_at + offset`` in its lane, computed again `rerank_in` after `ready_at`."""

    offset: Duration
    lane: int = CLIMBING
    rerank_in: Duration | None = None


def parse_priority(value: object) -> int:
    """A priority from 0 to 100, or one of the names."""
    if isinstance(value, str):
        if value in NAMES:
            return NAMES[value]
        raise InvalidOption(
            f"priority {shown(value)} is not known.{nearest(value, NAMES)} "
            f"Use {', '.join(NAMES)} or a number from 0 to 100."
        )
    if type(value) is not int or not LOWEST <= value <= HIGHEST:
        raise InvalidOption(
            f"priority must be a whole number from 0 to 100 or one of {', '.join(NAMES)}, not {shown(value)}."
        )
    return value


def scale(settings: QueueSettings, lane: int) -> Duration:
    """Microseconds per point of priority in this lane."""
    return settings.aging if settings.policy is Policy.AGING and lane == CLIMBING else STRICT_SCALE


def effective(rank_value: int, lane: int, settings: QueueSettings, now: Instant) -> float:
    """The effective priority of a waiting task. One division of exact integers: the same double in every engine."""
    return (now - rank_value) / scale(settings, lane)


def rank(
    settings: QueueSettings,
    *,
    priority: int,
    attempts: int = 0,
    deadline: Instant | None = None,
    ready_at: Instant,
    now: Instant,
) -> Ranking:
    """The ranking of a task that is, or will be, ready at `ready_at`, as seen at `now`."""
    waited = max(0, now - ready_at)
    if settings.policy is Policy.STRICT:
        return Ranking(-STRICT_SCALE * priority)
    if settings.policy is Policy.TIERS:
        return rank_in_tiers(settings, priority, waited)
    base = max(0, priority - settings.retry_penalty * attempts)
    steps, next_step_at = deadline_steps(settings, deadline, max(now, ready_at))
    changes_in = [] if next_step_at is None else [next_step_at - ready_at]
    bonus = settings.max_aging_bonus
    if bonus is not None:
        if waited >= bonus * settings.aging:
            points = min(STEPS * (base + bonus) + settings.deadline_weight * steps, STEPS * MOST_EFFECTIVE)
            return Ranking(-(STRICT_SCALE * points // STEPS), LEVEL, min(changes_in, default=None))
        changes_in.append(bonus * settings.aging)
    points = STEPS * base + settings.deadline_weight * steps
    return Ranking(-(settings.aging * points // STEPS), CLIMBING, min(changes_in, default=None))


def rank_in_tiers(settings: QueueSettings, priority: int, waited: Duration) -> Ranking:
    """FIFO inside a tier; low becomes medium, and medium high, after waiting long enough."""
    tier = tier_of(priority)
    if tier is Tier.LOW and waited >= settings.promote_low:
        tier = Tier.MEDIUM
    if tier is Tier.MEDIUM and waited >= settings.promote_medium:
        tier = Tier.HIGH
    rerank_in = {Tier.LOW: settings.promote_low, Tier.MEDIUM: settings.promote_medium}.get(tier)
    return Ranking(-STRICT_SCALE * TIER_PRIORITY[tier], CLIMBING, rerank_in)


def tiers_climbed(settings: QueueSettings, before: Duration, after: Duration) -> list[Tier]:
    """The tiers to which a task of a `tiers` queue has come by waiting, given its offsets before and after."""
    if settings.policy is not Policy.TIERS or before not in TIER_OFFSETS:  # it was ranked by another policy
        return []
    return [tier for offset, tier in TIER_OFFSETS.items() if after <= offset < before and tier in PROMOTED]


def deadline_steps(settings: QueueSettings, deadline: Instant | None, now: Instant) -> tuple[int, Instant | None]:
    """How many of the six steps towards the deadline have been taken, and when the next one is."""
    if deadline is None or settings.deadline_weight == 0:
        return 0, None
    horizon = settings.deadline_horizon
    elapsed = now - (deadline - horizon)
    taken = min(max(elapsed * STEPS // horizon, 0), STEPS)
    if taken == STEPS:
        return STEPS, None
    # The first instant at which one more step counts as taken: the smallest t with (t − start)·6 // horizon > taken.
    return taken, deadline - horizon + -(-(taken + 1) * horizon // STEPS)


def merge_key(effective_priority: float, ready_at: Instant, order: int) -> tuple[float, Instant, int]:
    """Which of several heads goes first: higher effective priority (up to 100), longer ready, the order given."""
    return (-min(effective_priority, float(HIGHEST)), ready_at, order)


def overtaking(settings: QueueSettings, mine: int, other: int, boost: int = 0) -> Duration | None:
    """How long after a task of priority `mine` is ready a new task of priority `other` can still overtake it.

    None: for ever. `boost` is what the other's deadline adds.
    """
    if settings.policy is Policy.STRICT:
        return None if other > mine else 0
    if settings.policy is Policy.TIERS:
        return overtaking_in_tiers(settings, tier_of(mine), tier_of(other))
    gap = other + boost - mine
    if settings.max_aging_bonus is not None and gap > 0:
        # Both reach the cap, the other one higher: however late it comes, it overtakes once it has waited long enough.
        return None
    return max(0, gap * settings.aging)


def overtaking_in_tiers(settings: QueueSettings, mine: Tier, other: Tier) -> Duration | None:
    order = list(Tier)
    if order.index(other) <= order.index(mine):
        return 0
    if other is Tier.CRITICAL:
        return None
    return settings.promote_low if other is Tier.MEDIUM else settings.promote_medium


class Bound(Struct, frozen=True):
    """How long tasks of a queue can be overtaken; None: for ever.

    In a fair queue this holds among the tasks of one tenant; `dibs.core.fairness` has the bound between tenants.
    """

    settings: QueueSettings

    @property
    def worst(self) -> timedelta | None:
        """The longest time that any task can be overtaken by any other."""
        return self.between(LOWEST, HIGHEST, boost=self.boost)

    @property
    def boost(self) -> int:
        """What a deadline can add to a priority."""
        return self.settings.deadline_weight if self.settings.policy is Policy.AGING else 0

    def between(self, mine: int, other: int, boost: int = 0) -> timedelta | None:
        """How long tasks of priority `other` can overtake one of priority `mine`."""
        span = overtaking(self.settings, mine, other, boost)
        return None if span is None else timedelta(microseconds=span)

    def __str__(self) -> str:
        worst, pace = self.worst, format_exact_duration(self.settings.aging)
        text = (
            "none: more urgent work can overtake for ever under these settings"
            if worst is None
            else f"{pace} per point of priority: at most {format_exact_duration(worst // timedelta(microseconds=1))} "
            f"(priority {LOWEST} against {HIGHEST} with a full deadline boost)"
        )
        return f"{text}; {self.shares}" if self.settings.fair else text

    @property
    def shares(self) -> str:
        """The bound of a fair queue for each tenant, in words."""
        unequal = " (⌊v/w⌋ + 1 of one that weighs v, against w)" if self.settings.weights else ""
        return (
            "this holds within a tenant, whose first task starts after at most 2 starts of each other tenant "
            f"that has pending tasks{unequal}"
        )
