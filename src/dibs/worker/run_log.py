"""What the log says about runs: one line when an attempt fails, an error when a task dies; the rest is quieter.

Every record has the facts of the task as attributes, so that JSON logs and error trackers have them as fields.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from dibs.attempt.log_filter import facts_of
from dibs.core.humanize import format_duration
from dibs.core.states import State
from dibs.core.task import Failure, LeasedTask, Outcome, Settlement
from dibs.core.times import SECOND, Duration
from dibs.engines.values import SettleAnswer
from dibs.worker.run import Run

__all__ = ["extra_of", "log_end", "log_start", "logs_all_runs"]

log = logging.getLogger("dibs.worker")

LONGEST_MESSAGE = 300

AFTERWARDS = {Outcome.CANCELLED: "was cancelled", Outcome.RELEASED: "was handed back", Outcome.SNOOZED: "was put off"}


def logs_all_runs() -> bool:
    """Whether runs that start, and those that complete, are logged. Asked once: they cost too much to ask each time."""
    return log.isEnabledFor(logging.DEBUG)


def extra_of(task: LeasedTask, **more: Any) -> dict[str, Any]:
    """The attributes of a record about a run."""
    return {**facts_of(task), "lease": task.lease, **more}


def log_start(run: Run) -> None:
    task = run.task
    log.debug("%s %s starts (attempt %s).", task.name, task.id, attempt_of(task), extra=extra_of(task))


def log_end(run: Run, settlement: Settlement, answer: SettleAnswer) -> None:
    """The store has taken the outcome of a run."""
    outcome = settlement.outcome
    if outcome is Outcome.COMPLETED:
        log_completion(run)
    elif outcome is Outcome.FAILED or outcome is Outcome.PERMANENT:
        log_failure(run.task, settlement, answer)
    else:  # what goes back without having started is no news of the task, and may be hundreds of them
        quiet = outcome is Outcome.RELEASED and run.started is None
        what = "was cancelled" if answer.state is State.CANCELLED else AFTERWARDS[outcome]
        task, note = run.task, settlement.note and f": {first_line(settlement.note)}"
        level = logging.DEBUG if quiet else logging.INFO
        log.log(level, "%s %s %s%s%s.", task.name, task.id, what, note, again(answer.due_in), extra=extra_of(task))


def log_completion(run: Run) -> None:
    task, now = run.task, time.monotonic()
    took = (run.ended or now) - (run.started or now)
    extra = extra_of(task, duration=round(took, 6))
    log.debug("%s %s completed in %s.", task.name, task.id, format_duration(took), extra=extra)


def log_failure(task: LeasedTask, settlement: Settlement, answer: SettleAnswer) -> None:
    failure = settlement.failure or Failure(type="Error", message="no reason was given")
    extra = extra_of(task, error_type=failure.type)
    if answer.state is State.DEAD:
        log_death(task, settlement, failure, extra)
        return
    what, error = "failed", shown(failure)
    if settlement.timed_out:
        what, error = "timed out", first_line(failure.message)
    then = "; it was cancelled and is not tried again" if answer.state is State.CANCELLED else again(answer.due_in or 0)
    line = "%s %s %s (attempt %s): %s%s."
    log.warning(line, task.name, task.id, what, attempt_of(task), error.rstrip("."), then, extra=extra)


def log_death(task: LeasedTask, settlement: Settlement, failure: Failure, extra: dict[str, Any]) -> None:
    """The traceback is in the record as text: it may come from another process."""
    why = "not to be retried" if settlement.outcome is Outcome.PERMANENT else "no attempt is left"
    how = "timed out and is dead" if settlement.timed_out else "is dead"
    line, args = "%s %s %s (attempt %s, %s): %s", (task.name, task.id, how, attempt_of(task), why, shown(failure))
    if not log.isEnabledFor(logging.ERROR):
        return
    if failure.traceback:
        extra = {**extra, "traceback": failure.traceback}
    record = log.makeRecord(log.name, logging.ERROR, __file__, 0, line, args, None, "log_death", extra)
    record.exc_text = failure.traceback.rstrip() or None  # formatters print it below the line
    log.handle(record)


def again(due_in: Duration | None) -> str:
    if due_in is None:
        return ""
    return f"; again in {format_duration(due_in / SECOND)}" if due_in else "; again at once"


def attempt_of(task: LeasedTask) -> str:
    return f"{task.attempt} of {max(task.attempt, task.options.retries + 1)}"


def shown(failure: Failure) -> str:
    return f"{failure.type}: {first_line(failure.message)}" if failure.message.strip() else failure.type


def first_line(text: str) -> str:
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= LONGEST_MESSAGE else f"{line[:LONGEST_MESSAGE]}…"
