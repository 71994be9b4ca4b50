"""`dibs schedules`: recurring tasks, when they run next, and changing that."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
from rich.text import Text

from dibs.cli.enqueue import new_task, print_enqueued, wanted
from dibs.cli.kinds import PRIORITY, QUEUE, SCHEDULE, TASK_NAME
from dibs.cli.loading import open_store
from dibs.cli.options import SPAN, json_option, state_command, store_options, with_store
from dibs.client.app import Dibs
from dibs.client.schedule_template import as_template
from dibs.client.schedules import ScheduleInfo
from dibs.core.humanize import format_duration
from dibs.core.recurrence import CatchUp, Overlap, check_recurrence
from dibs.errors import InvalidOption
from dibs.terminal import Listing, age, emit, facts_table, number, plain, say, show, table, when_text

__all__ = ["due_text", "schedules"]

UPCOMING = 5
CATCH_UP = click.Choice([each.value for each in CatchUp])
OVERLAP = click.Choice([each.value for each in Overlap])


@click.group()
def schedules() -> None:
    """See recurring tasks, add, pause, run them."""


@schedules.command("list")
@json_option
@with_store
def list_schedules(app: Dibs, as_json: bool) -> None:
    """All schedules with their next run."""
    found = app.schedules.list()
    if as_json:
        emit(found)
    elif not found:
        say("No schedules: declare one with @app.schedule and start a worker, or use dibs schedules add.")
    else:
        show(schedule_table(found))


def schedule_table(found: list[ScheduleInfo]) -> Listing:
    made = table(
        *("SCHEDULE", "TASK", "WHEN", "NEXT", "LAST", "FIRED", "SKIPPED", "FROM"),
        right=["FIRED", "SKIPPED"],
        short={"SCHEDULE": 20, "TASK": 14, "WHEN": 16},
        leave=["FROM", "SKIPPED", "FIRED", "LAST", "TASK"],
    )
    for info in found:
        made.add_row(
            info.name,
            info.task,
            info.words,
            due_text(info),
            "–" if info.last_fire_at is None else f"{age(info.last_fire_at)} ago",
            number(info.fired),
            number(info.skipped),
            source_text(info),
        )
    return made


def due_text(info: ScheduleInfo) -> Text:
    """In how long it fires, or why it does not."""
    if info.next_fire_at is None:
        return Text("paused", style="yellow")
    late = (datetime.now(UTC) - info.next_fire_at).total_seconds()
    if late > 1:
        return Text(f"overdue by {format_duration(late)}", style="red")
    return Text("now" if late > -0.5 else f"in {format_duration(-late)}")


def source_text(info: ScheduleInfo) -> Text:
    if not info.declared:
        return Text("set by hand")
    return Text("code, stale", style="yellow") if info.stale else Text("code")


@schedules.command("show")
@click.argument("name", metavar="SCHEDULE", type=SCHEDULE)
@json_option
@with_store
def show_one(app: Dibs, name: str, as_json: bool) -> None:
    """One schedule with its next runs."""
    info = app.schedules.get(name)
    try:
        upcoming, trouble = app.schedules.upcoming(name, UPCOMING), ""
    except InvalidOption as error:  # the rest can still be shown
        upcoming, trouble = [], str(error)
    if as_json:
        emit({"schedule": info, "upcoming": upcoming})
        return
    facts = facts_table((title, value) for title, value in facts_of(info) if value)
    if upcoming or trouble:
        facts.add_row("next runs", "\n".join(moment(at) for at in upcoming) or trouble)
    show(facts)


def facts_of(info: ScheduleInfo) -> list[tuple[str, str | Text]]:
    last = "" if info.last_fire_at is None else f"{when_text(info.last_fire_at)} ({age(info.last_fire_at)} ago)"
    return [
        ("schedule", info.name),
        ("task", f"{info.task} in queue {info.queue}, priority {info.priority}"),
        ("arguments", plain(info.args) if info.args else ""),
        ("when", f"{info.words} ({info.cron})" if info.cron else info.words),
        ("missed fires", missed_text(info)),
        ("overlap", "fires while the last task is unfinished are skipped" if info.overlap is Overlap.SKIP else ""),
        ("next", due_text(info)),
        ("last", last),
        ("last task", info.last_task or ""),
        ("so far", f"{info.fired:,} fired, {info.skipped:,} skipped"),
        ("from", from_text(info)),
    ]


def missed_text(info: ScheduleInfo) -> str:
    if info.catch_up is CatchUp.ALL:
        return f"one task each, for the newest {info.catch_up_limit:,}"
    return "one task for all of them" if info.catch_up is CatchUp.ONE else "dropped"


def from_text(info: ScheduleInfo) -> str:
    if not info.declared:
        return f"set by hand, {when_text(info.created_at)}"
    stale = "; no running worker declares it like this any more: it may be a leftover" if info.stale else ""
    return f"code, last declared by a worker {age(info.declared_at)} ago{stale}"


def moment(at: datetime) -> str:
    """A time on the clock of its zone and in UTC."""
    utc = at.astimezone(UTC)
    if at.utcoffset() == utc.utcoffset():
        return f"{at:%a %Y-%m-%d %H:%M:%S} UTC"
    return f"{at:%a %Y-%m-%d %H:%M:%S %Z} = {utc:%a %H:%M:%S} UTC"


@schedules.command()
@click.argument("name", metavar="SCHEDULE")
@click.argument("task", metavar="TASK", type=TASK_NAME)
@click.argument("pairs", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--cron", help="When, as minute, hour, day, month, weekday: '30 2 * * mon-fri'.")
@click.option("--tz", help="The time zone of --cron, such as Europe/Zurich.  [default: UTC]")
@click.option("--every", type=SPAN, help="Instead of --cron: at a fixed rate, such as 5m.")
@click.option("--jitter", type=SPAN, default="0", help="Start each task up to this much later.")
@click.option(
    "--catch-up",
    type=CATCH_UP,
    default="one",
    show_default=True,
    help="Fires missed by all workers.",
)
@click.option("--catch-up-limit", default=100, show_default=True, help="With --catch-up all: so many at most.")
@click.option(
    "--overlap",
    type=OVERLAP,
    default="allow",
    show_default=True,
    help="Fires while the last task is unfinished.",
)
@click.option("--args", "arguments", metavar="JSON", help="The arguments as one JSON object.")
@click.option("--queue", type=QUEUE, help="The queue; needed without --app.")
@click.option("--priority", metavar="PRIORITY", type=PRIORITY, help="0 to 100, or critical, high, normal, low.")
@click.option("--expires", type=SPAN, help="Cancel a task that has not started this long after its time.")
@click.option("--per", metavar="PARTITION", help="The partition whose limits hold for its tasks.")
@click.option("--tenant", help="Whose share of a fair queue they are charged to.")
@click.option("--retries", type=int, help="How often a failed run is tried again.")
@click.option("--timeout", type=SPAN, help="How long a run may take.")
@click.option("--requires", multiple=True, metavar="CAPABILITY", help="What a worker must offer; may be repeated.")
@click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="A label to find tasks by; may be repeated.")
@json_option
@store_options
def add(
    url: str | None,
    app_spec: str | None,
    name: str,
    task: str,
    pairs: tuple[str, ...],
    arguments: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Add a schedule, or replace the one of this name.

    Arguments are given as with `dibs enqueue`. With --app they are checked against the task's signature and the task's
    own queue and options apply; without it, --queue is needed and nothing is checked.
    """
    if (given["cron"] is None) == (given["every"] is None):
        raise InvalidOption("say when, in one way: --cron '30 2 * * *' or --every 5m.")
    if given["every"] is not None and given["tz"] is not None:
        raise InvalidOption("--tz goes with --cron only: an interval is the same in every time zone.")
    times = {option: given.pop(option) for option in ("cron", "tz", "every", "jitter", "catch_up", "overlap")}
    recurrence = check_recurrence(**times, catch_up_limit=given.pop("catch_up_limit"))
    options = wanted(given)
    with open_store(url, app_spec, create=True) as app:
        there = {info.name: info for info in app.schedules.list()}.get(name)
        template = as_template(app.hub, *new_task(app, task, pairs, arguments, options))
        info = app.schedules.put(name, recurrence, template)
        if as_json:
            emit(info)
            return
        say(f"Schedule {name!r} is {'added' if there is None else 'replaced'}: {info.words}, next {due_text(info)}.")
        if there is not None and there.declared:
            say("Code declares this schedule: the next worker that starts with that code sets it back.")


@schedules.command()
@click.argument("name", metavar="SCHEDULE", type=SCHEDULE)
@json_option
@with_store
def remove(app: Dibs, name: str, as_json: bool) -> None:
    """Delete a schedule; the tasks that it has enqueued stay."""
    declared = any(info.declared for info in app.schedules.list() if info.name == name)
    app.schedules.delete(name)  # also one that can't be read
    if as_json:
        emit({"schedule": name, "deleted": True})
        return
    say(f"Schedule {name!r} is deleted.")
    if declared:
        say("Code declares it: remove it there, or it is back when a worker starts. To stop it for now, use pause.")


state_command(schedules, "schedule", "pause", "paused", "Don't fire until resumed; missed fires are not caught up.")
state_command(schedules, "schedule", "resume", "active", "Fire again, from now on.")


@schedules.command()
@click.argument("name", metavar="SCHEDULE")
@click.option("--wait", type=SPAN, help="Wait this long for the task to end; exit code 1 unless it completes.")
@json_option
@with_store
def run(app: Dibs, name: str, wait: float | None, as_json: bool) -> int:
    """Enqueue its task now, besides its fires."""
    info = app.schedules.get(name)
    return print_enqueued(app, app.schedules.run_now(name), info.task, wait, as_json)
