"""How tasks look on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from rich.padding import Padding
from rich.text import Text

from dibs.client.humanize import number
from dibs.client.info import HistoryLine, TaskInfo
from dibs.client.tasks import Prerequisite
from dibs.client.why import Why
from dibs.core.graph import Rule
from dibs.core.humanize import format_duration
from dibs.core.states import State
from dibs.engines.values import COUNT_LIMIT
from dibs.terminal import UNREADABLE, Listing, age, facts_table, plain, show, state_text, table, when_text

__all__ = ["FOLLOWERS_SHOWN", "Surroundings", "first_line", "peek_table", "show_task", "task_table"]

NEEDS_SHOWN = 20
FOLLOWERS_SHOWN = 20


def task_table(tasks: Sequence[TaskInfo]) -> None:
    """One line per task."""
    made = table(
        *("ID", "STATE", "PRI", "QUEUE", "TASK", "AGE", "NOTE"),
        right=["PRI", "AGE"],
        ids=["ID"],
        short={"QUEUE": 8, "TASK": 14, "NOTE": 16},
        leave=["PRI", "AGE", "QUEUE"],
    )
    for info in tasks:
        made.add_row(
            info.id,
            state_text(info.state) if info.unreadable is None else UNREADABLE,
            str(info.priority) if info.unreadable is None else "",
            info.queue,
            info.name,
            age(info.created_at),
            note_of(info),
        )
    show(made)


def note_of(info: TaskInfo) -> str:
    """The one thing worth knowing at a glance."""
    if info.unreadable is not None:
        return f"stored as {info.state}: {info.unreadable}"
    if info.state is State.RUNNING:
        done = "" if info.progress is None else f", {info.progress:.0%}"
        return (
            f"for {age(info.started_at)} on {info.worker}{done}{' (asked to cancel)' if info.cancel_requested else ''}"
        )
    if info.state in (State.SCHEDULED, State.RETRYING):
        again = f"due {age(info.due_at)}"
        return again if info.error is None else f"{again}, attempt {info.failed_attempts} failed: {first_line(info)}"
    if info.state is State.DEAD:
        return f"{info.reason}: {first_line(info)}" if info.error else str(info.reason)
    if info.state is State.CANCELLED:
        return f"{info.reason}: {info.note}" if info.note not in ("", info.reason) else str(info.reason)
    if info.state is State.COMPLETED:
        return f"ran {format_duration(info.ran)}"
    return ""


def first_line(info: TaskInfo) -> str:
    if info.error is None:
        return ""
    message = info.error.message.strip().splitlines()
    return f"{info.error.type}: {message[0]}" if message else info.error.type


class Surroundings(Struct, frozen=True, kw_only=True):
    """What belongs to a task besides its own record."""

    needs: Sequence[Prerequisite]
    followers: Sequence[TaskInfo]
    history: Sequence[HistoryLine]
    position: tuple[int, datetime | None] | None = None
    why: Why | None = None


def show_task(info: TaskInfo, around: Surroundings) -> None:
    """Everything about one task."""
    known = ((name, value) for name, value in facts_of(info) if isinstance(value, Text) or value not in ("", "–"))
    facts = facts_table(known)
    if around.position is not None:
        facts.add_row("position", position_text(*around.position))
    if around.why is not None:
        facts.add_row("why", "\n".join((around.why.text, *around.why.details)))
    show(facts)
    needs, history = around.needs, around.history
    if needs:
        show(Text("\nwaits for" if info.state is State.BLOCKED else "\nwaited for", style="bold"))
        show(Padding.indent(needs_table(needs), 2))
    if around.followers:
        show(Text("\nfollowers, which wait for it", style="bold"))
        show(Padding.indent(followers_table(around.followers), 2))
    if info.error is not None and info.error.traceback:
        show(Text("\nlast error", style="bold"))
        show(Padding.indent(Text(info.error.traceback.rstrip()), 2))
    if history:
        show(Text("\nhistory", style="bold"))
        show(Padding.indent(history_table(history), 2))


def facts_of(info: TaskInfo) -> list[tuple[str, str | Text]]:
    if info.unreadable is not None:
        return [
            ("task", info.name),
            ("id", info.id),
            ("state", Text.assemble(UNREADABLE, f" (stored as {info.state})")),
            ("problem", info.unreadable),
            ("queue", info.queue),
            ("created", moment(info.created_at)),
            ("worker", info.worker or ""),
        ]
    return [
        ("task", info.name),
        ("id", info.id),
        ("state", state_line(info)),
        ("queue", info.queue),
        ("priority", priority_text(info)),
        ("arguments", plain(info.args)),
        ("created", moment(info.created_at)),
        ("due", moment(info.due_at) if info.state in (State.SCHEDULED, State.RETRYING) else ""),
        ("started", moment(info.started_at)),
        ("finished", moment(info.finished_at)),
        ("updated", "" if info.updated_at == info.finished_at else moment(info.updated_at)),
        (
            "waited, ran",
            f"{format_duration(info.waited)}, {format_duration(info.ran)}" if info.waited is not None else "",
        ),
        ("deadline", moment(info.deadline)),
        ("expires", moment(info.expires_at)),
        ("retries", retries_text(info)),
        ("losses", str(info.losses) if info.losses else ""),
        ("timeout", "" if info.timeout is None else format_duration(info.timeout)),
        ("worker", info.worker or ""),
        ("lease", str(info.lease) if info.lease else ""),
        ("progress", progress_text(info)),
        ("result", plain(info.result) if info.state is State.COMPLETED else ""),
        ("error", first_line(info)),
        ("key", info.key or ""),
        ("workflow", info.workflow or ""),
        ("tenant", info.tenant),
        ("partition", info.partition or ""),
        ("requires", ", ".join(info.requires)),
        ("metadata", plain(info.metadata) if info.metadata else ""),
        ("headers", plain(info.headers) if info.headers else ""),
        ("enqueued by", info.parent or ""),
    ]


def priority_text(info: TaskInfo) -> str:
    parts = [str(info.priority)]
    if info.inherited > info.priority:
        parts.append(f"counts as {info.inherited} because of what waits for it")
    if info.effective_priority is not None:
        parts.append(f"effective {info.effective_priority:.1f}")
    return ", ".join(parts)


def retries_text(info: TaskInfo) -> str:
    if not info.failed_attempts:
        return str(info.retries)
    return f"{info.retries}; {info.failed_attempts} of at most {number(info.retries + 1, 'attempt')} failed"


def progress_text(info: TaskInfo) -> str:
    """How far it has come; of one that has completed, there is nothing left to say."""
    if info.progress is None or info.state is State.COMPLETED:
        return ""
    return f"{info.progress:.0%} {info.progress_message}".rstrip()


def state_line(info: TaskInfo) -> Text:
    line = state_text(info.state)
    if info.reason:
        note = f": {info.note}" if info.note not in ("", info.reason) else ""
        line.append(f" ({info.reason}{note})", style="default")
    if info.cancel_requested:
        line.append(" (asked to cancel)", style="default")
    return line


def moment(at: datetime | None) -> str:
    if at is None:
        return ""
    distance = age(at)
    return f"{when_text(at)} ({distance if distance.startswith('in ') else f'{distance} ago'})"


def needs_table(needs: Sequence[Prerequisite]) -> Listing:
    """What a task waits for, open edges first."""
    made = table("ID", "STATE", "TASK", "RULE", ids=["ID"], short={"TASK": 14}, leave=["RULE"])
    for need in sorted(needs, key=lambda each: not each.is_open)[:NEEDS_SHOWN]:
        state = Text("pruned") if need.state is None else state_text(need.state)
        rule = need.rule if need.rule is Rule.IF_FAILED else f"otherwise {need.rule}"
        made.add_row(need.id, state, need.name or "", rule)
    if len(needs) > NEEDS_SHOWN:
        made.add_row(f"and {len(needs) - NEEDS_SHOWN:,} more")
    return made


def followers_table(followers: Sequence[TaskInfo]) -> Listing:
    """The oldest tasks that wait for one."""
    made = table("ID", "STATE", "TASK", "QUEUE", ids=["ID"], short={"TASK": 14, "QUEUE": 8}, leave=["QUEUE"])
    for info in followers[:FOLLOWERS_SHOWN]:
        made.add_row(info.id, state_text(info.state) if info.unreadable is None else UNREADABLE, info.name, info.queue)
    if len(followers) > FOLLOWERS_SHOWN:
        made.add_row("and more")
    return made


def position_text(ahead: int, starts_at: datetime | None) -> str:
    """How many tasks go before it, and when it should start as things go."""
    count = f"more than {ahead:,}" if ahead >= COUNT_LIMIT else f"{ahead:,}"
    tasks = "no task is ahead" if not ahead else f"{count} task{'s' * (ahead != 1)} ahead"
    return tasks if starts_at is None or not ahead else f"{tasks}, should start {age(starts_at)}"


def peek_table(tasks: Sequence[TaskInfo]) -> None:
    """The next tasks of one queue, in order."""
    made = table(
        *("#", "ID", "PRI", "EFF", "TASK", "AGE", "NEXT STEP"),
        right=["#", "PRI", "EFF", "AGE"],
        ids=["ID"],
        short={"TASK": 14},
        leave=["NEXT STEP", "AGE", "PRI"],
    )
    for place, info in enumerate(tasks, 1):
        effective = "" if info.effective_priority is None else f"{info.effective_priority:.1f}"
        step = "" if info.rerank_at is None else age(info.rerank_at)
        made.add_row(str(place), info.id, str(info.priority), effective, info.name, age(info.created_at), step)
    show(made)


def history_table(history: Sequence[HistoryLine]) -> Listing:
    made = table(
        *("WHEN", "EVENT", "LEASE", "BY", "NOTE"),
        right=["LEASE"],
        ids=["BY"],
        short={"NOTE": 24},
        wraps=["NOTE"],
        leave=["LEASE", "BY"],
    )
    for line in history:
        error = "" if line.error is None else f"{line.error.type}: {line.error.message}"
        note = ": ".join(part for part in (run_text(line), line.note, error) if part)
        made.add_row(when_text(line.at), line.event, str(line.lease or ""), line.actor or line.worker or "", note)
    return made


def run_text(line: HistoryLine) -> str:
    """When the run started that ended here, and how long it took."""
    if line.started_at is None:
        return ""
    return f"ran {format_duration(line.ran)} from {line.started_at.astimezone():%H:%M:%S}"
