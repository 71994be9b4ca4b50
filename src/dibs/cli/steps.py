"""`dibs steps`: acts on all that match, and deletions of queues, that go on in the background."""

from __future__ import annotations

import click

from dibs.cli.kinds import STEP
from dibs.cli.options import json_option, progress_of, with_store
from dibs.client.app import Dibs
from dibs.client.steps import StepInfo
from dibs.client.tasks import Count
from dibs.terminal import age, emit, say, show, table

__all__ = ["steps"]


@click.group()
def steps() -> None:
    """See what goes on in the background, wait for it."""


@steps.command("list")
@click.option("--limit", default=20, show_default=True, help="How many at most (1 to 1000).")
@json_option
@with_store
def list_steps(app: Dibs, limit: int, as_json: bool) -> None:
    """Acts on all that match and deletions of queues, newest first. They are kept for 7 days after their end."""
    found = app.steps.list(limit)
    if as_json:
        emit(found)
        return
    if not found:
        say("Nothing goes on in the background.")
        return
    made = table(
        *("STEP", "ACT", "BY", "ASKED", "MATCHED", "CHANGED", "ENDED"),
        right=["MATCHED", "CHANGED"],
        ids=["STEP"],
        short={"ACT": 14, "BY": 8},
        leave=["MATCHED", "BY", "ASKED"],
    )
    for info in found:
        matched, ended = str(Count(info.matched, info.more)), f"{age(info.ended_at)} ago" if info.is_done else "–"
        act = info.act if info.queue is None else f"{info.act} {info.queue}"
        made.add_row(info.id, act, info.actor, f"{age(info.asked_at)} ago", matched, changed_text(info), ended)
    show(made)


@steps.command()
@click.argument("step_id", metavar="STEP", type=STEP)
@json_option
@with_store
def wait(app: Dibs, step_id: str, as_json: bool) -> None:
    """Go on with a step until its end."""
    with progress_of("Waiting") as progress:
        done = app.steps.finish(step_id, progress)
    emit(done) if as_json else say(f"{done.act}: {changed_text(done)} changed.")


def changed_text(info: StepInfo) -> str:
    return f"{info.changed:,} of {info.visited:,}"
