"""What becomes of a task whose run did not complete: one rule for failures and losses, the same in every store."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

from msgspec import Struct

from dibs.core.lease import LONGEST_RUN
from dibs.core.options import is_several, shown
from dibs.core.settings import Resolved, check_span
from dibs.core.states import Reason
from dibs.core.task import MAX_LOSSES
from dibs.core.times import SECOND, Duration, duration
from dibs.errors import InvalidOption, Permanent, Retry, WrongResult

__all__ = [
    "JITTER",
    "TRANSIENT",
    "Backoff",
    "ExceptionTypes",
    "RetryDecision",
    "after_failure",
    "after_loss",
    "asked_delay",
    "check_backoff",
    "jitter",
    "retry_delay",
    "should_retry",
    "timeout_for",
]

ExceptionTypes = Sequence[type[BaseException]]
Backoff = Callable[[int, BaseException], Duration]
"""The wait after a failed attempt, from its number (from 1) and its error."""

TRANSIENT: tuple[type[Exception], ...] = (ConnectionError, TimeoutError, InterruptedError, BlockingIOError, OSError)
"""Errors that are usually temporary: ``retry_on=TRANSIENT`` retries these and nothing else."""

JITTER = 0.1
"""The share by which delays vary, so that what failed together does not return together."""


def retry_delay(options: Resolved, attempt: int, shake: float) -> Duration:
    """The wait after failed attempt number `attempt` (from 1): ``min(base·2^(n−1), cap)`` ± 10 %; `shake` in −1…1."""
    plain = min(options.retry_base << min(attempt - 1, 40), options.retry_cap)
    return max(0, round(plain * (1 + JITTER * shake)))


class RetryDecision(Struct, frozen=True):
    """What becomes of a task whose run did not complete: it runs again after `delay`, or is dead for `reason`."""

    delay: Duration = 0
    reason: Reason | None = None


def after_failure(
    options: Resolved, attempts: int, shake: float, *, permanent: bool = False, asked: Duration | None = None
) -> RetryDecision:
    """After failed attempt number `attempts`. `permanent`: another would not help. `asked`: the delay the run wants."""
    if permanent:
        return RetryDecision(reason=Reason.PERMANENT)
    if attempts > options.retries:
        return RetryDecision(reason=Reason.EXHAUSTED)
    return RetryDecision(retry_delay(options, attempts, shake) if asked is None else asked)


def after_loss(options: Resolved, losses: int, shake: float) -> RetryDecision:
    """After loss number `losses`. After the first the task runs again at once.

    Later ones get a wide jitter: if one task of a claim kills its worker, the others are not claimed together with it
    again.
    """
    if losses >= MAX_LOSSES:
        return RetryDecision(reason=Reason.LOST)
    if losses <= 1:
        return RetryDecision()
    plain = min(max(options.retry_base, SECOND) << min(losses - 2, 40), max(options.retry_cap, SECOND))
    return RetryDecision(round(plain * (1 + shake)))


def jitter(task_id: str, number: int) -> float:
    """A pseudo-random number from −1 to 1, the same for this run on every engine."""
    return crc32(f"{task_id}/{number}".encode()) / 0x7FFFFFFF - 1


def should_retry(error: BaseException, retry_on: ExceptionTypes = (Exception,), no_retry: ExceptionTypes = ()) -> bool:
    """Whether this exception is worth another attempt, if any are left."""
    if isinstance(error, Permanent | WrongResult):
        return False
    if isinstance(error, Retry):
        return True
    if isinstance(error, tuple(no_retry)):
        return False
    # SystemExit, KeyboardInterrupt and the like end an attempt, not the task.
    return isinstance(error, tuple(retry_on)) or not isinstance(error, Exception)


def check_backoff(value: object) -> Backoff:
    """A list of waits, of which the last repeats, or a function of the attempt's number, and of the error."""
    if callable(value):
        return by_function(value)
    if not is_several(value):
        raise InvalidOption(
            "backoff must be a list of seconds such as [1, 5, 30], or a function of the attempt's number, "
            f"not {shown(value)}."
        )
    waits = [check_wait(each) for each in value]
    if not waits:
        raise InvalidOption("backoff names no wait: give at least one, such as [1, 5, 30]; the last one repeats.")
    return lambda attempt, error: waits[min(attempt, len(waits)) - 1]


def by_function(function: Callable[..., Any]) -> Backoff:
    takes_error = takes(function, 2)
    if not takes_error and not takes(function, 1):
        raise InvalidOption(
            f"backoff={shown(function)} must take the number of the attempt that failed, or that and the error."
        )
    return lambda attempt, error: check_wait(function(attempt, error) if takes_error else function(attempt))


def check_wait(value: object) -> Duration:
    return check_span("retry_cap", value, "a wait in backoff")


def takes(function: Callable[..., Any], number: int) -> bool:
    """Whether it can be called with so many arguments, by position."""
    try:
        inspect.signature(function).bind(*range(number))
    except TypeError:
        return False
    except ValueError:  # a builtin that does not tell
        return number == 1
    return True


def asked_delay(error: BaseException) -> Duration | None:
    """The delay that the task itself asked for."""
    return duration(error.after, "Retry(after=…)") if isinstance(error, Retry) and error.after is not None else None


def timeout_for(options: Resolved, attempts: int) -> Duration | None:
    """How long the next run may take, after `attempts` failed ones."""
    if options.timeout is None:
        return None
    return min(round(options.timeout * options.timeout_growth ** min(attempts, 100)), LONGEST_RUN)
