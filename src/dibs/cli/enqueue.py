"""`dibs enqueue`: enqueue a task from the shell."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from dibs.cli.codes import ExitCode
from dibs.cli.kinds import PRIORITY, QUEUE, TASK, TASK_NAME, made_whole
from dibs.cli.loading import open_store
from dibs.cli.options import (
    LATER,
    SPAN,
    json_option,
    parse_metadata,
    parse_pairs,
    parse_value,
    store_options,
)
from dibs.cli.watch import ending, follow
from dibs.client.app import Dibs
from dibs.client.by_name import new_by_name
from dibs.client.handle import Handle
from dibs.client.options import Options, make_options
from dibs.client.producer import enqueue as enqueue_new
from dibs.core.codec import Signature
from dibs.core.options import as_number, brief, shown
from dibs.core.states import State
from dibs.core.task import NewTask
from dibs.engines.values import EnqueueOutcome
from dibs.errors import InvalidOption
from dibs.terminal import emit, say

__all__ = ["enqueue", "new_task", "print_enqueued", "wanted"]


@click.command()
@click.argument("name", metavar="TASK", type=TASK_NAME)
@click.argument("pairs", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--args", "arguments", metavar="JSON", help="The arguments as one JSON object.")
@click.option("--queue", type=QUEUE, help="The queue; needed without --app.")
@click.option("--priority", metavar="PRIORITY", type=PRIORITY, help="0 to 100, or critical, high, normal, low.")
@click.option("--delay", type=SPAN, help="Run it this much later.")
@click.option("--at", type=LATER, help="Run it at this time.")
@click.option("--deadline", type=LATER, help="When it should be done; it becomes more urgent as this nears.")
@click.option("--expires", type=LATER, help="Cancel it unless it has started by then.")
@click.option(
    "--after", multiple=True, metavar="ID", type=TASK, help="Wait for this task to complete; may be repeated."
)
@click.option("--per", metavar="PARTITION", help="The partition whose limits hold for it.")
@click.option("--tenant", help="Whose share of a fair queue it is charged to.")
@click.option("--retries", type=int, help="How often a failed run is tried again.")
@click.option("--timeout", type=SPAN, help="How long a run may take.")
@click.option("--key", help="Idempotency key: the same key stands for the same task.")
@click.option("--window", type=SPAN, help="How long the key stands (24h; 0: while unfinished).")
@click.option("--requires", multiple=True, metavar="CAPABILITY", help="What a worker must offer; may be repeated.")
@click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="A label to find it by; may be repeated.")
@click.option("--id", help="A UUID to use as the task's id.")
@click.option("--block", type=SPAN, help="Wait this long for room in a full queue.")
@click.option("--wait", type=SPAN, help="Wait this long for it to end; exit code 1 unless it completes.")
@json_option
@store_options
def enqueue(
    url: str | None,
    app_spec: str | None,
    name: str,
    pairs: tuple[str, ...],
    arguments: str | None,
    wait: float | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Enqueue a task by its name.

    Arguments are given as NAME=VALUE or as --args JSON. Values are JSON where they are JSON (3, true, [1, 2]),
    otherwise text. With --app the arguments are checked against the task's signature and the task's own queue and
    options apply; without it, --queue is needed and nothing is checked.
    """
    with open_store(url, app_spec, create=True) as app:
        new, options = new_task(app, name, pairs, arguments, wanted(made_whole(app, given)))
        answer = enqueue_new(app.hub, new, options)
        is_duplicate = answer.outcome is EnqueueOutcome.DUPLICATE
        handle = app._handle(answer.id, new.queue, app.hub.definitions.get(new.name), is_duplicate)
        return print_enqueued(app, handle, new.name, wait, as_json)


def wanted(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, as `using` takes them."""
    if given["priority"] is not None:
        given["priority"] = as_number(given["priority"])
    given["metadata"] = parse_metadata(given["metadata"]) or None
    given["requires"] = list(given["requires"]) or None
    if "after" in given:
        given["after"] = list(given["after"]) or None
    return given


def new_task(
    app: Dibs, name: str, pairs: tuple[str, ...], arguments: str | None, options: dict[str, Any]
) -> tuple[NewTask, Options]:
    """A task by its name, with its options: the app's own, or one that the worker that runs it has to check."""
    if app.hub.definitions or app.allow:
        task = app.task_named(name).using(**options)
        return task.call(**arguments_of(pairs, arguments, task.definition.signature)).new, task.options
    if options["queue"] is None:
        raise InvalidOption("which queue? Give --queue, or --app MODULE:APP to use the task's own.")
    chosen, hub = make_options(Options(), options), app.hub
    values = arguments_of(pairs, arguments, None)
    return new_by_name(hub, name, values, chosen), chosen


def arguments_of(pairs: tuple[str, ...], arguments: str | None, signature: Signature | None) -> dict[str, Any]:
    """The arguments by name."""
    values: dict[str, Any] = {}
    if arguments is not None:
        values = json_object(arguments)
    for name, text in parse_pairs(pairs, "an argument").items():
        if name in values:
            raise InvalidOption(f"{shown(name)} is given twice, in --args and as NAME=VALUE.")
        values[name] = text if signature is not None and signature.hints.get(name) is str else parse_value(text)
    return values


def json_object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidOption(
            f'--args must be a JSON object such as \'{{"to": "ada"}}\': {brief(str(error), 200)}.'
        ) from None


def print_enqueued(app: Dibs, handle: Handle[Any], name: str, wait: float | None, as_json: bool) -> int:
    """Print what was enqueued, and if `wait` is given how it ended."""
    data: dict[str, Any] = {"id": handle.id, "name": name, "queue": handle.queue, "duplicate": handle.duplicate}
    if wait is None:
        known = " (the key already stands for this task)" if handle.duplicate else ""
        emit(data) if as_json else say(f"{handle.id}{known}")
        return ExitCode.OK
    try:
        (info,) = follow(app, [handle], wait, quiet=as_json)
    except TimeoutError:
        info = handle.refresh()
    emit({**data, "task": info}) if as_json else say(ending(info))
    return ExitCode.OK if info.state is State.COMPLETED else ExitCode.FAILED
