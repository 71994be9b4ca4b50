"""`dibs workflows`: their state, what waits for what, and cancelling or replaying them as a whole."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text

from dibs.cli.codes import ExitCode
from dibs.cli.kinds import WORKFLOW
from dibs.cli.options import agreed, json_option, with_store
from dibs.client.app import Dibs
from dibs.client.workflows import WorkflowInfo, WorkflowState
from dibs.core.states import UNFINISHED, State
from dibs.terminal import COLOURS, Listing, age, emit, note, number, say, show, state_text, table

__all__ = ["workflows"]

LOOKS_LIKE = {
    WorkflowState.RUNNING: State.RUNNING,
    WorkflowState.COMPLETED: State.COMPLETED,
    WorkflowState.FAILED: State.DEAD,
    WorkflowState.CANCELLED: State.CANCELLED,
}


@click.group()
def workflows() -> None:
    """Look at workflows, cancel, replay them."""


@workflows.command("list")
@click.option("--limit", default=50, show_default=True, help="How many at most (1 to 1000).")
@click.option("--before", metavar="ID", help="Go on below this id, where an earlier page ended.")
@json_option
@with_store
def list_workflows(app: Dibs, limit: int, before: str | None, as_json: bool) -> None:
    """List workflows, newest first."""
    found = app.workflows.list(limit, before)
    if as_json:
        emit([workflow_data(info) for info in found])
        return
    if not found:
        say("No workflows." if before is None else "No more workflows.")
        return
    show(workflow_table(found))
    if len(found) == limit:
        note(f"More: --before {found[-1].id}")


def workflow_data(info: WorkflowInfo) -> dict[str, Any]:
    """A workflow for scripts."""
    return {
        "id": info.id,
        "name": info.name,
        "state": info.state,
        "created_at": info.created_at,
        "total": info.total,
        "ended": info.ended,
        "progress": info.progress,
        "counts": info.counts,
    }


def workflow_table(found: list[WorkflowInfo]) -> Listing:
    counts = ["TASKS", "ENDED", "DEAD", "CANCELLED"]
    made = table(
        *("ID", "NAME", "STATE", *counts, "AGE"),
        right=[*counts, "AGE"],
        ids=["ID"],
        short={"NAME": 12},
        leave=["CANCELLED", "AGE", "ENDED"],
    )
    for info in found:
        made.add_row(
            info.id,
            info.name,
            workflow_state(info.state),
            number(info.total),
            number(info.ended),
            number(info.counts[State.DEAD]),
            number(info.counts[State.CANCELLED]),
            age(info.created_at),
        )
    return made


def workflow_state(state: WorkflowState) -> Text:
    """In the colour of the task state that it is like."""
    return Text(state, style=COLOURS[LOOKS_LIKE[state]])


@workflows.command("show")
@click.argument("workflow_id", metavar="ID", type=WORKFLOW)
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flow chart and nothing else.")
@json_option
@with_store
def show_one(app: Dibs, workflow_id: str, mermaid: bool, as_json: bool) -> None:
    """Show one workflow: its counts, and what waits for what.

    Many tasks that are alike are shown as one line.
    """
    info = app.workflows.get(workflow_id)
    graph = app.workflows.graph(workflow_id)
    if as_json:
        emit({**workflow_data(info), "nodes": graph.nodes, "edges": graph.edges})
        return
    if mermaid:
        click.echo(graph.mermaid())
        return
    say(Text(f"{info.name or 'workflow'} {info.id}: ", style="bold").append(workflow_state(info.state)))
    say(f"{info.ended:,} of {info.total:,} tasks ended ({info.progress:.0%}), created {age(info.created_at)} ago")
    say(counts_line(info))
    say("")
    click.echo(graph.text() or "Nothing is left of it: retention has pruned its tasks.")


def counts_line(info: WorkflowInfo) -> Text:
    line = Text()
    for state in [state for state in State if info.counts[state]]:
        line.append(", " if line else "").append(f"{info.counts[state]:,} ").append(state_text(state))
    return line


@workflows.command()
@click.argument("workflow_id", metavar="ID", type=WORKFLOW)
@click.option("--reason", default="", help="Why; kept with its tasks.")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@json_option
@with_store
def cancel(app: Dibs, workflow_id: str, reason: str, yes: bool, as_json: bool) -> int:
    """End its waiting tasks and ask its running ones to stop."""
    info = app.workflows.get(workflow_id)
    unfinished = sum(info.counts[state] for state in UNFINISHED)
    if unfinished and not yes and not agreed(f"Cancel {unfinished:,} task{'s' * (unfinished != 1)}?"):
        return ExitCode.FAILED
    return print_change(
        workflow_id, app.workflows.cancel(workflow_id, reason), "cancelled", "had ended before", as_json
    )


@workflows.command()
@click.argument("workflow_id", metavar="ID", type=WORKFLOW)
@json_option
@with_store
def replay(app: Dibs, workflow_id: str, as_json: bool) -> int:
    """Run its dead tasks again, then what waits for them.

    Tasks that have completed don't run again.
    """
    return print_change(workflow_id, app.workflows.replay(workflow_id), "replayed", "has nothing to replay", as_json)


def print_change(workflow_id: str, changed: bool, done: str, unchanged: str, as_json: bool) -> int:
    if as_json:
        emit({"id": workflow_id, "changed": changed})
    else:
        say(f"{workflow_id} {done if changed else unchanged}")
    return ExitCode.OK
