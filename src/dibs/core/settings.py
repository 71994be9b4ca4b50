"""What can be set for a queue, and how the settings of call, task, tier, queue and app are combined.

Settings are values: changing a queue makes a new `QueueSettings` with the next `version`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

from msgspec import Struct, structs, to_builtins

from dibs.core.options import (
    brief,
    check_choice,
    check_flag,
    check_label,
    check_mapping,
    check_name,
    check_number,
    check_real,
    shown,
    unknown_option,
)
from dibs.core.times import DAY, HOUR, SECOND, Duration, duration
from dibs.errors import InvalidOption

__all__ = [
    "DURATIONS",
    "FALLBACK",
    "OPTIONAL",
    "REAL",
    "SHARED",
    "WHOLE",
    "Defaults",
    "Limit",
    "Policy",
    "QueueSettings",
    "Resolved",
    "Tier",
    "change_settings",
    "check_defaults",
    "check_span",
    "declare_settings",
    "reranks",
    "resolve",
    "tier_of",
]


class Policy(StrEnum):
    """How a queue orders its tasks."""

    AGING = "aging"
    """Waiting raises the priority."""
    TIERS = "tiers"
    """Four bands, served in order, with promotion."""
    STRICT = "strict"
    """Priority alone, then age."""


class Tier(StrEnum):
    """The four bands of a `tiers` queue."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


def tier_of(priority: int) -> Tier:
    """The tier that a number belongs to."""
    if priority < 40:
        return Tier.LOW
    if priority < 60:
        return Tier.MEDIUM
    return Tier.HIGH if priority < 80 else Tier.CRITICAL


class Defaults(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Settings that may be given at several levels; None leaves it to the next level."""

    retries: int | None = None
    timeout: Duration | None = None
    lease: Duration | None = None
    retry_base: Duration | None = None
    retry_cap: Duration | None = None
    timeout_growth: float | None = None


class Resolved(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that a task runs with."""

    retries: int
    timeout: Duration | None
    lease: Duration
    retry_base: Duration
    retry_cap: Duration
    timeout_growth: float


class Limit(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """At most so many at once, and so many starts per second (with a burst); None: no such limit."""

    max_concurrent: int | None = None
    """How many may run at once."""
    rate: float | None = None
    """Starts per second."""
    burst: int | None = None
    """Starts that may come at once after a pause; None: one second's worth."""


class QueueSettings(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The settings of one queue; durations in microseconds.

    `per_task` limits the tasks of one name, `per_partition` those that share a `per=`, `enqueue_rate` what one client
    may hand over per second. `fair` shares the queue's capacity between tenants, by `weights` (1 where none is given).
    """

    policy: Policy = Policy.AGING
    aging: Duration = 600 * SECOND
    max_aging_bonus: int | None = None
    retry_penalty: int = 2
    deadline_weight: int = 30
    deadline_horizon: Duration = HOUR
    promote_low: Duration = 600 * SECOND
    promote_medium: Duration = 1200 * SECOND
    tiers: dict[Tier, Defaults] = {}
    defaults: Defaults = Defaults()
    max_depth: int | None = None
    max_concurrent: int | None = None
    rate: float | None = None
    burst: int | None = None
    per_task: dict[str, Limit] = {}
    per_partition: Limit | None = None
    enqueue_rate: float | None = None
    enqueue_burst: int | None = None
    fair: bool = False
    weights: dict[str, float] = {}
    keep: Duration = 7 * DAY
    keep_dead: Duration = 30 * DAY
    version: int = 1
    declared: dict[str, Any] = {}
    """What the code declared when a worker last applied it, by name; `declare_settings` compares with it."""

    @property
    def limits_starts(self) -> bool:
        """Whether some of its tasks may have to wait although a worker is free."""
        whole = self.max_concurrent is not None or self.rate is not None
        return whole or bool(self.per_task) or self.per_partition is not None


FALLBACK = Resolved(
    retries=3, timeout=None, lease=30 * SECOND, retry_base=SECOND, retry_cap=300 * SECOND, timeout_growth=1.0
)


def resolve(explicit: Defaults, app: Defaults, settings: QueueSettings, priority: int) -> Resolved:
    """call and task (already one: `explicit`) > tier > queue > app > the built-in default, each option by itself."""
    tier = Defaults()
    if settings.policy is Policy.TIERS and settings.tiers:
        tier = settings.tiers.get(tier_of(priority), tier)
    return combine(explicit, tier, settings.defaults, app)


@lru_cache(maxsize=512)
def combine(*levels: Defaults) -> Resolved:
    """The first level that sets an option decides it."""
    chosen = {}
    for name in Resolved.__struct_fields__:
        given = next((value for level in levels if (value := getattr(level, name)) is not None), None)
        chosen[name] = getattr(FALLBACK, name) if given is None else given
    found = Resolved(**chosen)
    return FALLBACK if found == FALLBACK else found  # one object, so that engines can leave it out


# Public name → (low, high) in its stored unit. Durations are given in seconds or as a timedelta.
WHOLE = {
    "max_aging_bonus": (0, 100),
    "retry_penalty": (0, 100),
    "deadline_weight": (0, 100),
    "max_depth": (1, 10**12),
    "max_concurrent": (1, 10**9),
    "burst": (1, 10**9),
    "enqueue_burst": (1, 10**9),
    "retries": (0, 1_000_000),
}
DURATIONS = {
    "aging": (1000, 4 * 10**13),
    "deadline_horizon": (6, 400 * DAY),
    "promote_low": (0, 400 * DAY),
    "promote_medium": (0, 400 * DAY),
    "keep": (0, 36_500 * DAY),
    "keep_dead": (0, 36_500 * DAY),
    "timeout": (1, 24 * HOUR),
    "lease": (SECOND, 24 * HOUR),
    "retry_base": (0, 400 * DAY),
    "retry_cap": (0, 400 * DAY),
}
REAL = {"rate": (1e-6, 1e9), "enqueue_rate": (1e-6, 1e9), "timeout_growth": (1.0, 10.0)}
LIGHTEST, HEAVIEST = 0.001, 1000.0
SHARED = set(Defaults.__struct_fields__)
OPTIONAL = SHARED | {name for name, value in structs.asdict(QueueSettings()).items() if value is None}


def check(name: str, value: object) -> object:
    """One setting in its public form, as its stored form."""
    if value is None and name in OPTIONAL:
        return None
    if name in SHAPED:
        return SHAPED[name](value)
    if name in WHOLE:
        return check_number(value, name, *WHOLE[name])
    if name in REAL:
        return check_real(value, name, *REAL[name])
    return check_span(name, value)


def check_span(name: str, value: object, option: str = "") -> Duration:
    """A duration within the bounds of the setting `name`, for that setting or for an `option` that is like it."""
    span = duration(value, option or name)
    low, high = DURATIONS[name]
    if not low <= span <= high:
        raise InvalidOption(
            f"{option or name} must be from {low / SECOND:g} s to {high / SECOND:,.0f} s, not {shown(value)}."
        )
    return span


def check_defaults(values: Mapping[str, object], where: str) -> Defaults:
    """`retries=…, timeout=…` as a `Defaults`."""
    for name in check_mapping(values, where, "{'retries': 2}"):
        if name not in SHARED:
            raise unknown_option(name, SHARED, where)
    return Defaults(**{name: check(name, value) for name, value in values.items()})  # type: ignore[arg-type]


def change_settings(old: QueueSettings, changes: Mapping[str, object]) -> QueueSettings:
    """The settings with `changes` applied, all problems reported in one error. The engine counts the version."""
    known = (set(QueueSettings.__struct_fields__) | SHARED) - {"version", "defaults", "declared"}
    problems: list[str] = []
    own: dict[str, object] = {}
    shared: dict[str, object] = {}
    for name, value in changes.items():
        try:
            if name not in known:
                raise unknown_option(name, known, "a queue")
            (shared if name in SHARED else own)[name] = check(name, value)
        except InvalidOption as error:
            problems.append(str(error))
    if problems:
        raise InvalidOption(brief(" ".join(problems)))
    return check_together(structs.replace(old, **own, defaults=structs.replace(old.defaults, **shared)))


def check_together(new: QueueSettings) -> QueueSettings:
    """Refuse settings that contradict each other."""
    if new.promote_medium < new.promote_low:
        raise InvalidOption("promote_medium counts from when the task became ready: it can't be less than promote_low.")
    if new.burst is not None and new.rate is None:
        raise InvalidOption("burst needs a rate.")
    if new.enqueue_burst is not None and new.enqueue_rate is None:
        raise InvalidOption("enqueue_burst needs an enqueue_rate.")
    return new


def declare_settings(old: QueueSettings, code: QueueSettings, given: Iterable[str]) -> QueueSettings:
    """The settings of a queue for which the code declares those that are `given`; `old` itself if nothing changes.

    Only what has changed in the code since it was last applied is written: what an operator has changed stays. What
    the code no longer declares goes back to its default.
    """
    declared = {name: to_builtins(value_of(code, name)) for name in given}
    names = [
        name
        for name in {**old.declared, **declared}
        if (name in declared) != (name in old.declared) or declared[name] != old.declared[name]
    ]
    if not names:
        return old
    own = {name: value_of(code, name) for name in names if name not in SHARED}
    shared: dict[str, Any] = {name: value_of(code, name) for name in names if name in SHARED}
    defaults = structs.replace(old.defaults, **shared)
    return check_together(structs.replace(old, **own, defaults=defaults, declared=declared))


def value_of(settings: QueueSettings, name: str) -> Any:
    return getattr(settings.defaults if name in SHARED else settings, name)


def check_tiers(value: object) -> dict[Tier, Defaults]:
    """`{"low": {"retries": 2}, …}` with known tiers and options."""
    tiers = {}
    for name, options in check_mapping(value, "tiers", "{'low': {'retries': 2}}").items():
        if not isinstance(name, str) or name not in list(Tier):
            raise unknown_option(name, list(Tier), "tiers")
        tiers[Tier(name)] = check_defaults(options, f"tier {name}")
    return tiers


def check_limit(value: object, where: str) -> Limit:
    """`{"max_concurrent": 1, "rate": 5}` as a `Limit`; a bare number is the number that may run at once."""
    if isinstance(value, Limit):
        value = structs.asdict(value)
    if not isinstance(value, Mapping):
        value = {"max_concurrent": value}
    facts = {}
    for name, given in value.items():
        if name not in Limit.__struct_fields__:
            raise unknown_option(name, Limit.__struct_fields__, where)
        try:
            facts[name] = check(name, given)
        except InvalidOption as error:
            raise InvalidOption(f"{where}: {error}") from None
    limit = Limit(**facts)  # type: ignore[arg-type]
    if limit.max_concurrent is None and limit.rate is None:
        raise InvalidOption(f"{where} limits nothing: give max_concurrent, rate, or both.")
    if limit.burst is not None and limit.rate is None:
        raise InvalidOption(f"{where}: burst needs a rate.")
    return limit


def check_per_task(value: object) -> dict[str, Limit]:
    """`{"send": {"rate": 5}, …}` by task name."""
    limits = check_mapping(value, "per_task", "{'send': 5}")
    return {check_name(name, "a task's name"): check_limit(limit, f"per_task {name}") for name, limit in limits.items()}


def check_per_partition(value: object) -> Limit:
    return check_limit(value, "per_partition")


def check_weights(value: object) -> dict[str, float]:
    """`{"acme": 2}` by tenant."""
    weights = {}
    for tenant, weight in check_mapping(value, "weights", "{'acme': 2}").items():
        check_label(tenant, "a tenant")
        weights[tenant] = check_real(weight, f"the weight of tenant {shown(tenant)}", LIGHTEST, HEAVIEST)
    return weights


SHAPED: dict[str, Callable[[object], object]] = {
    "policy": lambda value: check_choice(Policy, value, "policy"),
    "tiers": check_tiers,
    "per_task": check_per_task,
    "per_partition": check_per_partition,
    "fair": lambda value: check_flag(value, "fair"),
    "weights": check_weights,
}


def reranks(old: QueueSettings, new: QueueSettings) -> bool:
    """Whether waiting tasks must be ranked again."""
    names = ("policy", "aging", "max_aging_bonus", "retry_penalty", "deadline_weight", "deadline_horizon")
    others = ("promote_low", "promote_medium", "fair")
    return any(getattr(old, name) != getattr(new, name) for name in names + others)
