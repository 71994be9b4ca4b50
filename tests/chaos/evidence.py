"""What the journals and the store say about a run, as values for the checker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from chaos.journal import Line, read
from dibs import Dibs, Filter
from dibs.client.info import TaskInfo

__all__ = ["Entry", "Evidence", "Run", "Spell", "Task", "gather"]

PAGE = 500


@dataclass(frozen=True)
class Run:
    """One run of one task, as the process that ran it wrote it down. No end: the process was gone before it."""

    task: str
    lease: int
    who: str
    start: float
    end: float | None = None
    how: str = ""


@dataclass(frozen=True)
class Entry:
    """A line of a task's history."""

    event: str
    lease: int
    worker: str | None


@dataclass(frozen=True)
class Task:
    """A task as the store tells it when all is over. Times are the store's, in seconds."""

    id: str
    name: str
    queue: str
    state: str
    reason: str | None
    priority: int
    lease: int
    attempts: int
    losses: int
    result: Any
    partition: str | None
    fire_time: str | None
    ready_at: float | None
    started_at: float | None
    finished_at: float | None
    history: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Spell:
    """A fault, from when to when, and whom it hit."""

    kind: str
    target: str
    begin: float
    end: float


@dataclass
class Evidence:
    """Everything that the checker looks at."""

    tasks: dict[str, Task]
    lines: list[Line]
    lease: float
    runs: dict[str, list[Run]] = field(default_factory=dict)
    spells: list[Spell] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    """What workers and producers said to stderr."""

    def of(self, what: str) -> list[Line]:
        return [line for line in self.lines if line["what"] == what]

    @property
    def began(self) -> float:
        return float(self.lines[0]["t"])

    @property
    def ended(self) -> float:
        return float(self.lines[-1]["t"])


def gather(app: Dibs, folder: Path, lease: float) -> Evidence:
    """Read the journals and the whole store."""
    lines = read(folder)
    tasks = {info.id: told(info, app) for info in all_tasks(app)}
    logs = {file.stem: file.read_text(errors="replace") for file in folder.glob("*.log")}
    return Evidence(tasks, lines, lease, runs_in(lines), spells_in(lines), logs)


def all_tasks(app: Dibs) -> Iterable[TaskInfo]:
    cursor = None
    while True:
        page = app.tasks.search(Filter(), limit=PAGE, cursor=cursor)
        yield from page.tasks
        cursor = page.cursor
        if cursor is None:
            return


def told(info: TaskInfo, app: Dibs) -> Task:
    return Task(
        id=info.id,
        name=info.name,
        queue=info.queue,
        state=info.state.value,
        reason=info.reason,
        priority=info.priority,
        lease=info.lease,
        attempts=info.failed_attempts,
        losses=info.losses,
        result=info.result,
        partition=info.partition,
        fire_time=info.headers.get("fire-time"),
        ready_at=stamp(info.ready_at),
        started_at=stamp(info.started_at),
        finished_at=stamp(info.finished_at),
        history=history(app, info.id),
    )


def history(app: Dibs, task_id: str) -> tuple[Entry, ...]:
    return tuple(Entry(str(line.event), line.lease, line.worker) for line in app.tasks.history(task_id))


def stamp(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def runs_in(lines: Iterable[Line]) -> dict[str, list[Run]]:
    """The runs of each task, in the order of their starts. A start that is told twice is two runs."""
    ends: dict[tuple[str, int, str], Line] = {}
    for line in lines:
        if line["what"] == "end":
            ends.setdefault((line["task"], line["lease"], line["who"]), line)
    runs: dict[str, list[Run]] = defaultdict(list)
    for line in lines:
        if line["what"] == "start":
            end = ends.get((line["task"], line["lease"], line["who"]))
            closed = (None, "") if end is None else (end["t"], end["how"])
            runs[line["task"]].append(Run(line["task"], line["lease"], line["who"], line["t"], *closed))
    return dict(runs)


def spells_in(lines: Iterable[Line]) -> list[Spell]:
    begun: dict[int, Line] = {}
    spells = []
    for line in lines:
        if line["what"] == "fault":
            begun[line["number"]] = line
        elif line["what"] == "healed":
            began = begun.pop(line["number"])
            spells.append(Spell(line["kind"], line["target"], began["t"], line["t"]))
    return spells
