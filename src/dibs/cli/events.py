"""`dibs events`: what happens, as it happens."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import click
import msgspec

from dibs.cli.kinds import QUEUE, TOPIC
from dibs.cli.options import json_option, with_store
from dibs.client.app import Dibs
from dibs.client.events import EventInfo
from dibs.terminal import note, plain, say

__all__ = ["events"]

FIRST = ("name", "task_id", "queue", "worker")
"""What is shown without its name."""
CLOCK = 14
"""Characters of the time in front of an event."""


@click.command()
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, type=TOPIC)
@click.option("--queue", multiple=True, metavar="QUEUE", type=QUEUE, help="Of this queue; may be repeated.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), help="Leave after so many.")
@click.option("--cursor", help="Go on after an earlier event: its cursor, from --json.")
@json_option
@with_store
def events(
    app: Dibs, topics: tuple[str, ...], queue: tuple[str, ...], limit: int | None, cursor: str | None, as_json: bool
) -> None:
    """Follow what happens to tasks, workers and queues.

    A topic is task, worker, queue or system, or one type such as task.failed; by default all that is stored. With
    --json, one object per line. Ctrl-C leaves.
    """
    feed = app.events(topics, queues=queue, cursor=cursor)
    with suppress(KeyboardInterrupt):
        for number, event in enumerate(feed, 1):
            if event.missed:
                note("Some events before this one are gone.")
            write(event, as_json)
            if number == limit:
                return


def write(event: EventInfo, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(msgspec.json.encode(event, enc_hook=str).decode() + "\n")
        sys.stdout.flush()
    else:
        say(line(event), indent=CLOCK)


def line(event: EventInfo) -> str:
    data = dict(event.data)
    parts = [str(data.pop(name)) for name in FIRST if name in data]
    if (took := data.pop("duration_ms", None)) is not None:
        parts.append(f"{took:,.1f} ms")
    parts += [f"{name}={text(value)}" for name, value in data.items()]
    return f"{event.at.astimezone():%H:%M:%S.%f}"[:-3] + f"  {event.type:<16} {' '.join(parts)}"


def text(value: Any) -> str:
    return plain(value).replace("\n", " ")
