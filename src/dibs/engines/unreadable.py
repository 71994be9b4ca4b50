"""Stored rows that can't be read: damaged, or written by a newer version.

A row that can't be decoded stays unchanged, is logged once, and is skipped by every reader.
It is tried again every 5 s.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar
from uuid import UUID

import msgspec

from dibs.core.states import State
from dibs.core.times import SECOND, Duration, Instant
from dibs.engines.decisions.facts import Track
from dibs.engines.values import Claimed, Finding, Level, UnreadableTask
from dibs.errors import Unreadable

__all__ = [
    "MAX_ROWS",
    "MOMENT",
    "TITLE",
    "UNREADABLE",
    "UnreadableReport",
    "UnreadableRows",
    "is_among",
    "next_look",
    "problem_of",
    "readable",
    "state_or",
    "unreadable_queue",
    "unreadable_task",
]

log = logging.getLogger("dibs.engines")

Key = TypeVar("Key", bound=str | int)
Stored = TypeVar("Stored")
Value = TypeVar("Value")

UNREADABLE = (msgspec.DecodeError, ValueError, TypeError, LookupError, OverflowError)
"""What reading a row may raise that is the row's own fault."""

LOOK_AGAIN = 5.0
"""Seconds until tasks that were set aside are read again."""

MOMENT: Duration = SECOND // 10
"""Delay before the next claim if there are more unreadable tasks than can be skipped."""

TITLE = "unreadable rows"
REMEDY = "Damaged, or written by a newer Dibs: upgrade, or repair the row"
REMEDIES = {
    "task": f"{REMEDY}, or delete it: dibs tasks purge ID",
    "schedule": f"{REMEDY}, or delete it: dibs schedules remove NAME",
}

MAX_ROWS = 10_000
"""The most rows that one process logs, and tasks that it skips."""

STATES = frozenset(State)
SHOWN = 5
LONGEST = 200


class UnreadableRows:
    """What one process could not read of a store."""

    def __init__(self) -> None:
        self.tasks: dict[str, None] = {}
        """Ids that claims, rescue and chores skip."""
        self.steps: dict[int, None] = {}
        """Follow-ups that are left to other processes."""
        self.crowded: set[int] = set()
        """Tracks with more unreadable tasks than fit in `tasks`: claims skip them altogether."""
        self.is_helpless = False
        """Some tasks have ids that are not text: no statement can skip them."""
        self.tracks: set[int] = set()
        """Tracks that tasks name but that do not exist."""
        self.rechecked_at = 0.0
        self._logged: set[tuple[str, str]] = set()

    def log_once(self, what: str, name: object, problem: str) -> None:
        """Log a row, once."""
        key = (what, str(name))
        if key in self._logged or len(self._logged) > MAX_ROWS:
            return
        self._logged.add(key)
        if len(self._logged) > MAX_ROWS:
            log.warning("More than %d rows can't be read; no more of them are logged. Run dibs doctor.", MAX_ROWS)
            return
        log.warning("The %s %s can't be read, and is set aside as it is: %s.", *key, problem)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to skip."""
        return not self.tasks and not self.steps and not self.crowded and not self.is_helpless

    @property
    def is_full(self) -> bool:
        """Whether there is more to skip than is kept, or than a statement can skip."""
        return self.is_helpless or len(self.tasks) >= MAX_ROWS or len(self.steps) >= MAX_ROWS

    @property
    def size(self) -> int:
        """Grows with everything that claims skip from now on."""
        return len(self.tasks) + len(self.crowded)

    def skip_task(self, task_id: str, track: object = None) -> None:
        """Skip a task from now on; if there are too many of them, all of its track."""
        if self.is_empty:
            self.rechecked_at = time.monotonic()
        if len(self.tasks) < MAX_ROWS or task_id in self.tasks:
            self.tasks[task_id] = None
        elif isinstance(track, int):
            self.crowded.add(track)

    def skip_nameless(self) -> None:
        """There is a task that no statement can skip: empty claims wait a little."""
        if self.is_empty:
            self.rechecked_at = time.monotonic()
        self.is_helpless = True

    def skip_step(self, step: int) -> None:
        """Leave a follow-up to other processes."""
        if self.is_empty:
            self.rechecked_at = time.monotonic()
        if len(self.steps) < MAX_ROWS:
            self.steps[step] = None

    def paced(self, claimed: Claimed) -> Claimed:
        """Where not everything can be skipped, an empty claim is repeated after a while, not at once."""
        if claimed.tasks or not self.is_full:
            return claimed
        again = round(LOOK_AGAIN * SECOND)
        due_in = again if claimed.next_due_in is None else claimed.next_due_in
        return Claimed([], min(max(due_in, MOMENT), again))

    def start_recheck(self, is_needed: bool = False) -> bool:
        """Whether to read again what was set aside, or what else needs it. Follow-ups are always tried again."""
        if (self.is_empty and not is_needed) or time.monotonic() < self.rechecked_at + LOOK_AGAIN:
            return False
        self.rechecked_at = time.monotonic()
        self.steps.clear()
        self.tracks.clear()
        self.crowded.clear()
        self.is_helpless = False
        return True

    def forget(self, ids: Iterable[str]) -> None:
        """These can be read again, or no longer exist."""
        for task_id in ids:
            self.tasks.pop(task_id, None)


def next_look() -> float:
    """When to read again what can't be read now, by the monotonic clock."""
    return time.monotonic() + LOOK_AGAIN


def problem_of(error: BaseException) -> str:
    """The problem in one line."""
    text = " ".join((str(error) or type(error).__name__).split()).rstrip(".")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def readable(
    aside: UnreadableRows, what: str, rows: Iterable[tuple[Key, Stored]], decode: Callable[[Stored], Value]
) -> Iterator[tuple[Key, Value]]:
    """The rows that can be read, each with its key; the others are logged."""
    for key, stored in rows:
        try:
            value = decode(stored)
        except UNREADABLE as error:
            aside.log_once(what, key, problem_of(error))
        else:
            yield key, value


def state_or(stored: object, otherwise: State) -> State:
    """A stored state, or `otherwise` if this version does not know it."""
    return State(stored) if isinstance(stored, str) and stored in STATES else otherwise


def unreadable_task(
    task_id: object, track: Track | None, state: object, ended: bool, worker: object, problem: str
) -> UnreadableTask:
    """What the columns of a row say, as far as they can be read."""
    return UnreadableTask(
        id=str(task_id),
        problem=problem,
        state=state_or(state, State.DEAD if ended else State.PENDING),
        created_at=made_at(str(task_id)),
        queue="" if track is None else track.queue,
        name="" if track is None else track.name,
        worker=worker if isinstance(worker, str) else None,
    )


def made_at(task_id: str) -> Instant:
    """When a task was made, according to its id; 0 if the id is not a UUIDv7."""
    try:
        made = UUID(task_id)
    except ValueError:
        return 0
    return (made.int >> 80) * 1000 if made.version == 7 else 0


def unreadable_queue(name: str, problem: str) -> Unreadable:
    """The error for a write to a queue whose settings can't be read."""
    return Unreadable(
        f"the settings of queue {name!r} can't be read: {problem}. They were damaged, or written by a newer Dibs: "
        "upgrade, or repair the row."
    )


class UnreadableReport(UnreadableRows):
    """The rows that a check finds unreadable: kept instead of logged."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: dict[str, dict[str, str]] = {}

    def log_once(self, what: str, name: object, problem: str) -> None:
        of_kind = self.problems.setdefault(what, {})
        if len(of_kind) < MAX_ROWS:
            of_kind.setdefault(str(name), problem)

    def findings(self) -> Iterator[Finding]:
        """One finding per kind of row with unreadable rows."""
        for what, problems in self.problems.items():
            shown = "; ".join(f"{what} {name}: {problem}" for name, problem in islice(problems.items(), SHOWN))
            rest = "; …" if len(problems) > SHOWN else ""
            number = f"{len(problems):,}{' or more' if len(problems) == MAX_ROWS else ''}"
            detail = f"{number} set aside as stored ({shown}{rest}). {REMEDIES.get(what, REMEDY)}"
            yield Finding(Level.ERROR, TITLE, detail)


def is_among(findings: Iterable[Finding], what: str, name: str) -> bool:
    """Whether a health check names this row as unreadable."""
    return any(finding.title == TITLE and f"{what} {name}: " in finding.detail for finding in findings)
