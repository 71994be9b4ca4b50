"""`dibs dead`: what failed for good, grouped by error; run it again or delete it."""

from __future__ import annotations

from typing import Any

import click
from msgspec import structs
from rich.text import Text

from dibs.cli.kinds import QUEUE
from dibs.cli.options import dead_command, dead_options, json_option, make_filter, with_store
from dibs.cli.tasks import act
from dibs.client.app import Dibs
from dibs.client.error_groups import MOST_GROUPED, ErrorGroup
from dibs.client.tasks import Filter
from dibs.core.states import State
from dibs.terminal import age, emit, fitting, note, say

__all__ = ["dead"]


@click.group()
def dead() -> None:
    """Tasks that failed for good, by error."""


@dead.command("list")
@dead_options
@json_option
@with_store
def list_dead(app: Dibs, /, as_json: bool, **given: Any) -> None:
    """Dead tasks by task, reason and error, the most frequent first.

    Errors are alike if only numbers, ids, addresses and quoted words differ. Each group has one task as an example.
    --since and --before are about the time of death.
    """
    found = app.tasks.error_groups(only_dead(given))
    groups, more = found.groups, found.more
    if as_json:
        emit({"groups": groups, "tasks": sum(each.count for each in groups), "more": more})
        return
    if not groups:
        say("No dead tasks.")
        return
    for each in groups:
        show_group(each)
    if more:
        note(f"Only the newest {MOST_GROUPED:,} are grouped: choose some with --queue, --name or --since.")


def show_group(each: ErrorGroup) -> None:
    """How many of which tasks, their error, and one of them. A terminal shows one line of the error, a pipe all."""
    line = Text(f"{each.count:,} × {each.name}", style="bold")
    line.append(f" in {each.queue}: {each.reason}, newest {age(each.newest)} ago", style="not bold")
    say(line)
    if each.error_type:
        say(f"    {fitting(f'{each.error_type}: {each.message}' if each.message else each.error_type, 4)}")
    place = f" ({each.place})" if each.place else ""
    say(f"    {each.example}{place}")


@dead.command()
@click.option("--into", metavar="QUEUE", type=QUEUE, help="Run them in this queue instead of their own.")
@click.option("--keep-attempts", is_flag=True, help="Don't start counting attempts and losses from zero.")
@dead_command
def replay(app: Dibs, /, task_ids: tuple[str, ...], into: str | None, keep_attempts: bool, **given: Any) -> int:
    """Run dead tasks again: by id, or --all that match.

    --since and --before are about the time of death.
    """
    by_death(given)
    return act(app, "replay", task_ids, given, queue=into, reset=not keep_attempts)


@dead.command()
@dead_command
def purge(app: Dibs, /, task_ids: tuple[str, ...], **given: Any) -> int:
    """Delete dead tasks for good: by id, or --all that match.

    --since and --before are about the time of death.
    """
    by_death(given)
    if given["everything"]:
        given["state"] = (State.DEAD,)
    return act(app, "purge", task_ids, given)


def by_death(given: dict[str, Any]) -> None:
    """Times are those of their deaths."""
    for created, ended in (("created_after", "ended_after"), ("created_before", "ended_before")):
        if given[ended] is None:
            given[ended], given[created] = given[created], None


def only_dead(given: dict[str, Any]) -> Filter:
    by_death(given)
    return structs.replace(make_filter(given), state=State.DEAD)
