"""What becomes of a task after a run: from what the run returned or raised to the settlement. Pure."""

from __future__ import annotations

import logging
import traceback
from types import TracebackType

from msgspec import structs

from dibs.core.codec import Codec
from dibs.core.options import storable
from dibs.core.retry import JITTER, Backoff, asked_delay, jitter, should_retry
from dibs.core.task import Failure, Lease, LeasedTask, Outcome, Settlement
from dibs.core.times import SECOND, Duration, seconds
from dibs.errors import (
    BlobCorrupt,
    BlobLost,
    BlobStoreUnavailable,
    InvalidArguments,
    InvalidOption,
    PayloadTooLarge,
    ResultGone,
    WrongResult,
)
from dibs.runtime.definition import TaskDefinition

__all__ = [
    "MESSAGE_LIMIT",
    "NOT_COMMITTED",
    "PERMANENT",
    "Snoozed",
    "cancelled",
    "completed",
    "describe",
    "failed",
    "failed_with",
    "not_committed",
    "not_kept",
    "put_off",
    "released",
    "returned",
    "shorten",
    "timed_out",
    "unready",
    "with_backoff",
]

log = logging.getLogger("dibs.worker")

TRACEBACK_LIMIT = 16 * 1024
MESSAGE_LIMIT = 4 * 1024
OURS = ("dibs.worker", "dibs.attempt", "dibs.integrations")

SNOOZE: Duration = 5 * SECOND
LONGEST_SNOOZE: Duration = 60 * SECOND
"""How long a task is put off while its arguments can't be fetched; it doubles each time."""


NOT_COMMITTED = Failure(
    type="TransactionNotCommitted",
    message="the task called complete_in and ended, but its transaction did not commit",
)

PERMANENT = (BlobLost, BlobCorrupt, ResultGone, PayloadTooLarge)
"""Errors after which arguments can never be prepared."""


class Snoozed(BaseException):
    """Ends a run that puts its task off. Not an Exception, so that `except Exception` in a task lets it pass."""

    def __init__(self, delay: Duration, note: str) -> None:
        super().__init__(note)
        self.delay = delay
        self.note = note


def completed(task: LeasedTask, payload: bytes | None) -> Settlement:
    """The run completed with this result."""
    return Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.COMPLETED, result=payload)


def returned(task: LeasedTask, definition: TaskDefinition, value: object, codec: Codec) -> Settlement:
    """The run returned `value`. If that can't be its result, the task fails for good: a retry would not help."""
    if not definition.keep_result:
        return completed(task, None)
    try:
        return completed(task, definition.signature.encode_result(value, codec, task.id))
    except WrongResult as error:  # its traceback would show Dibs alone
        return failed_with(task, structs.replace(describe(error), traceback=""), retry=False)
    except InvalidArguments as error:
        return failed_with(task, describe(error), retry=False)


def failed(task: LeasedTask, definition: TaskDefinition, error: BaseException) -> Settlement:
    """The run raised `error`."""
    if isinstance(error, Snoozed):
        return snoozed(task, error.delay, error.note)
    retry = should_retry(error, definition.retry_on, definition.no_retry)
    try:
        delay = asked_delay(error)
    except InvalidOption:  # Retry(after=nonsense) still asks for a retry
        delay = None
    if retry and delay is None and definition.backoff is not None:
        delay = backed_off(task, definition.backoff, error)
    return failed_with(task, describe(error), retry=retry, delay=delay)


def with_backoff(task: LeasedTask, definition: TaskDefinition, settlement: Settlement) -> Settlement:
    """The settlement of a run that failed without raising (timed out, killed), with the wait that its task wants."""
    failure, backoff = settlement.failure, definition.backoff
    if backoff is None or failure is None or settlement.outcome is not Outcome.FAILED or settlement.delay is not None:
        return settlement
    said = failure.message if settlement.timed_out else f"{failure.type}: {failure.message}"
    error = TimeoutError(said) if settlement.timed_out else RuntimeError(said)
    return structs.replace(settlement, delay=backed_off(task, backoff, error))


def backed_off(task: LeasedTask, backoff: Backoff, error: BaseException) -> Duration | None:
    """The wait that the task's own backoff gives; None, which leaves it to the task's options, if that fails."""
    try:
        return backoff(task.attempt, error)
    except Exception:  # the user's function, or what it returned
        log.exception("The backoff of %s failed; the wait is that of its retry_base and retry_cap.", task.name)
        return None


def unready(task: LeasedTask, error: BaseException) -> Settlement:
    """There was no run, because the arguments could not be prepared.

    If the blob store can't be reached, the task is put off and no attempt is counted. If a blob or a record is gone,
    the task is dead. Everything else (arguments that no longer fit the function, a codec that is missing) is retried
    whatever the task's options are, so that a deployment can fix it.
    """
    if isinstance(error, BlobStoreUnavailable):
        plain = min(SNOOZE << min(task.handed_back, 10), LONGEST_SNOOZE)
        delay = round(plain * (1 + JITTER * jitter(task.id, task.attempts + task.losses)))
        note = shorten(f"put off, as its arguments could not be fetched: {error}", MESSAGE_LIMIT)
        return snoozed(task, delay, note)
    return failed_with(task, describe(error), retry=not isinstance(error, PERMANENT))


def not_kept(task: LeasedTask, size: int, error: BlobStoreUnavailable) -> Settlement:
    """The run completed, but its result could not be stored in the blob store."""
    failure = describe(error)
    message = f"the task ran and gave a result of {size:,} bytes, but it could not be kept: {failure.message}"
    return failed_with(task, structs.replace(failure, message=shorten(message, MESSAGE_LIMIT)), retry=True)


def not_committed(task: LeasedTask) -> Settlement:
    """The run has ended, and its own transaction was to complete it. The store knows whether that was committed."""
    return failed_with(task, NOT_COMMITTED, retry=True)


def timed_out(task: LeasedTask, timeout: Duration) -> Settlement:
    """The run took too long."""
    failure = Failure(type="TimeoutError", message=f"the run took longer than its timeout of {seconds(timeout):g} s")
    return failed_with(task, failure, retry=True, timed_out=True)


def failed_with(
    task: LeasedTask, failure: Failure | None, *, retry: bool, delay: Duration | None = None, timed_out: bool = False
) -> Settlement:
    """The attempt failed. The store decides whether and when the task runs again."""
    how = Outcome.FAILED if retry else Outcome.PERMANENT
    lease = Lease(task.id, task.lease)
    return Settlement(lease=lease, outcome=how, delay=delay, failure=failure, timed_out=timed_out)


def cancelled(task: LeasedTask, note: str) -> Settlement:
    """The run was stopped because the task was cancelled."""
    return Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.CANCELLED, note=note)


def released(task: LeasedTask, note: str) -> Settlement:
    """The task is handed back: nothing was wrong with it."""
    return Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.RELEASED, note=note)


def snoozed(task: LeasedTask, delay: Duration, note: str) -> Settlement:
    """The task runs later, because its run asked for it; no attempt is counted."""
    return Settlement(lease=Lease(task.id, task.lease), outcome=Outcome.SNOOZED, delay=delay, note=note)


def put_off(task: LeasedTask, delay: Duration) -> Settlement:
    """The task runs later, apart from others that may kill their worker."""
    return snoozed(task, delay, f"lost its worker {task.losses} times: runs apart from other such tasks")


def describe(error: BaseException) -> Failure:
    """An exception as text, without Dibs's own frames, bounded in size."""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        message = str(error)
    except Exception:
        message = "(its message can't be shown: __str__ raised)"
    return Failure(type=name, message=shorten(message, MESSAGE_LIMIT), traceback=text_of(error))


def text_of(error: BaseException) -> str:
    """The traceback from the task's own first frame on."""
    try:
        lines = traceback.format_exception(type(error), error, from_task(error.__traceback__))
    except Exception:  # an exception class can break even this
        return ""
    return shorten("".join(lines), TRACEBACK_LIMIT)


def from_task(trace: TracebackType | None) -> TracebackType | None:
    """Skip the frames of Dibs that lead to the task."""
    own = trace
    while own is not None and own.tb_frame.f_globals.get("__name__", "").startswith(OURS):
        own = own.tb_next
    return own or trace


def shorten(text: str, limit: int) -> str:
    """Keep both ends of a long text."""
    text = storable(text)
    if len(text) <= limit:
        return text
    half = limit // 2 - 20
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
