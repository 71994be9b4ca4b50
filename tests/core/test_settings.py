"""Settings: checked at the door, and one option from five levels."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.core.settings import (
    FALLBACK,
    Defaults,
    Limit,
    Policy,
    QueueSettings,
    Resolved,
    Tier,
    change_settings,
    check_defaults,
    reranks,
    resolve,
    tier_of,
)
from dibs.core.times import MINUTE, SECOND
from dibs.errors import InvalidOption

EMPTY = Defaults()


def test_nothing_given_is_the_built_in_default() -> None:
    assert resolve(EMPTY, EMPTY, QueueSettings(), 50) == FALLBACK


levels = st.builds(
    Defaults,
    retries=st.none() | st.integers(0, 9),
    timeout=st.none() | st.integers(1, 9),
    lease=st.none() | st.integers(1, 9),
    retry_base=st.none() | st.integers(0, 9),
)


@given(call=levels, tier=levels, queue=levels, app=levels)
def test_call_beats_tier_beats_queue_beats_app(call: Defaults, tier: Defaults, queue: Defaults, app: Defaults) -> None:
    settings = QueueSettings(policy=Policy.TIERS, tiers={Tier.LOW: tier}, defaults=queue)
    resolved = resolve(call, app, settings, 10)
    for name in Resolved.__struct_fields__:
        given_values = [getattr(level, name) for level in (call, tier, queue, app)]
        expected = next((value for value in given_values if value is not None), getattr(FALLBACK, name))
        assert getattr(resolved, name) == expected


def test_tiers_speak_only_for_their_own_and_only_in_tiers_queues() -> None:
    tiers = {Tier.LOW: Defaults(retries=9)}
    assert resolve(EMPTY, EMPTY, QueueSettings(policy=Policy.TIERS, tiers=tiers), 50).retries == FALLBACK.retries
    assert resolve(EMPTY, EMPTY, QueueSettings(tiers=tiers), 10).retries == FALLBACK.retries


def test_zero_is_a_value() -> None:
    assert resolve(Defaults(retries=0), Defaults(retries=5), QueueSettings(), 50).retries == 0


def test_tiers_by_number() -> None:
    assert [tier_of(number) for number in (0, 39, 40, 59, 60, 79, 80, 100)] == [
        Tier.LOW,
        Tier.LOW,
        Tier.MEDIUM,
        Tier.MEDIUM,
        Tier.HIGH,
        Tier.HIGH,
        Tier.CRITICAL,
        Tier.CRITICAL,
    ]


def test_seconds_and_timedeltas_become_microseconds() -> None:
    settings = change_settings(QueueSettings(), {"aging": 1.5, "keep": timedelta(hours=1), "lease": 20})
    assert (settings.aging, settings.keep, settings.defaults.lease) == (1_500_000, 3_600 * SECOND, 20 * SECOND)


def test_what_is_not_named_stays() -> None:
    first = change_settings(QueueSettings(), {"max_depth": 5, "retries": 1})
    second = change_settings(first, {"timeout": 60})
    assert (second.max_depth, second.defaults.retries, second.defaults.timeout) == (5, 1, MINUTE)


def test_limits_can_be_lifted() -> None:
    limited = change_settings(QueueSettings(), {"max_depth": 5, "rate": 1, "burst": 2, "max_aging_bonus": 3})
    lifted = {"max_depth": None, "rate": None, "burst": None, "max_aging_bonus": None}
    assert change_settings(limited, lifted) == QueueSettings()


def test_unknown_setting_suggests_the_nearest() -> None:
    with pytest.raises(InvalidOption, match="Did you mean 'max_concurrent'"):
        change_settings(QueueSettings(), {"max_concurent": 5})
    with pytest.raises(InvalidOption, match="Did you mean 'retries'"):
        check_defaults({"retrys": 5}, "the app")


def test_the_version_is_not_for_people() -> None:
    with pytest.raises(InvalidOption, match="no option 'version'"):
        change_settings(QueueSettings(), {"version": 5})


def test_all_problems_in_one_message() -> None:
    with pytest.raises(InvalidOption) as caught:
        change_settings(QueueSettings(), {"agin": 1, "policy": "random", "max_depth": 0, "retries": -1})
    for word in ("'aging'", "policy", "max_depth", "retries"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policy", "fair"),
        ("aging", 0),
        ("aging", -5),
        ("aging", "fast"),
        ("aging", float("nan")),
        ("aging", None),
        ("aging", 10**9),
        ("max_aging_bonus", 101),
        ("retry_penalty", 1.5),
        ("max_depth", True),
        ("max_concurrent", 0),
        ("rate", 0),
        ("rate", float("inf")),
        ("rate", "1/s"),
        ("keep", -1),
        ("lease", 0.1),
        ("timeout", 0),
        ("timeout_growth", 0.5),
        ("tiers", ["low"]),
        ("tiers", {"urgent": {}}),
        ("enqueue_rate", 0),
        ("enqueue_burst", 1.5),
        ("per_task", ["send"]),
        ("per_task", {"send": {}}),
        ("per_partition", {"burst": 5}),
        ("per_partition", {"rate": None}),
        ("fair", 1),
        ("fair", None),
        ("weights", [1, 2]),
    ],
)
def test_bad_values_are_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidOption, match=name.split("_", maxsplit=1)[0]):
        change_settings(QueueSettings(), {name: value})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("per_task", {"no spaces please": 1}, "a task's name must be"),
        ("per_task", {"send": {"max_concurrent": 0}}, "max_concurrent must be a whole number"),
        ("per_task", {"send": {"rate": -1}}, "rate must be a number"),
        ("per_partition", 0, "max_concurrent must be a whole number"),
        ("weights", {"acme": 0}, "the weight of tenant 'acme' must be"),
        ("weights", {"acme": 1001}, "the weight of tenant 'acme' must be"),
        ("weights", {"acme": True}, "the weight of tenant 'acme' must be"),
        ("weights", {"": 1}, "a tenant must be"),
        ("weights", {"a\nb": 1}, "a tenant must be"),
    ],
)
def test_bad_values_inside_are_refused(name: str, value: object, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        change_settings(QueueSettings(), {name: value})


def test_a_tiers_settings_are_checked_too() -> None:
    with pytest.raises(InvalidOption, match=r"tier low has no option 'retires'\. Did you mean 'retries'"):
        change_settings(QueueSettings(), {"tiers": {"low": {"retires": 1}}})


def test_settings_that_contradict_each_other() -> None:
    with pytest.raises(InvalidOption, match="promote_medium"):
        change_settings(QueueSettings(), {"promote_low": 100, "promote_medium": 99})
    with pytest.raises(InvalidOption, match="burst needs a rate"):
        change_settings(QueueSettings(), {"burst": 5})


def test_limits_take_a_bare_number_or_several_facts() -> None:
    settings = change_settings(
        QueueSettings(),
        {"per_task": {"send": 5, "fetch": {"rate": 2, "burst": 3}}, "per_partition": {"max_concurrent": 1, "rate": 1}},
    )
    assert settings.per_task == {"send": Limit(max_concurrent=5), "fetch": Limit(rate=2.0, burst=3)}
    assert settings.per_partition == Limit(max_concurrent=1, rate=1.0)


def test_limits_come_back_through_the_door() -> None:
    settings = change_settings(QueueSettings(), {"per_task": {"send": {"rate": 2}}, "per_partition": 1})
    again = {"per_task": settings.per_task, "per_partition": settings.per_partition}
    assert change_settings(QueueSettings(), again) == settings


def test_limits_per_name_and_partition_can_be_lifted() -> None:
    limited = change_settings(
        QueueSettings(), {"per_task": {"send": 1}, "per_partition": 1, "enqueue_rate": 5, "enqueue_burst": 9}
    )
    lifted = {"per_task": {}, "per_partition": None, "enqueue_rate": None, "enqueue_burst": None}
    assert change_settings(limited, lifted) == QueueSettings()


def test_a_limits_own_facts_are_checked() -> None:
    with pytest.raises(InvalidOption, match=r"per_task send has no option 'rat'\. Did you mean 'rate'"):
        change_settings(QueueSettings(), {"per_task": {"send": {"rat": 1}}})
    with pytest.raises(InvalidOption, match="per_partition: burst needs a rate"):
        change_settings(QueueSettings(), {"per_partition": {"max_concurrent": 1, "burst": 2}})
    with pytest.raises(InvalidOption, match="limits nothing"):
        change_settings(QueueSettings(), {"per_partition": {}})
    with pytest.raises(InvalidOption, match="enqueue_burst needs an enqueue_rate"):
        change_settings(QueueSettings(), {"enqueue_burst": 2})


def test_weights_are_numbers_by_tenant() -> None:
    settings = change_settings(QueueSettings(), {"fair": True, "weights": {"acme": 2, "Müller & Söhne": 0.5}})
    assert (settings.fair, settings.weights) == (True, {"acme": 2.0, "Müller & Söhne": 0.5})


def test_which_settings_may_make_a_task_wait_for_others() -> None:
    for changes in ({"max_concurrent": 1}, {"rate": 1}, {"per_task": {"send": 1}}, {"per_partition": 1}):
        assert change_settings(QueueSettings(), changes).limits_starts
    for changes in ({}, {"enqueue_rate": 1}, {"fair": True}, {"max_depth": 1}):
        assert not change_settings(QueueSettings(), changes).limits_starts


def test_which_changes_need_new_ranks() -> None:
    old = QueueSettings()
    for changes in ({"policy": "strict"}, {"aging": 5}, {"max_aging_bonus": 5}, {"promote_low": 5}, {"fair": True}):
        assert reranks(old, change_settings(old, changes))
    for changes in (
        {"max_depth": 5, "rate": 3, "retries": 5, "keep": 1},
        {"per_task": {"send": 1}, "per_partition": 1, "enqueue_rate": 1, "weights": {"acme": 2}},
    ):
        assert not reranks(old, change_settings(old, changes))
