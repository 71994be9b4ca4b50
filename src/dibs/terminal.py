"""What people and scripts see: tables and words on one side, one JSON document on the other."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dibs.core.humanize import format_duration
from dibs.core.states import State
from dibs.core.task import QueueState, WorkerState

COLOURS: dict[str, str] = {
    State.PENDING: "yellow",
    State.SCHEDULED: "cyan",
    State.BLOCKED: "magenta",
    State.RUNNING: "blue",
    State.RETRYING: "dark_orange",
    State.COMPLETED: "green",
    State.CANCELLED: "bright_black",
    State.DEAD: "red",
    QueueState.ACTIVE: "green",
    QueueState.PAUSED: "yellow",
    QueueState.DRAINING: "cyan",
}


def out() -> Console:
    """Stdout. No markup: what users stored is shown as it is. Wide into a pipe, whose reader wants whole lines."""
    width = None if sys.stdout.isatty() else 240
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def errors() -> Console:
    """Stderr: progress, questions and notes."""
    return Console(file=sys.stderr, markup=False, highlight=False, emoji=False)


def say(text: str | Text) -> None:
    """One line to people, never cut."""
    out().print(text, soft_wrap=True)


def fitting(text: str, indent: int = 0) -> str:
    """A text for one line: cut to the width of a terminal, whole into a pipe."""
    console = out()
    first, _, rest = text.partition("\n")
    if not console.is_terminal:
        return text.replace("\n", "\n" + " " * indent)
    most = console.width - indent
    return f"{first[: most - 1]}…" if len(first) > most or rest else first


def show(what: RenderableType) -> None:
    """A table or the like; into a pipe, without trailing blanks."""
    console = out()
    if console.is_terminal:
        console.print(what)
        return
    with console.capture() as capture:
        console.print(what)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def emit(data: object) -> None:
    """One JSON document on stdout."""
    text = msgspec.json.format(msgspec.json.encode(data, enc_hook=str), indent=2).decode()
    sys.stdout.write(text + "\n")


def table(*columns: str, right: Iterable[str] = ()) -> Table:
    """An unruled table; columns named in `right` hold numbers."""
    made = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", no_wrap=True, overflow="ellipsis")
    return made


def facts_table(facts: Iterable[tuple[str, str | Text]] = ()) -> Table:
    """Names and values, without a heading."""
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, value in facts:
        made.add_row(name, value)
    return made


def status(text: str, *, quiet: bool = False) -> AbstractContextManager[object]:
    """Shows on a terminal what is being done."""
    console = errors()
    return console.status(f"{text} …") if console.is_terminal and not quiet else nullcontext()


def state_text(state: State | QueueState | WorkerState) -> Text:
    """A state in its colour; worker states have the colours of others of the same name."""
    return Text(state, style=COLOURS[state])


UNREADABLE = Text("unreadable", style="red")
"""Shown in place of the state of a task that can't be read."""


def age(at: datetime | None) -> str:
    """How long ago, or how soon."""
    if at is None:
        return "–"
    passed = (datetime.now(UTC) - at).total_seconds()
    return f"in {format_duration(-passed)}" if passed < -0.5 else format_duration(max(passed, 0.0))


def when_text(at: datetime | None) -> str:
    """An instant in local time, with its offset."""
    return "–" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def number(value: int) -> Text:
    """A count; zeros are dimmed."""
    return Text(f"{value:,}", style="" if value else "bright_black")


def share(part: float, whole: float) -> str:
    return "–" if not whole else f"{part / whole:.0%}"


def plain(value: Any) -> str:
    """A JSON value on one line."""
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) else f"{value:g}"
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
