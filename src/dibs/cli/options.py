"""What commands share: the store, `--json`, filters, durations and times, and asking before bulk changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import click
import msgspec
from rich.status import Status

from dibs.cli.kinds import PRIORITY, QUEUE, SCHEDULE, STATE, TASK, TASK_NAME, WORKER, WORKFLOW, made_whole
from dibs.cli.loading import open_store
from dibs.client.app import Dibs
from dibs.client.steps import Progress, StepInfo
from dibs.client.tasks import Acted, Count, Filter
from dibs.core.options import as_number, shown
from dibs.core.states import State
from dibs.core.times import LONGEST, SECOND
from dibs.errors import InvalidOption
from dibs.terminal import emit, note, say, status

__all__ = [
    "LATER",
    "SPAN",
    "TIME",
    "UNITS",
    "act_on_all",
    "add_options",
    "agreed",
    "bulk_command",
    "dead_command",
    "dead_options",
    "filter_options",
    "json_option",
    "make_filter",
    "parse_metadata",
    "parse_pairs",
    "parse_value",
    "progress_of",
    "state_command",
    "store_options",
    "with_new_store",
    "with_store",
]

P = ParamSpec("P")
R = TypeVar("R")
Function = TypeVar("Function", bound=Callable[..., Any])

UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
SPAN_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|)")


class SpanType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.3 only
    """`90`, `90s`, `15m`, `2h`, `1d`, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        found = SPAN_FORM.fullmatch(str(value).strip().lower())
        if found is None:
            self.fail(f"{shown(value)} is not a duration: use seconds, or 500ms, 90s, 15m, 2h, 1d.", param, ctx)
        seconds = float(found[1]) * UNITS[found[2]]
        if seconds > LONGEST / SECOND:
            self.fail(f"{shown(value)} is more than a hundred years.", param, ctx)
        return seconds


class TimeType(click.ParamType):  # type: ignore[type-arg]
    """An ISO time with zone, or a duration: that long ago."""

    name = "time"

    def __init__(self, *, ahead: bool = False) -> None:
        self.sign = 1 if ahead else -1

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        if SPAN_FORM.fullmatch(str(value).strip().lower()):
            return datetime.now(UTC) + self.sign * timedelta(seconds=SPAN.convert(value, param, ctx))
        try:
            at = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{shown(value)} is not a time: use 2030-01-31T12:00:00Z, or a duration such as 2h.", param, ctx)
        if at.tzinfo is None:
            self.fail(f"{shown(value)} has no time zone: add Z for UTC, or an offset such as +02:00.", param, ctx)
        return at


SPAN = SpanType()
TIME = TimeType()
LATER = TimeType(ahead=True)

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")


def add_options(function: Function, *options: Callable[[Function], Function]) -> Function:
    """Apply decorators in the order in which the help lists them."""
    for option in reversed(options):
        function = option(function)
    return function


def store_options(function: Function) -> Function:
    return add_options(
        function,
        click.option("--url", metavar="URL", help="The store, such as sqlite:///tasks.db."),
        click.option("--app", "app_spec", metavar="MODULE:APP", help="The app whose store it is."),
    )


def with_store(function: Callable[Concatenate[Dibs, P], R], *, create: bool = False) -> Callable[..., R]:
    """Add --url and --app; the command gets an app as first argument, and it is closed afterwards.

    A command looks at a store that exists, or changes what is in it; only with `create` does it make one.
    """

    @wraps(function)
    def run(url: str | None, app_spec: str | None, *args: P.args, **kwargs: P.kwargs) -> R:
        with open_store(url, app_spec) as app:
            app.hub.creates = create
            return function(app, *args, **made_whole(app, kwargs))

    return store_options(run)


with_new_store = partial(with_store, create=True)


def state_command(group: click.Group, thing: str, verb: str, state: str, text: str) -> None:
    """Add a command that changes the state of a queue or schedule, such as `pause`."""

    @group.command(verb, help=text)
    @click.argument("name", metavar=thing.upper(), type={"queue": QUEUE, "schedule": SCHEDULE}[thing])
    @json_option
    @with_store
    def change(app: Dibs, name: str, as_json: bool) -> None:
        changed = getattr(getattr(app, f"{thing}s"), verb)(name)
        if as_json:
            emit({thing: name, "state": state, "changed": changed})
        else:
            say(f"{thing.capitalize()} {name!r} is {'now' if changed else 'already'} {state}.")


def parse_value(text: str) -> Any:
    """JSON where it is JSON, otherwise the text itself."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


def parse_pairs(pairs: tuple[str, ...], what: str) -> dict[str, str]:
    """`name=value` …, values as text."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidOption(f"{shown(pair)} is not {what}: write name=value.")
        if name in found:
            raise InvalidOption(f"{shown(name)} is given twice.")
        found[name] = value
    return found


def parse_metadata(pairs: tuple[str, ...]) -> dict[str, Any]:
    """`name=value` …, values as JSON where they are JSON."""
    return {name: parse_value(value) for name, value in parse_pairs(pairs, "metadata").items()}


def filter_options(function: Function) -> Function:
    """--state, --queue, … as keyword arguments with the names of `Filter`'s fields, for `make_filter`."""
    states = f"One of {', '.join(State)}; may be repeated."
    return add_options(
        function,
        click.option("--state", multiple=True, metavar="STATE", type=STATE, help=states),
        dead_options,
    )


def dead_options(function: Function) -> Function:
    """The same for dead tasks."""
    return add_options(
        function,
        click.option("--queue", multiple=True, metavar="QUEUE", type=QUEUE, help="In this queue; may be repeated."),
        click.option(
            "--name", multiple=True, metavar="TASK", type=TASK_NAME, help="Of this task name; may be repeated."
        ),
        click.option(
            "--min-priority",
            "priority_min",
            default="0",
            metavar="PRIORITY",
            type=PRIORITY,
            help="At least this urgent (number or name).",
        ),
        click.option(
            "--max-priority",
            "priority_max",
            default="100",
            metavar="PRIORITY",
            type=PRIORITY,
            help="At most this urgent.",
        ),
        click.option("--since", "created_after", type=TIME, help="Created after this time, or within this duration."),
        click.option(
            "--before", "created_before", type=TIME, help="Created before this time, or longer ago than this duration."
        ),
        click.option("--ended-since", "ended_after", type=TIME, help="Ended after this time, or within this duration."),
        click.option("--ended-before", type=TIME, help="Ended before this time, or longer ago than this duration."),
        click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="With this metadata; may be repeated."),
        click.option("--key", metavar="KEY", help="With this idempotency key."),
        click.option(
            "--worker", metavar="WORKER", type=WORKER, help="Run by this worker; not tasks that wait to run again."
        ),
        click.option("--workflow", metavar="WORKFLOW", type=WORKFLOW, help="Of this workflow."),
        click.option("--tenant", metavar="TENANT", help="Of this tenant."),
        click.option("--partition", metavar="PARTITION", help="Of this partition (per=)."),
        click.option("--text", default="", help="Text in arguments, errors or notes."),
    )


def make_filter(given: dict[str, Any]) -> Filter:
    """The filter that the options of `filter_options` describe; takes them out of `given`."""
    chosen = {name: given.pop(name, ()) for name in Filter.__struct_fields__}
    chosen["metadata"] = parse_metadata(chosen["metadata"])
    for name in ("priority_min", "priority_max"):
        chosen[name] = as_number(chosen[name])
    return Filter(**chosen)


def bulk_command(
    function: Callable[Concatenate[Dibs, P], R], filters: Callable[[Any], Any] = filter_options
) -> Callable[..., R]:
    """For a command on tasks: ids, or --all with filters; --dry-run, --yes, --no-wait, --json and the store."""
    return add_options(
        with_store(function),
        click.argument("task_ids", metavar="[ID]...", nargs=-1, type=TASK),
        click.option("--all", "everything", is_flag=True, help="All tasks that match the filters, instead of ids."),
        click.option("--dry-run", is_flag=True, help="Say how many would be changed, and change nothing."),
        click.option("--yes", "-y", is_flag=True, help="Don't ask."),
        click.option("--no-wait", is_flag=True, help="With --all: let it go on in the background (dibs steps)."),
        filters,
        json_option,
    )


def dead_command(function: Callable[Concatenate[Dibs, P], R]) -> Callable[..., R]:
    """The same for a command on dead tasks."""
    return bulk_command(function, dead_options)


def act_on_all(verb: str, act: Callable[..., Acted], *, dry_run: bool, yes: bool, wait: bool) -> Acted | None:
    """Count, ask, act. None: the answer was no."""
    found = act(dry_run=True)
    if dry_run or not (found.matched or found.more):
        return found
    only_one = found.matched == 1 and not found.more
    if not yes and not agreed(f"{verb} {Count(found.matched, found.more)} task{'s' * (not only_one)}?"):
        return None
    with progress_of(verb) as progress:
        return act(wait=wait, progress=progress)


@contextmanager
def progress_of(what: str) -> Iterator[Progress]:
    """Shows on a terminal how far a step has come."""
    steps: list[str] = []
    with status(what) as shown:

        def show_progress(step: StepInfo) -> None:
            steps[:] = [step.id]
            if isinstance(shown, Status):
                shown.update(f"{what} … {step.changed:,} of {max(step.matched, step.visited):,}")

        try:
            yield show_progress
        except KeyboardInterrupt:
            for step_id in steps:
                note(f"It goes on in the background: dibs steps wait {step_id}")
            raise


def agreed(question: str) -> bool:
    """Ask, and say so if nothing is changed; without a terminal the answer is no."""
    try:
        yes = click.confirm(question, err=True)
    except click.Abort:
        yes = False
    if not yes:
        note("Nothing was changed.")
    return yes
