"""What people and scripts see: tables and words on one side, one JSON document on the other."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from dibs.core.humanize import format_duration
from dibs.core.states import State
from dibs.core.task import QueueState, WorkerState

__all__ = [
    "COLOURS",
    "UNREADABLE",
    "Listing",
    "age",
    "emit",
    "errors",
    "facts_table",
    "fitting",
    "note",
    "number",
    "out",
    "plain",
    "say",
    "share",
    "show",
    "state_text",
    "status",
    "table",
    "unique_end",
    "when_text",
    "wrap",
]


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


ENDLESS = 1_000_000
"""Characters of a line into a pipe, whose reader wants whole lines."""

GAP = 2
"""Blanks between two columns."""

SHORTEST_END = 8
"""Characters of an id that are shown at least."""

BY_END = ("TASK",)
"""Columns of dotted names, of which the end tells one from another."""


def out() -> Console:
    """Stdout. No markup: what users stored is shown as it is."""
    width = None if sys.stdout.isatty() else ENDLESS
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def errors() -> Console:
    """Stderr: progress, questions and notes."""
    return Console(file=sys.stderr, markup=False, highlight=False, emoji=False)


def say(text: str | Text, indent: int = 0) -> None:
    """One line to people, never cut; on a terminal it goes on below at a blank, with this indent."""
    wrap(out(), text, indent)


def note(text: str) -> None:
    """One line to people beside the data, on stderr."""
    wrap(errors(), text)


def wrap(console: Console, text: str | Text, indent: int = 0) -> None:
    """Words stay whole, also those that are longer than a line: people copy them."""
    whole = text_of(text).split("\n", allow_blank=True)
    room = console.width - indent if console.is_terminal else ENDLESS
    for part in whole:
        for place, line in enumerate(lines_of(part, room)):
            console.print(continued(line, indent) if place else line, soft_wrap=True)


def lines_of(text: Text, width: int) -> list[Text]:
    lines = textwrap.wrap(text.plain, width, drop_whitespace=False, break_long_words=False, break_on_hyphens=False)
    ends = list(accumulate(map(len, lines)))
    return list(text.divide(ends[:-1]))


def continued(line: Text, indent: int) -> Text:
    """A further line of a text, which may begin with the blank at which the text was broken."""
    blanks = len(line.plain) - len(line.plain.lstrip())
    return Text(" " * indent).append_text(line[blanks:])


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


class Column(msgspec.Struct):
    """A column of a listing. `least`: so many characters will do; `by_end`: those at the end."""

    title: str
    right: bool = False
    least: int | None = None
    by_end: bool = False
    is_id: bool = False
    wraps: bool = False


class Listing:
    """A table that fits its terminal. It is whole where there is room; else ids are shown by their ends, columns leave
    in a given order, and texts end with an ellipsis."""

    def __init__(self, columns: Iterable[Column], leave: Iterable[str] = ()) -> None:
        self.columns = list(columns)
        self.leave = tuple(leave)
        self.rows: list[tuple[str | Text, ...]] = []

    @property
    def row_count(self) -> int:
        return len(self.rows)

    def add_row(self, *cells: str | Text) -> None:
        self.rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        yield self.fitted(options.max_width)

    def fitted(self, width: int) -> Table:
        """The table for a terminal of so many columns."""
        cells = [[*map(text_of, row), *[Text()] * (len(self.columns) - len(row))] for row in self.rows]
        parts = [Part(column, [row[place] for row in cells]) for place, column in enumerate(self.columns)]
        if needed(parts) > width:
            for part in parts:
                part.shorten_ids()
        left = parts if needed(parts) <= width else self.most_important(parts, width)
        shrink(left, width)
        made = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
        for part in left:
            part.add_to(made)
        for row in zip(*(part.shown() for part in left), strict=True):
            made.add_row(*row)
        return made

    def most_important(self, parts: list[Part], width: int) -> list[Part]:
        """As many as there is room for, and a last one that tells of the others."""
        more = Part(Column("…"), [Text()] * len(self.rows))
        left = [*parts, more]
        for title in self.leave:
            if needed(left) > width:
                left = [part for part in left if part.title != title]
        return parts if len(left) > len(parts) else left


class Part:
    """A column with its cells, and how wide it is shown."""

    def __init__(self, column: Column, cells: list[Text]) -> None:
        self.column, self.cells, self.title = column, cells, column.title
        self.width = max(cell.cell_len for cell in (Text(column.title), *cells))
        self.least = self.width if column.least is None else min(self.width, max(column.least, len(self.title)))

    def shorten_ids(self) -> None:
        if self.column.is_id:
            self.width = self.least = min(self.width, unique_end({cell.plain for cell in self.cells}) + 1)

    def add_to(self, made: Table) -> None:
        overflow, justify = "fold" if self.column.wraps else "ellipsis", "right" if self.column.right else "left"
        made.add_column(
            self.title,
            justify=justify,  # type: ignore[arg-type]
            no_wrap=not self.column.wraps,
            overflow=overflow,  # type: ignore[arg-type]
            max_width=self.width,
        )

    def shown(self) -> list[Text]:
        return [self.end_of(cell) if self.column.by_end else cell for cell in self.cells]

    def end_of(self, cell: Text) -> Text:
        return cell if cell.cell_len <= self.width else Text(f"…{cell.plain[1 - self.width :]}", style=cell.style)


def text_of(cell: str | Text) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)


def needed(parts: list[Part]) -> int:
    """The columns of a terminal in which these can be shown."""
    return sum(part.least + GAP for part in parts) - GAP


def shrink(parts: list[Part], width: int) -> None:
    """Make the widest narrower until all fit, or none can be."""
    surplus = sum(part.width + GAP for part in parts) - GAP - width
    while surplus > 0:
        widest = max(parts, key=lambda part: part.width if part.width > part.least else 0)
        if widest.width <= widest.least:
            return
        widest.width -= 1
        surplus -= 1


def unique_end(texts: set[str]) -> int:
    """How many characters at the end tell these from each other."""
    longest = max(map(len, texts), default=0)
    for length in range(SHORTEST_END, longest):
        if len({text[-length:] for text in texts}) == len(texts):
            return length
    return longest


def table(
    *titles: str,
    right: Iterable[str] = (),
    ids: Iterable[str] = (),
    short: Mapping[str, int] | None = None,
    wraps: Iterable[str] = (),
    leave: Iterable[str] = (),
) -> Listing:
    """A listing. Columns named in `right` hold numbers, in `ids` ids; those in `short` are shown in so many characters
    at least, and go on below in `wraps`; those in `leave` leave in this order where there is no room."""
    least = dict(short or {})
    columns = [
        Column(
            title,
            right=title in right,
            least=least.get(title),
            by_end=title in ids or title in BY_END,
            is_id=title in ids,
            wraps=title in wraps,
        )
        for title in titles
    ]
    return Listing(columns, leave)


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
