"""What PostgreSQL and its driver complain about, as the errors that Dibs promises."""

from __future__ import annotations

import asyncpg
from asyncpg import exceptions

from dibs.errors import DibsError, StoreBusy, StoreError, StoreMismatch, StoreUnavailable

__all__ = ["DRIVER_ERRORS", "LOST", "REPEATABLE", "translation"]

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""Everything that a call can fail with because of the store."""

REPEATABLE = (exceptions.DeadlockDetectedError, exceptions.SerializationError)
"""Two transactions were in each other's way: nothing was written, and trying again is right."""

LOST = (
    exceptions.PostgresConnectionError,
    exceptions.AdminShutdownError,
    exceptions.CrashShutdownError,
    exceptions.IdleInTransactionSessionTimeoutError,
    exceptions.IdleSessionTimeoutError,
    asyncpg.InternalClientError,  # it has been told that it is gone, but does not know it yet
    ConnectionError,
)
"""The connection is gone: a new one may work."""

BUSY = (exceptions.LockNotAvailableError, exceptions.QueryCanceledError, *REPEATABLE)
NOT_ALLOWED = (
    exceptions.InvalidPasswordError,
    exceptions.InvalidAuthorizationSpecificationError,
    exceptions.InsufficientPrivilegeError,
)
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
LACKING = (exceptions.UndefinedTableError, exceptions.UndefinedFunctionError, exceptions.UndefinedColumnError)


def translation(error: BaseException, where: str) -> DibsError:
    """The Dibs error for a driver's error. Whatever was under way has been, or will be, rolled back."""
    told = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, TimeoutError):
        return StoreUnavailable(
            f"{where} did not answer in time. What was asked may have been done; it may be repeated."
        )
    for kinds, kind, text in (
        (BUSY, StoreBusy, "others were in the way for too long ({}). Nothing was written; try again."),
        (NOT_ALLOWED, StoreUnavailable, "does not let us in: {}. Check the user, the password and its rights."),
        (NOT_FOUND, StoreUnavailable, "has no such database: {}. Create it first."),
        (READ_ONLY, StoreUnavailable, "is read-only (a standby?): {}. Nothing was written."),
        (FULL, StoreUnavailable, "has no room left: {}. Nothing was written and nothing was lost."),
        (CROWDED, StoreUnavailable, "has no connection left: {}. Lower pool_size or raise max_connections."),
        (
            LACKING,
            StoreMismatch,
            "lacks something that Dibs made ({}). Was its schema changed or dropped? Open it again.",
        ),
        (GONE, StoreUnavailable, "can't be reached: {}. It may be repeated."),
    ):
        if isinstance(error, kinds):
            return kind(f"{where} {text.format(told)}" if kind is not StoreBusy else f"{where}: {text.format(told)}")
    return StoreError(f"{where}: {told}")
