"""`dibs queues`: what is in them, how they are set, and whether they hand out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import click
from rich.table import Table
from rich.text import Text

from dibs.cli.codes import ExitCode
from dibs.cli.options import SPAN, agreed, json_option, parse_pairs, parse_value, with_store
from dibs.cli.output import emit, errors, number, plain, say, show, span, state_text, table
from dibs.client.app import Dibs
from dibs.client.queues import QueueChanges, QueueInfo
from dibs.client.stats import Percentiles, QueueStats
from dibs.core.settings import DURATIONS, Defaults, QueueSettings
from dibs.core.states import State
from dibs.core.times import SECOND
from dibs.errors import InvalidOption

__all__ = ["queue_data", "queues"]

SHOWN = (State.PENDING, State.RUNNING, State.SCHEDULED, State.RETRYING, State.COMPLETED, State.CANCELLED, State.DEAD)


@click.group()
def queues() -> None:
    """Look at queues, set, pause, drain them."""


@queues.command("list")
@json_option
@with_store
def list_queues(app: Dibs, as_json: bool) -> None:
    """All queues with their counts."""
    found = app.queues.list()
    if as_json:
        emit([queue_data(info) for info in found])
    elif not found:
        say("No queues yet: they exist from their first task or setting on.")
    else:
        show(queue_table(found))


def queue_table(found: list[QueueInfo]) -> Table:
    names = [state.upper() for state in SHOWN]
    made = table("QUEUE", "STATE", "POLICY", *names, right=names)
    stale = any(info.stale for info in found)
    if stale:
        made.add_column("TO RE-RANK", justify="right")
    for info in found:
        row: list[str | Text] = [info.name, state_text(info.state), info.settings.policy]
        row += [number(info.counts[state]) for state in SHOWN]
        made.add_row(*row, *([f"{info.stale:,}"] if stale else []))
    return made


@queues.command("show")
@click.argument("name", metavar="QUEUE")
@click.option("--window", type=SPAN, default="1h", show_default=True, help="How far back the statistics go.")
@json_option
@with_store
def show_one(app: Dibs, name: str, window: float, as_json: bool) -> None:
    """One queue: counts, settings, its bound, and what it did lately."""
    info = app.queues.get(name)
    stats = app.stats(name, window)
    if as_json:
        emit({**queue_data(info), "stats": stats})
        return
    show_queue(info, stats, window)


def queue_data(info: QueueInfo) -> dict[str, Any]:
    """A queue for scripts, durations in seconds."""
    worst = info.bound.worst
    return {
        "name": info.name,
        "state": info.state,
        "counts": info.counts,
        "settings": settings_data(info.settings),
        "stale": info.stale,
        "bound_seconds": None if worst is None else worst.total_seconds(),
    }


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


def show_queue(info: QueueInfo, stats: QueueStats, window: float) -> None:
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    facts.add_row("queue", info.name)
    facts.add_row("state", state_text(info.state))
    facts.add_row("tasks", ", ".join(f"{count:,} {state}" for state, count in info.counts.items() if count) or "none")
    facts.add_row("bound", str(info.bound))
    if info.stale:
        facts.add_row("to re-rank", f"{info.stale:,} waiting tasks are still ranked by earlier settings")
    facts.add_row("oldest pending", span(stats.oldest_pending_seconds))
    facts.add_row("workers", f"{stats.workers_active} active")
    facts.add_row(f"last {span(window)}", done_text(stats))
    facts.add_row("wait", percentiles_text(stats.wait))
    facts.add_row("run", percentiles_text(stats.run))
    facts.add_row("settings", settings_text(info.settings))
    show(facts)


def done_text(stats: QueueStats) -> str:
    return (
        f"{stats.completed:,} completed ({stats.throughput_per_second:.1f}/s), {stats.failed:,} failed attempts, "
        f"{stats.dead:,} dead, {stats.cancelled:,} cancelled"
    )


def percentiles_text(values: Percentiles) -> str:
    if not values.count:
        return "–"
    return f"P50 {span(values.p50)}, P95 {span(values.p95)}, P99 {span(values.p99)}"


def settings_text(settings: QueueSettings) -> str:
    """What differs from the defaults."""
    default = settings_data(QueueSettings())
    changed = {name: value for name, value in settings_data(settings).items() if value != default[name]}
    return " ".join(f"{name}={plain(value)}" for name, value in changed.items()) or "all defaults"


@queues.command("set")
@click.argument("name", metavar="QUEUE")
@click.argument("changes", metavar="NAME=VALUE...", nargs=-1, required=True)
@json_option
@with_store
def set_queue(app: Dibs, name: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Change settings, such as aging=5m max_depth=10000 rate=none.

    Settings: policy (aging, tiers, strict), aging, max_aging_bonus, retry_penalty, deadline_weight, deadline_horizon,
    promote_low, promote_medium, tiers (JSON), max_depth, max_concurrent, rate, burst, keep, keep_dead, retries,
    timeout, lease, retry_base, retry_cap, timeout_growth. Durations are seconds or 90s, 15m, 2h, 1d; `none` takes a
    limit away.
    """
    wanted = {setting: setting_value(setting, text) for setting, text in parse_pairs(changes, "a setting").items()}
    info = app.queues.set(name, **cast(QueueChanges, wanted))
    if as_json:
        emit(queue_data(info))
        return
    say(f"Queue {name!r}: {settings_text(info.settings)}.")
    if info.stale:
        say(f"{info.stale:,} waiting tasks will be ranked anew by a worker.")


def setting_value(name: str, text: str) -> Any:
    """A setting as the client takes it."""
    if text.lower() == "none":
        return None
    if name in DURATIONS:
        try:
            return SPAN.convert(text, None, None)
        except click.BadParameter as error:
            raise InvalidOption(f"{name}: {error.message}") from None
    return parse_value(text)


@queues.command()
@click.argument("name", metavar="QUEUE")
@json_option
@with_store
def pause(app: Dibs, name: str, as_json: bool) -> None:
    """Hand out nothing; tasks still come in and age."""
    change_state(name, app.queues.pause, "paused", as_json)


@queues.command()
@click.argument("name", metavar="QUEUE")
@json_option
@with_store
def resume(app: Dibs, name: str, as_json: bool) -> None:
    """Hand out and take in again."""
    change_state(name, app.queues.resume, "active", as_json)


@queues.command()
@click.argument("name", metavar="QUEUE")
@json_option
@with_store
def drain(app: Dibs, name: str, as_json: bool) -> None:
    """Take no new tasks; finish those there are."""
    change_state(name, app.queues.drain, "draining", as_json)


def change_state(name: str, change: Callable[[str], bool], state: str, as_json: bool) -> None:
    changed = change(name)
    if as_json:
        emit({"queue": name, "state": state, "changed": changed})
    else:
        say(f"Queue {name!r} is {'now' if changed else 'already'} {state}.")


@queues.command()
@click.argument("name", metavar="QUEUE")
@click.option("--force", is_flag=True, help="Even if it has unfinished tasks: waiting ones become dead.")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@json_option
@with_store
def delete(app: Dibs, name: str, force: bool, yes: bool, as_json: bool) -> int:
    """Delete a queue with its settings."""
    waiting = sum(app.queues.get(name).counts[state] for state in (State.PENDING, State.SCHEDULED, State.RETRYING))
    question = f"Delete queue {name!r} and make its {waiting:,} waiting tasks dead?"
    if force and waiting and not yes and not agreed(question):
        errors().print("Nothing was changed.")
        return ExitCode.FAILED
    app.queues.delete(name, force=force)
    emit({"queue": name, "deleted": True}) if as_json else say(f"Queue {name!r} is deleted.")
    return ExitCode.OK
