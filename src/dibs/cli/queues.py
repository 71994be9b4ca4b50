"""`dibs queues`: their counts, settings and states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import click
from rich.text import Text

from dibs.cli.codes import ExitCode
from dibs.cli.kinds import QUEUE, SETTING
from dibs.cli.options import SPAN, agreed, json_option, state_command, with_new_store, with_store
from dibs.cli.queue_settings import limit_lines, settings_data, settings_text, wanted_changes
from dibs.client.app import Dibs
from dibs.client.humanize import figures, subject
from dibs.client.humanize import number as numbered
from dibs.client.queues import QueueChanges, QueueInfo, TenantInfo
from dibs.client.series import Percentiles
from dibs.client.stats import QueueStats
from dibs.core.humanize import format_duration, format_rate
from dibs.core.settings import QueueSettings
from dibs.core.states import WAITING, State
from dibs.engines.figures import Counter
from dibs.errors import InvalidOption
from dibs.terminal import Listing, emit, facts_table, number, say, show, state_text, table

__all__ = ["SHOWN", "expendable", "full_text", "percentiles_text", "queue_data", "queues"]

SHOWN = (
    State.PENDING,
    State.RUNNING,
    State.BLOCKED,
    State.SCHEDULED,
    State.RETRYING,
    State.COMPLETED,
    State.CANCELLED,
    State.DEAD,
)
LEAST_FIRST = (
    State.CANCELLED,
    State.COMPLETED,
    State.BLOCKED,
    State.SCHEDULED,
    State.RETRYING,
)
"""States whose counts may be left out of a table where there is no room."""
TENANTS = 10
"""Tenants of a fair queue that are shown."""


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
        say("No queues yet: the first task or setting makes one.")
    else:
        show(queue_table(found))


def queue_table(found: list[QueueInfo]) -> Listing:
    stale = any(info.stale for info in found)
    names = [*(state.upper() for state in SHOWN), *(["TO RE-RANK"] if stale else [])]
    leave = ["POLICY", *expendable(info.counts for info in found)]
    made = table("QUEUE", "STATE", "POLICY", *names, right=names, short={"QUEUE": 16}, leave=leave)
    for info in found:
        row: list[str | Text] = [info.name, state_text(info.state), info.settings.policy]
        row += [number(info.counts[state]) for state in SHOWN]
        made.add_row(*row, *([f"{info.stale:,}"] if stale else []))
    return made


def expendable(counts: Iterable[Mapping[State, int]]) -> list[str]:
    """The columns of states in the order in which they may leave: first those without any task."""
    used = {state for each in counts for state in State if each.get(state)}
    states = [*sorted(LEAST_FIRST, key=lambda state: state in used), State.RUNNING]
    return [state.upper() for state in states]


@queues.command("show")
@click.argument("name", metavar="QUEUE", type=QUEUE)
@click.option("--window", type=SPAN, default="1h", show_default=True, help="How far back the statistics go.")
@json_option
@with_store
def show_one(app: Dibs, name: str, window: float, as_json: bool) -> None:
    """One queue: counts, settings, its bound, and what it did lately."""
    info = app.queues.get(name)
    stats = app.stats(name, window)
    if as_json:
        tenants = {"tenants": app.queues.tenants(name)} if info.settings.fair else {}
        emit({**queue_data(info), **tenants, "stats": stats})
        return
    show_queue(app, info, stats, window)


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


def show_queue(app: Dibs, info: QueueInfo, stats: QueueStats, window: float) -> None:
    facts = facts_table([("queue", info.name)])
    facts.add_row("state", state_text(info.state))
    facts.add_row("tasks", ", ".join(f"{count:,} {state}" for state, count in info.counts.items() if count) or "none")
    facts.add_row("bound", str(info.bound))
    if limits := limit_lines(info.settings):
        facts.add_row("limits", "\n".join(limits))
    if full := full_text(app, info):
        facts.add_row("at their limit", full)
    if info.settings.fair:
        facts.add_row("tenants", tenants_text(app.queues.tenants(info.name, TENANTS)))
    if info.stale:
        facts.add_row("to re-rank", f"{numbered(info.stale, 'waiting task')} still ranked by earlier settings")
    facts.add_row("oldest pending", format_duration(stats.oldest_pending_seconds))
    if tiers := [f"{n:,} {tier}" for tier, n in reversed(stats.priority_distribution.items()) if n]:
        facts.add_row("pending by tier", ", ".join(tiers))
    facts.add_row("workers", f"{stats.workers_active} active")
    facts.add_row("in total", totals_text(stats))
    facts.add_row(f"last {format_duration(window)}", done_text(stats))
    facts.add_row("wait", percentiles_text(stats.wait))
    facts.add_row("run", percentiles_text(stats.run))
    facts.add_row("settings", settings_text(info.settings))
    show(facts)


def full_text(app: Dibs, info: QueueInfo) -> str:
    """The limits that hold back the next tasks."""
    if not (info.settings.limits_starts and info.counts[State.PENDING]):
        return ""
    return "\n".join(f"{subject(state, info.name)}: {figures(state)}" for state in app.queues.full_limits(info.name))


def tenants_text(tenants: list[TenantInfo]) -> str:
    """The tenants served next, with their pending tasks."""
    if not tenants:
        return "none has pending tasks"
    named = [
        f"{each.tenant or '(none)'} {each.pending:,}{'' if each.weight == 1 else f' (weight {each.weight:g})'}"
        for each in tenants
    ]
    more = ", …" if len(tenants) == TENANTS else ""
    return f"served next, with pending tasks: {', '.join(named)}{more}"


def totals_text(stats: QueueStats) -> str:
    """What has happened since the store was made."""
    return (
        f"{stats.counters[Counter.COMPLETIONS]:,} completed, {stats.counters[Counter.FAILURES]:,} failed attempts, "
        f"{sum(stats.deaths.values()):,} dead, {sum(stats.cancellations.values()):,} cancelled"
    )


def done_text(stats: QueueStats) -> str:
    rate = format_rate(stats.throughput_per_second)
    return (
        f"{stats.completed:,} completed ({rate}), {stats.failed:,} failed attempts, "
        f"{stats.dead:,} dead; {stats.cancelled:,} cancelled while they ran"
    )


def percentiles_text(values: Percentiles) -> str:
    if not values.count:
        return "–"
    return f"P50 {format_duration(values.p50)}, P95 {format_duration(values.p95)}, P99 {format_duration(values.p99)}"


@queues.command("set")
@click.argument("name", metavar="QUEUE", type=QUEUE)
@click.argument("changes", metavar="[NAME=VALUE]...", nargs=-1, type=SETTING)
@click.option(
    "--per-task",
    multiple=True,
    metavar="TASK[:PART]=VALUE",
    help="Limit the tasks of one name: send=3 (at once), send:rate=5 (starts per second), send:burst=10, send=none.",
)
@click.option(
    "--per-partition",
    multiple=True,
    metavar="[PART=]VALUE",
    help="Limit the tasks that share a partition (per=): 1 (at once), rate=5, burst=10, none.",
)
@click.option("--fair/--no-fair", default=None, help="Share the queue between tenants, or serve by priority alone.")
@click.option("--weight", "weights", multiple=True, metavar="TENANT=NUMBER", help="A tenant's share; 1 for others.")
@json_option
@with_new_store
def set_queue(
    app: Dibs,
    name: str,
    changes: tuple[str, ...],
    per_task: tuple[str, ...],
    per_partition: tuple[str, ...],
    fair: bool | None,
    weights: tuple[str, ...],
    as_json: bool,
) -> None:
    """Change settings, such as aging=5m max_depth=10000 rate=none.

    Settings: policy (aging, tiers, strict), aging, max_aging_bonus, retry_penalty, deadline_weight, deadline_horizon,
    promote_low, promote_medium, tiers (JSON), max_depth, max_concurrent, rate, burst, enqueue_rate, enqueue_burst,
    keep, keep_dead, retries, timeout, lease, retry_base, retry_cap, timeout_growth. Durations are seconds or 90s, 15m,
    2h, 1d; `none` removes a limit.

    The options add to the settings; per_task=, per_partition=, fair= and weights= (JSON) replace them.
    """
    known = {info.name: info.settings for info in app.queues.list()}
    wanted = wanted_changes(known.get(name, QueueSettings()), changes, per_task, per_partition, weights, fair)
    if not wanted:
        raise InvalidOption("nothing to set: give NAME=VALUE, such as aging=5m, or one of the options.")
    info = app.queues.set(name, **cast(QueueChanges, wanted))
    if as_json:
        emit(queue_data(info))
        return
    say(f"Queue {name!r}: {settings_text(info.settings)}.")
    if info.stale:
        say(f"{numbered(info.stale, 'waiting task')} still to be ranked again by a worker.")


state_command(queues, "queue", "pause", "paused", "Hand out nothing; tasks are still enqueued and age.")
state_command(queues, "queue", "resume", "active", "Hand out tasks and take new ones again.")
state_command(queues, "queue", "drain", "draining", "Take no new tasks; finish the existing ones.")


@queues.command()
@click.argument("name", metavar="QUEUE", type=QUEUE)
@click.option("--force", is_flag=True, help="Even if it has unfinished tasks: waiting ones become dead.")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@json_option
@with_store
def delete(app: Dibs, name: str, force: bool, yes: bool, as_json: bool) -> int:
    """Delete a queue with its settings."""
    counts = app.queues.get(name).counts
    waiting = sum(counts[state] for state in WAITING)
    question = f"Delete queue {name!r} and make {numbered(waiting, 'waiting task')} dead?"
    if force and waiting and not yes and not agreed(question):
        return ExitCode.FAILED
    app.queues.delete(name, force=force)
    emit({"queue": name, "deleted": True}) if as_json else say(f"Queue {name!r} is deleted.")
    return ExitCode.OK
