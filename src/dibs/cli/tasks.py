"""`dibs tasks`: find tasks, look at one, change one or all that match."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from dibs.cli.codes import ExitCode
from dibs.cli.kinds import PRIORITY, QUEUE, TASK
from dibs.cli.long_search import Found
from dibs.cli.options import (
    LATER,
    SPAN,
    act_on_all,
    bulk_command,
    filter_options,
    json_option,
    make_filter,
    parse_metadata,
    with_store,
)
from dibs.cli.task_views import FOLLOWERS_SHOWN, Surroundings, show_task, task_table
from dibs.cli.watch import watch
from dibs.client.app import Dibs
from dibs.client.tasks import Acted, Cancelled, Count, Filter
from dibs.core.options import PAGE_LIMIT, as_number, check_number
from dibs.core.states import State
from dibs.errors import DibsError, InvalidOption
from dibs.terminal import emit, note, say

__all__ = ["act", "tasks", "tell_all"]


@click.group()
def tasks() -> None:
    """Find, show, cancel, edit, replay tasks."""


@tasks.command("list")
@filter_options
@click.option("--limit", default=50, show_default=True, help="How many at most (1 to 1000).")
@click.option("--cursor", help="Go on where an earlier page ended.")
@json_option
@with_store
def list_tasks(app: Dibs, /, limit: int, cursor: str | None, as_json: bool, **given: Any) -> int:
    """List tasks, newest first.

    If few match, the search goes on by itself until it has found as many as asked for or has seen all tasks; Ctrl-C
    shows what it has found by then.
    """
    check_number(limit, "--limit", 1, PAGE_LIMIT)
    found = Found(cursor)
    found.read(app, make_filter(given), limit, quiet=as_json)
    if as_json:
        emit({"tasks": found.tasks, "cursor": found.cursor, "visited": found.visited})
    elif found.tasks:
        task_table(found.tasks)
    else:
        say("No tasks match." if found.cursor is None else "No tasks match so far; the search goes on from the cursor.")
    if found.pages > 1 or found.interrupted:
        note(found.how_far())
    if found.cursor is not None and not as_json:
        note(f"More: --cursor {found.cursor}")
    return ExitCode.INTERRUPTED if found.interrupted else ExitCode.OK


@tasks.command()
@filter_options
@json_option
@with_store
def count(app: Dibs, /, as_json: bool, **given: Any) -> None:
    """Count matching tasks, in a bounded number of rows."""
    found = app.tasks.count(make_filter(given))
    if as_json:
        emit({"count": found.count, "more": found.more})
        return
    say(str(found))
    if found.more:
        note("Counting stopped: too many tasks would have to be read.")


@tasks.command()
@click.argument("task_id", metavar="ID", type=TASK)
@json_option
@with_store
def show(app: Dibs, task_id: str, as_json: bool) -> None:
    """Show everything about one task: its place in the queue, what it waits for, what waits for it, its history."""
    info = app.tasks.get(task_id)
    is_pending = info.state is State.PENDING and info.unreadable is None
    around = Surroundings(
        needs=app.tasks.needs(task_id),
        followers=app.tasks.dependents(task_id, FOLLOWERS_SHOWN + 1),
        history=app.tasks.history(task_id),
        position=app.position(task_id) if is_pending else None,
        why=None if info.is_done or as_json else app.why(task_id),
    )
    if as_json:
        emit({"task": info, **show_data(around)})
    else:
        show_task(info, around)


def show_data(around: Surroundings) -> dict[str, Any]:
    """What belongs to a task, for scripts."""
    ahead, starts_at = around.position or (None, None)
    followers = [{"id": each.id, "name": each.name, "state": each.state} for each in around.followers]
    return {
        "ahead": ahead,
        "starts_at": starts_at,
        "needs": around.needs,
        "followers": followers,
        "history": around.history,
    }


@tasks.command()
@click.option("--reason", default="", help="Why; kept with the task.")
@bulk_command
def cancel(app: Dibs, /, task_ids: tuple[str, ...], reason: str, **given: Any) -> int:
    """End waiting tasks and ask running ones to stop: by id, or --all that match."""
    return act(app, "cancel", task_ids, given, reason=reason)


@tasks.command()
@click.option("--into", metavar="QUEUE", type=QUEUE, help="Run them in this queue instead of their own.")
@click.option("--keep-attempts", is_flag=True, help="Don't start counting attempts and losses from zero.")
@bulk_command
def replay(app: Dibs, /, task_ids: tuple[str, ...], into: str | None, keep_attempts: bool, **given: Any) -> int:
    """Run dead tasks again: by id, or --all that match."""
    return act(app, "replay", task_ids, given, queue=into, reset=not keep_attempts)


@tasks.command()
@bulk_command
def purge(app: Dibs, /, task_ids: tuple[str, ...], **given: Any) -> int:
    """Delete ended tasks for good: by id, or --all that match."""
    return act(app, "purge", task_ids, given)


@tasks.command()
@click.option("--priority", metavar="PRIORITY", type=PRIORITY, help="0 to 100, or critical, high, normal, low.")
@click.option("--delay", type=SPAN, help="Run it this much later than now; 0 for now.")
@click.option("--at", type=LATER, help="Run it at this time.")
@click.option("--deadline", type=LATER, help="When it should be done.")
@click.option("--expires", type=LATER, help="When it is cancelled unless it has started.")
@click.option("--set-metadata", multiple=True, metavar="NAME=VALUE", help="Replace the metadata; may be repeated.")
@bulk_command
def edit(app: Dibs, /, task_ids: tuple[str, ...], **given: Any) -> int:
    """Change waiting tasks: by id, or --all that match."""
    changes = taken(given)
    if not changes:
        raise InvalidOption(
            "nothing to change: give --priority, --delay, --at, --deadline, --expires or --set-metadata."
        )
    return act(app, "edit", task_ids, given, **changes)


def taken(given: dict[str, Any]) -> dict[str, Any]:
    """The requested changes, removed from `given`."""
    changes = {name: given.pop(name) for name in ("priority", "delay", "at", "deadline", "expires")}
    if changes["priority"] is not None:
        changes["priority"] = as_number(changes["priority"])
    changes["metadata"] = parse_metadata(given.pop("set_metadata")) or None
    return {name: value for name, value in changes.items() if value is not None}


tasks.add_command(watch)

ANSWERS = {
    "cancel": ("cancelled", "had ended before"),
    "replay": ("replayed", "was replayed before"),
    "purge": ("purged", "was purged before"),
    "edit": ("changed", "was like that already"),
}
"""What is said of a task that was changed, and of one that was not."""


def act(app: Dibs, verb: str, task_ids: tuple[str, ...], given: dict[str, Any], **options: Any) -> int:
    """One action, which the client has under this name, on the tasks given by id, or on all that match the filters."""
    everything, dry_run = given.pop("everything"), given.pop("dry_run")
    yes, no_wait, as_json = given.pop("yes"), given.pop("no_wait"), given.pop("as_json")
    chosen = make_filter(given)
    if bool(task_ids) == everything:
        raise InvalidOption(f"say which tasks to {verb}: ids, or --all with filters such as --queue and --state.")
    if task_ids and (dry_run or no_wait or chosen != Filter()):
        raise InvalidOption("filters, --dry-run and --no-wait belong to --all; with ids leave them out.")
    if task_ids:
        return act_on_each(verb, task_ids, partial(getattr(app.tasks, verb), **options), as_json)
    every = partial(getattr(app.tasks, f"{verb}_matching"), chosen, **options)
    done = act_on_all(verb.capitalize(), every, dry_run=dry_run, yes=yes, wait=not no_wait)
    return tell_all(verb, done, no_wait, as_json, dry_run)


def act_on_each(verb: str, task_ids: tuple[str, ...], one: Callable[[str], bool | Cancelled], as_json: bool) -> int:
    """What was done is told, also if one of the tasks can't be found."""
    answers: dict[str, bool | Cancelled] = {}
    problem: DibsError | None = None
    for task_id in dict.fromkeys(task_ids):
        try:
            answers[task_id] = one(task_id)
        except DibsError as error:
            problem = error
            break
        if not as_json:
            say(f"{task_id} {answer_text(verb, answers[task_id])}")
    if as_json and (answers or problem is None):
        emit([answer_data(task_id, answer) for task_id, answer in answers.items()])
    if problem is not None:
        raise problem
    return ExitCode.OK


def answer_text(verb: str, answer: bool | Cancelled) -> str:
    if answer is Cancelled.REQUESTED:
        return "is running, and was asked to stop"
    return ANSWERS[verb][0 if answer else 1]


def answer_data(task_id: str, answer: bool | Cancelled) -> dict[str, Any]:
    data: dict[str, Any] = {"id": task_id, "changed": bool(answer)}
    return {**data, "answer": str(answer)} if isinstance(answer, Cancelled) else data


def tell_all(verb: str, done: Acted | None, no_wait: bool, as_json: bool, dry_run: bool) -> int:
    if done is None:
        return ExitCode.FAILED
    past, _ = ANSWERS[verb]
    if as_json:
        emit(done)
    elif done.dry_run and not dry_run:
        say(f"No tasks match: nothing was {past}.")
    elif done.dry_run:
        matched = Count(done.matched, done.more)
        some = done.matched or done.more
        say(f"{matched} matched; {'all of them' if some else 'none'} would be {past}.")
    elif no_wait:
        say(f"{Count(done.matched, done.more)} matched. A worker goes on with it: dibs steps wait {done.step}")
    else:
        say(f"{done.changed:,} of {done.matched:,} {past}.")
    return ExitCode.OK
