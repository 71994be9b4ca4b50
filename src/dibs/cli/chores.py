"""`dibs chores`: what the leading worker does for everyone, and whether it keeps up."""

from __future__ import annotations

import click
from rich.text import Text

from dibs.cli.options import json_option, with_store
from dibs.client.app import Dibs
from dibs.client.info import ChoreInfo
from dibs.core.chores import meaning_of
from dibs.core.humanize import format_duration
from dibs.terminal import Listing, age, emit, number, say, show, table

__all__ = ["chores"]


@click.command()
@json_option
@with_store
def chores(app: Dibs, as_json: bool) -> None:
    """Show the chores of the leading worker.

    When each was last done, how long that took, and whether it has work left. One that has not been done for 3 minutes,
    or has had work left for 10, is late.
    """
    found = app.chores()
    if as_json:
        emit(found)
        return
    show(chore_table(found))
    for chore in found:
        if chore.late:
            say(f"{chore.name} is late: {meaning_of(chore.name)}.")


def chore_table(found: list[ChoreInfo]) -> Listing:
    counts = ["TOOK", "DONE", "TOTAL"]
    made = table("CHORE", "LAST", *counts, "LEFT", "BEHIND", right=counts, leave=reversed(counts))
    for chore in found:
        made.add_row(
            Text(chore.name, style="red" if chore.late else ""),
            last_text(chore),
            "–" if chore.at is None else format_duration(chore.took),
            number(chore.done),
            number(chore.total),
            "more" if chore.more else "nothing",
            "" if chore.behind_since is None else f"for {age(chore.behind_since)}",
        )
    return made


def last_text(chore: ChoreInfo) -> Text:
    if chore.at is None:
        return Text("never", style="bright_black")
    text = f"{age(chore.at)} ago"
    return Text(f"{text}, late", style="red") if chore.late else Text(text)
