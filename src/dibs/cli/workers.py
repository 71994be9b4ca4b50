"""`dibs workers`: lists workers, and tells them to pause or leave."""

from __future__ import annotations

import click

from dibs.cli.kinds import WORKER
from dibs.cli.options import json_option, with_store
from dibs.client.app import Dibs
from dibs.client.workers import WorkerInfo
from dibs.core.task import WorkerState
from dibs.terminal import Listing, age, emit, say, show, state_text, table

__all__ = ["worker_table", "workers"]


@click.group()
def workers() -> None:
    """See workers, pause or drain them."""


@workers.command("list")
@click.option("--all", "everyone", is_flag=True, help="Also dead ones (kept for a day).")
@json_option
@with_store
def list_workers(app: Dibs, everyone: bool, as_json: bool) -> None:
    """Workers with what they serve and run."""
    found = app.workers.list()
    if not everyone:
        found = [info for info in found if info.state is not WorkerState.DEAD]
    if as_json:
        emit(found)
    elif not found:
        say("No workers: start one with dibs worker MODULE:APP.")
    else:
        show(worker_table(found))


def worker_table(found: list[WorkerInfo]) -> Listing:
    made = table(
        *("WORKER", "STATE", "RUNNING", "QUEUES", "OFFERS", "PID", "UP", "SEEN"),
        right=["RUNNING", "PID"],
        ids=["WORKER"],
        short={"QUEUES": 12, "OFFERS": 8},
        leave=["PID", "OFFERS", "UP"],
    )
    for info in found:
        made.add_row(
            info.id,
            state_text(info.state),
            f"{info.running}/{info.concurrency}",
            ", ".join(info.queues),
            ", ".join(info.capabilities),
            str(info.pid),
            age(info.started_at),
            f"{age(info.seen_at)} ago",
        )
    return made


def add_command(verb: str, text: str) -> None:
    """A command that tells a worker to do something."""

    @workers.command(verb, help=text)
    @click.argument("worker_id", metavar="WORKER", type=WORKER)
    @json_option
    @with_store
    def change(app: Dibs, worker_id: str, as_json: bool) -> None:
        changed = getattr(app.workers, verb)(worker_id)
        if as_json:
            emit({"worker": worker_id, "told": verb, "changed": changed})
        else:
            say(f"Worker {worker_id} was {'' if changed else 'already '}told to {verb}.")


add_command("pause", "Claim nothing more until resumed.")
add_command("resume", "Claim again.")
add_command("drain", "Finish what it runs, then leave.")
