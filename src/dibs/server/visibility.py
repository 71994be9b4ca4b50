"""What a caller may see of the answers of an engine: tasks of its queues, and payloads only with the right to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import structs

from dibs.core.codec import REDACTED
from dibs.core.schedules import ScheduleRecord
from dibs.core.task import Failure, HistoryEntry, TaskRecord
from dibs.engines.events import Event, EventPage
from dibs.engines.figures import Counts
from dibs.engines.steps import StepRecord
from dibs.engines.values import AuditEntry, Cancel, Page, Peeked, WorkerRecord
from dibs.server.caller import Caller

__all__ = ["AFTER", "is_step_of", "shown_event"]

Known = TypeVar("Known")

SECRET_DETAILS = ("error", "note", "message", "progress_message")
"""Details of events that may quote arguments or results."""
SECRET_FACTS = ("args", "text", "note", "reason", "query", "filter", "task", "metadata", "headers")
"""The same of what the audit log says was changed."""


def shown(caller: Caller, task: Any) -> Any:
    """A task as this caller may see it."""
    if caller.sees_payloads or not isinstance(task, TaskRecord):
        return task
    return structs.replace(
        task,
        args=REDACTED,
        result=None if task.result is None else REDACTED,
        failure=redacted(task.failure),
        note="",
        progress_message="",
    )


def shown_event(caller: Caller, event: Event) -> Event:
    if caller.sees_payloads or not event.details:
        return event
    details = {name: value for name, value in event.details.items() if name not in SECRET_DETAILS}
    return structs.replace(event, details=details)


def redacted(failure: Failure | None) -> Failure | None:
    return None if failure is None else Failure(type=failure.type, message="redacted")


def is_step_of(caller: Caller, step: StepRecord) -> bool:
    return caller.queues is None or (bool(step.query.queues) and set(step.query.queues) <= caller.queues)


def after_get(caller: Caller, found: list[Any]) -> list[Any]:
    return [None if each is None or not caller.serves(each.queue) else shown(caller, each) for each in found]


def after_history(caller: Caller, found: list[HistoryEntry]) -> list[HistoryEntry]:
    if caller.sees_payloads:
        return found
    return [structs.replace(entry, failure=redacted(entry.failure), note="") for entry in found]


def after_search(caller: Caller, page: Page) -> Page:
    return structs.replace(page, tasks=[shown(caller, each) for each in page.tasks])


def after_peek(caller: Caller, peeked: Peeked) -> Peeked:
    return structs.replace(peeked, tasks=[shown(caller, each) for each in peeked.tasks])


def after_counts(caller: Caller, counts: Counts) -> Counts:
    if caller.queues is None:
        return counts
    return Counts(
        tasks=served(caller, counts.tasks),
        counters=served(caller, counts.counters),
        kinds=[each for each in counts.kinds if caller.serves(each.queue)],
        errors=served(caller, counts.errors),
    )


def served(caller: Caller, by_queue: dict[str, Known]) -> dict[str, Known]:
    return {queue: known for queue, known in by_queue.items() if caller.serves(queue)}


def of_queues(caller: Caller, found: list[Any]) -> list[Any]:
    """Of figures: those of the caller's queues."""
    return [each for each in found if caller.serves(each.queue)]


def after_queues(caller: Caller, found: list[Any]) -> list[Any]:
    return [each for each in found if caller.serves(each.name)]


def after_workers(caller: Caller, found: list[WorkerRecord]) -> list[WorkerRecord]:
    """Those that serve one of the caller's queues; which others they serve is not its business."""
    if caller.queues is None:
        return found
    mine = [(each, tuple(filter(caller.serves, each.queues))) for each in found]
    return [structs.replace(each, queues=queues) for each, queues in mine if queues]


def after_schedules(caller: Caller, found: list[ScheduleRecord]) -> list[ScheduleRecord]:
    mine = [each for each in found if caller.serves(each.task.queue)]
    if caller.sees_payloads:
        return mine
    return [structs.replace(each, task=structs.replace(each.task, args=REDACTED)) for each in mine]


def after_events(caller: Caller, page: EventPage) -> EventPage:
    return structs.replace(page, events=[shown_event(caller, event) for event in page.events])


def after_steps(caller: Caller, found: list[StepRecord]) -> list[StepRecord]:
    return [shown_step(caller, step) for step in found if is_step_of(caller, step)]


def shown_step(caller: Caller, step: StepRecord) -> StepRecord:
    if caller.sees_payloads:
        return step
    act = structs.replace(step.act, note="") if isinstance(step.act, Cancel) else step.act
    return structs.replace(step, act=act, query=structs.replace(step.query, text=""))


def after_step(caller: Caller, step: StepRecord | None) -> StepRecord | None:
    return None if step is None else shown_step(caller, step)


def after_audit(caller: Caller, found: list[AuditEntry]) -> list[AuditEntry]:
    """Reasons and filters are people's words, and schedules have arguments."""
    if caller.sees_payloads:
        return found
    return [structs.replace(each, detail="", before=bare(each.before), after=bare(each.after)) for each in found]


def bare(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in SECRET_FACTS}


AFTER: dict[str, Callable[[Caller, Any], Any]] = {
    "get": after_get,
    "history": after_history,
    "search": after_search,
    "peek": after_peek,
    "counts": after_counts,
    "backlog": of_queues,
    "stats": of_queues,
    "queues": after_queues,
    "workers": after_workers,
    "schedules": after_schedules,
    "events": after_events,
    "steps": after_steps,
    "act_on": after_step,
    "advance": after_step,
    "audit": after_audit,
}
