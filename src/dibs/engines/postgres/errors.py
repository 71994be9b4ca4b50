"""From errors of PostgreSQL and its driver to the errors of Dibs."""

from __future__ import annotations

import re
import socket

import asyncpg
from asyncpg import exceptions

from dibs.errors import DibsError, StoreBusy, StoreError, StoreMismatch, StoreUnavailable

__all__ = [
    "CROWDED",
    "DRIVER_ERRORS",
    "LOST",
    "OCCUPIED",
    "READ_ONLY",
    "REPEATABLE",
    "leaves_doubt",
    "translation",
    "words_of",
]

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""Everything that a call can fail with because of the store."""

OCCUPIED = (exceptions.LockNotAvailableError,)
REPEATABLE = (exceptions.DeadlockDetectedError, exceptions.SerializationError, *OCCUPIED)
"""A conflict between two transactions: nothing was written, and trying again is right."""

UNANSWERED = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)

LOST = (
    exceptions.PostgresConnectionError,
    exceptions.AdminShutdownError,
    exceptions.CrashShutdownError,
    exceptions.IdleInTransactionSessionTimeoutError,
    exceptions.IdleSessionTimeoutError,
    asyncpg.InternalClientError,  # the driver has lost the connection, but does not report it yet
    ConnectionError,
)
"""The connection is gone: a new one may work."""

BUSY = (exceptions.QueryCanceledError, *REPEATABLE)
NOT_ALLOWED = (exceptions.InvalidPasswordError, exceptions.InvalidAuthorizationSpecificationError)
LACKS_RIGHT = (exceptions.InsufficientPrivilegeError,)
NOT_FOUND = (exceptions.InvalidCatalogNameError,)
READ_ONLY = (exceptions.ReadOnlySQLTransactionError,)
FULL = (exceptions.DiskFullError, exceptions.OutOfMemoryError)
CROWDED = (exceptions.TooManyConnectionsError,)
GONE = (
    exceptions.PostgresConnectionError,
    exceptions.OperatorInterventionError,
    exceptions.CannotConnectNowError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
ELSEWHERE = (exceptions.TargetServerAttributeNotMatched,)
LACKING = (exceptions.UndefinedTableError, exceptions.UndefinedFunctionError, exceptions.UndefinedColumnError)


DENIED = re.compile(r"permission denied for (?P<kind>database|schema|table|sequence|function|view) (?P<name>.+)")
GRANTS = {
    "database": 'GRANT CREATE ON DATABASE "{name}" TO …, or CREATE SCHEMA with this user as its owner',
    "schema": 'GRANT USAGE, CREATE ON SCHEMA "{name}" TO …',
    "table": "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA … TO …",
    "view": "GRANT SELECT ON ALL TABLES IN SCHEMA … TO …",
    "sequence": "GRANT USAGE ON ALL SEQUENCES IN SCHEMA … TO …",
    "function": "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA … TO …",
}


def missing_grant(told: str) -> str:
    """What an owner must run, as far as the server says what was denied."""
    found = DENIED.search(told)
    if found is None:
        return "Have its owner grant this user what it needs."
    return f"Have its owner run {GRANTS[found['kind']].format(name=found['name'])}."


def leaves_doubt(error: BaseException) -> bool:
    """Whether the result of a call is unknown, so that the connection must not be used again.

    It is known if the server refused the call or we raised the error ourselves. It is unknown if the connection stalls
    or is lost, or if the caller stopped waiting: the driver would ask the server to cancel, and wait for its answer.
    """
    if isinstance(error, exceptions.DataError):  # it was not even sent
        return False
    return isinstance(error, UNANSWERED) or not isinstance(error, Exception)


def words_of(error: BaseException) -> str:
    """What happened, in one line."""
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused (is it running, and is this its port?)"
    if isinstance(error, socket.gaierror):
        return f"the name of its host is not known ({error.strerror})"
    if isinstance(error, asyncpg.InternalClientError) and not isinstance(error, ELSEWHERE):
        return "the connection broke"  # the driver's own words describe its internal states
    if isinstance(error, FileNotFoundError):
        return "there is no such socket or file (is it running?)"
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def translation(error: BaseException, where: str) -> DibsError:
    """The Dibs error for a driver error. Whatever was under way has been, or will be, rolled back."""
    told = words_of(error)
    if isinstance(error, TimeoutError):
        return StoreUnavailable(
            f"{where} did not answer in time. What was asked may have been done; it may be repeated."
        )
    if "unsupported startup parameter" in told:
        return StoreMismatch(f"{where} is behind a pooler, such as PgBouncer ({told}). Add pgbouncer=yes to the URL.")
    for kinds, kind, text in (
        (BUSY, StoreBusy, "others were in the way for too long ({}). Nothing was written; try again."),
        (NOT_ALLOWED, StoreUnavailable, "does not let us in: {}. Check the user and the password."),
        (LACKS_RIGHT, StoreUnavailable, "lacks a right: {}. " + missing_grant(told)),
        (NOT_FOUND, StoreUnavailable, "has no such database: {}. Create it first."),
        (
            READ_ONLY,
            StoreUnavailable,
            "is read-only (a standby, or set so?): {}. Nothing was written; try again once it takes writes.",
        ),
        (
            ELSEWHERE,
            StoreUnavailable,
            "has no server that takes writes just now. Nothing was written; try again in a while.",
        ),
        (FULL, StoreUnavailable, "has no room left: {}. Nothing was written; try again once there is room."),
        (CROWDED, StoreUnavailable, "has no connection left: {}. Lower pool_size or raise max_connections."),
        (
            LACKING,
            StoreMismatch,
            "lacks something that Dibs made ({}). Was its schema changed or dropped? Open it again.",
        ),
        (GONE, StoreUnavailable, "can't be reached: {}. It may be repeated."),
    ):
        if isinstance(error, kinds):
            return kind(f"{where}{':' if kind is StoreBusy else ''} {text.replace('{}', told)}")
    return StoreError(f"{where}: {told}")
