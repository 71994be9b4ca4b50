"""Errors on the wire: RFC 9457 problem documents, from one table of Dibs's errors, for both sides."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from dibs import errors
from dibs.errors import DibsError

__all__ = ["BY_SLUG", "MEDIA_TYPE", "Problem", "error_of", "problem_of"]

MEDIA_TYPE = "application/problem+json"

STATUSES: dict[type[DibsError], int] = {
    errors.PayloadTooLarge: 413,
    errors.UsageError: 422,
    errors.QueueFull: 429,
    errors.RateLimited: 429,
    errors.UnknownTask: 404,
    errors.UnknownQueue: 404,
    errors.UnknownWorker: 404,
    errors.UnknownSchedule: 404,
    errors.UnknownWorkflow: 404,
    errors.UnknownStep: 404,
    errors.NotAllowed: 403,
    errors.Refused: 409,
    errors.ResultGone: 404,
    errors.TaskError: 409,
    errors.LeaseLost: 409,
    errors.Closed: 503,
    errors.BlobLost: 404,
    errors.StoreError: 503,
    errors.DibsError: 500,
}
"""Each error, or the nearest one above it in the tree, to the status that it is answered with."""

TOO_MANY = "too-many-requests"
"""The problem of a client that asks faster than it may: for a worker, the store is busy."""

TOKENS = {
    "token-missing": "the Dibs server needs a token: give token=, or set DIBS_TOKEN.",
    "token-unknown": "the Dibs server does not know this token: it is mistyped, was revoked, or has expired.",
}
"""What is wrong with a request of the HTTP engine, in the words of its users."""

RETRY_AFTER = 1.0
"""Seconds after which to try again, where an error does not say."""

FIELDS = ("retry_after", "task_id", "ids", "reason", "error_type", "error_message", "traceback")
"""What an error carries besides its message."""


class Problem(Struct, kw_only=True, omit_defaults=True):
    """Why a request was not done. `type` is `about:blank#` and the name of the error, in lower case with dashes."""

    type: str
    title: str
    status: int
    detail: str = ""
    retry_after: float | None = None
    """Seconds after which it may be tried again."""
    task_id: str | None = None
    ids: list[str] = []
    reason: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    traceback: str | None = None


def slug_of(kind: type[Exception]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


def title_of(kind: type[Exception]) -> str:
    words = slug_of(kind).replace("-", " ")
    return words[0].upper() + words[1:]


BY_SLUG: dict[str, type[DibsError]] = {
    slug_of(kind): kind for name in errors.__all__ if issubclass(kind := getattr(errors, name), DibsError)
}


def status_of(kind: type[BaseException]) -> int:
    return next(STATUSES[each] for each in kind.__mro__ if each in STATUSES)


def problem_of(error: DibsError) -> Problem:
    """The document about an error."""
    kind = next(each for each in type(error).__mro__ if each in BY_SLUG.values())
    status = status_of(kind)
    given = {name: getattr(error, name) for name in FIELDS if getattr(error, name, None) not in (None, "")}
    if status == 503:
        given.setdefault("retry_after", RETRY_AFTER)
    return Problem(type=f"about:blank#{slug_of(kind)}", title=title_of(kind), status=status, detail=str(error), **given)


def error_of(status: int, body: bytes) -> DibsError:
    """The error that an answer stands for."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeError):
        return plain_error(status, f"the server answered with status {status}")
    slug = problem.type.rpartition("#")[2]
    kind = BY_SLUG.get(slug)
    if slug == TOO_MANY:
        return errors.StoreBusy(problem.detail)
    if slug in TOKENS:
        return errors.NotAllowed(TOKENS[slug])
    if kind is None:
        return plain_error(status, problem.detail or problem.title)
    takes = TAKES.get(kind)
    facts: Mapping[str, Any] = {} if takes is None else {name: getattr(problem, name) or "" for name in takes}
    return make(kind, problem.detail, facts)


def make(kind: Callable[..., DibsError], message: str, facts: Mapping[str, Any]) -> DibsError:
    return kind(message, **facts)


TAKES: dict[type[DibsError], tuple[str, ...]] = {
    errors.QueueFull: ("retry_after",),
    errors.RateLimited: ("retry_after",),
    errors.DependencyCycle: ("ids",),
    errors.IdempotencyConflict: ("task_id",),
    errors.TaskFailed: ("task_id", "reason", "error_type", "error_message", "traceback"),
    errors.TaskCancelled: ("task_id", "reason"),
    errors.ResultGone: ("task_id",),
    errors.WrongResult: ("task_id",),
    errors.TaskError: ("task_id",),
}
"""What the constructors of errors take besides the message."""


def plain_error(status: int, detail: str) -> DibsError:
    if status in (401, 403):
        return errors.NotAllowed(detail)
    if status >= 500:
        return errors.StoreUnavailable(detail)
    return errors.UsageError(detail)
