"""Settings of a queue as `dibs queues` takes and shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from msgspec import structs

from dibs.cli.options import SPAN, UNITS, parse_pairs, parse_value
from dibs.client.queues import QueueChanges
from dibs.core.limits import Scope, limit_of
from dibs.core.settings import DURATIONS, Defaults, Limit, QueueSettings
from dibs.core.times import SECOND
from dibs.errors import InvalidOption
from dibs.terminal import plain

__all__ = ["limit_lines", "setting_value", "settings_data", "settings_text", "wanted_changes"]


def settings_data(settings: QueueSettings) -> dict[str, Any]:
    """Settings by the names and in the units of `dibs queues set`."""
    data = {}
    for name in QueueChanges.__annotations__:
        value = getattr(settings if hasattr(settings, name) else settings.defaults, name)
        data[name] = in_seconds(name, value)
    data["tiers"] = {tier: tier_data(defaults) for tier, defaults in settings.tiers.items()}
    return data


def tier_data(defaults: Defaults) -> dict[str, Any]:
    given = {name: getattr(defaults, name) for name in Defaults.__struct_fields__}
    return {name: in_seconds(name, value) for name, value in given.items() if value is not None}


def in_seconds(name: str, value: Any) -> Any:
    return value / SECOND if name in DURATIONS and value is not None else value


def settings_text(settings: QueueSettings) -> str:
    """What differs from the defaults."""
    default = settings_data(QueueSettings())
    changed = {name: value for name, value in settings_data(settings).items() if value != default[name]}
    return " ".join(f"{name}={value_text(name, value)}" for name, value in changed.items()) or "all defaults"


def value_text(name: str, value: Any) -> str:
    """A setting as `dibs queues set` takes it."""
    if value is None:
        return "none"
    return span_text(value) if name in DURATIONS else plain(value)


def span_text(seconds: float) -> str:
    """In the largest unit in which it is whole: 90s, 15m, 2h, 1d."""
    unit = next((unit for unit in ("d", "h", "m") if seconds and seconds % UNITS[unit] == 0), "s")
    return f"{seconds / UNITS[unit]:g}{unit}"


def setting_value(name: str, text: str) -> Any:
    """A setting in the form that the client takes."""
    if text.lower() == "none":
        return None
    if name in DURATIONS:
        try:
            return SPAN.convert(text, None, None)
        except click.BadParameter as error:
            raise InvalidOption(f"{name}: {error.message}") from None
    return parse_value(text)


def wanted_changes(
    old: QueueSettings,
    pairs: tuple[str, ...],
    per_task: tuple[str, ...],
    per_partition: tuple[str, ...],
    weights: tuple[str, ...],
    fair: bool | None,
) -> dict[str, Any]:
    """What NAME=VALUE and the options change: options add to the present settings, `none` removes."""
    changes = {name: setting_value(name, text) for name, text in parse_pairs(pairs, "a setting").items()}
    if per_task:
        limits = {name: limit_data(limit) for name, limit in old.per_task.items()}
        for target, text in parse_pairs(per_task, "a limit of a task").items():
            name, part = target_of(target)
            limits[name] = changed(limits.get(name, {}), part, text)
        changes["per_task"] = {name: limit for name, limit in limits.items() if limit}
    if per_partition:
        limit = {} if old.per_partition is None else limit_data(old.per_partition)
        for text in per_partition:
            part, _, value = text.rpartition("=")
            limit = changed(limit, part or None, value)
        changes["per_partition"] = limit or None
    if weights:
        given = parse_pairs(weights, "a weight")
        shares = {**old.weights, **{tenant: setting_value("", text) for tenant, text in given.items()}}
        changes["weights"] = {tenant: share for tenant, share in shares.items() if share is not None}
    if fair is not None:
        changes["fair"] = fair
    return changes


def target_of(text: str) -> tuple[str, str | None]:
    """`report:rate` is the rate of the task `report`; names of tasks may have colons of their own."""
    name, _, part = text.rpartition(":")
    return (name, part) if name and part in Limit.__struct_fields__ else (text, None)


def changed(limit: Mapping[str, Any], part: str | None, text: str) -> dict[str, Any]:
    """A limit with one part changed; no part: all of it for `none`, else the number that may run at once."""
    value = setting_value(part or "", text)
    if part is None and value is None:
        return {}
    new = {**limit, part or "max_concurrent": value}
    return {name: number for name, number in new.items() if number is not None}


def limit_data(limit: Limit) -> dict[str, Any]:
    return {name: value for name, value in structs.asdict(limit).items() if value is not None}


def limit_text(limit: Limit, what: str = "starts") -> str:
    """A limit in words: "3 at once, 5 starts/s (burst 10)"."""
    parts = [] if limit.max_concurrent is None else [f"{limit.max_concurrent:,} at once"]
    if limit.rate is not None:
        burst = "" if limit.burst is None else f" (burst {limit.burst:,})"
        parts.append(f"{limit.rate:g} {what}/s{burst}")
    return ", ".join(parts)


def limit_lines(settings: QueueSettings) -> list[str]:
    """Every limit of a queue, one line each."""
    whole = limit_of(settings, Scope.QUEUE, "")
    client = limit_of(settings, Scope.CLIENT, "")
    lines = [] if whole is None else [f"the queue: {limit_text(whole)}"]
    lines += [f"task {name}: {limit_text(limit)}" for name, limit in sorted(settings.per_task.items())]
    if settings.per_partition is not None:
        lines.append(f"each partition: {limit_text(settings.per_partition)}")
    if client is not None:
        lines.append(f"each client: {limit_text(client, 'enqueues')}")
    return lines
