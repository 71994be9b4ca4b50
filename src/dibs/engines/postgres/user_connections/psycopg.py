"""psycopg 3, blocking and async. Its row factories, loaders, dumpers and cursors are the user's: none is used."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Dumper
from psycopg.rows import tuple_row

from dibs.engines.postgres.user_connections.base import NO_TRANSACTION, DriverConnection, closed, unsuitable
from dibs.engines.postgres.user_connections.text_codec import Row, as_text, from_binary
from dibs.engines.user_connections import FAILED, UserConnection
from dibs.errors import UsageError

__all__ = ["Blocking", "Waiting", "driver_connection", "user_connection"]


class Encoded:
    """A parameter as it goes over the wire."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class EncodedDumper(Dumper):
    """Passes it on unchanged, without a type."""

    oid = 0

    def dump(self, obj: Encoded) -> bytes:
        return obj.data


class Shared:
    """What both kinds of connection have in common. Each has its own `run`."""

    errors: tuple[type[BaseException], ...] = (psycopg.Error, OSError)

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.key: object = connection

    def check(self) -> None:
        status = self.connection.info.transaction_status
        if self.connection.closed or status == pq.TransactionStatus.UNKNOWN:
            raise closed()
        if self.connection.pgconn.pipeline_status != pq.PipelineStatus.OFF:
            raise UsageError("the connection is in pipeline mode: leave the pipeline before you hand it over.")
        if status == pq.TransactionStatus.INERROR:
            raise UsageError(FAILED)
        if status == pq.TransactionStatus.ACTIVE:
            raise UsageError("the connection is busy with another statement (a COPY or a stream?): end that first.")
        if status == pq.TransactionStatus.IDLE and self.connection.autocommit:
            raise UsageError(NO_TRANSACTION)

    def encoded(self, parameters: tuple[Any, ...]) -> list[Encoded | None]:
        encoding = self.connection.info.encoding
        return [None if each is None else Encoded(as_text(each).encode(encoding)) for each in parameters]

    def rows(self, result: pq.abc.PGresult | None) -> list[Row]:
        if result is None:
            return []
        encoding = self.connection.info.encoding
        columns = range(result.nfields)
        names = {(result.fname(column) or b"").decode(): column for column in columns}
        kinds = [result.ftype(column) for column in columns]

        def value(row: int, column: int) -> Any:
            data = result.get_value(row, column)
            return None if data is None else from_binary(kinds[column], bytes(data), encoding)

        return [Row(names, [value(row, column) for column in columns]) for row in range(result.ntuples)]

    async def run(self, sql: str, parameters: tuple[Any, ...]) -> tuple[list[Row], str]:
        """The rows of a statement, and its status."""
        raise NotImplementedError

    async def fetch(self, sql: str, *parameters: Any) -> list[Any]:
        return [*(await self.run(sql, parameters))[0]]

    async def fetchrow(self, sql: str, *parameters: Any) -> Any:
        rows, _ = await self.run(sql, parameters)
        return rows[0] if rows else None

    async def fetchval(self, sql: str, *parameters: Any) -> Any:
        row = await self.fetchrow(sql, *parameters)
        return None if row is None else row[0]

    async def execute(self, sql: str, *parameters: Any) -> str:
        return (await self.run(sql, parameters))[1]


class Blocking(Shared):
    """A connection whose statements block."""

    async def run(self, sql: str, parameters: tuple[Any, ...]) -> tuple[list[Row], str]:
        with psycopg.RawCursor(self.connection, row_factory=tuple_row) as cursor:
            cursor.adapters.register_dumper(Encoded, EncodedDumper)
            # Not prepared: no plan of ours stays in the user's session.
            cursor.execute(sql.encode(), self.encoded(parameters) or None, prepare=False, binary=True)
            return self.rows(cursor.pgresult), cursor.statusmessage or ""


class Waiting(Shared):
    """A connection whose statements are awaited."""

    async def run(self, sql: str, parameters: tuple[Any, ...]) -> tuple[list[Row], str]:
        async with psycopg.AsyncRawCursor(self.connection, row_factory=tuple_row) as cursor:
            cursor.adapters.register_dumper(Encoded, EncodedDumper)
            await cursor.execute(sql.encode(), self.encoded(parameters) or None, prepare=False, binary=True)
            return self.rows(cursor.pgresult), cursor.statusmessage or ""


def driver_connection(connection: Any) -> DriverConnection:
    """The `DriverConnection` for a connection of this driver."""
    if not hasattr(psycopg, "RawCursor"):
        raise UsageError(f"Dibs can join transactions of psycopg 3.2 or newer; this is {psycopg.__version__}.")
    if isinstance(connection, psycopg.AsyncConnection):
        return Waiting(connection)
    if isinstance(connection, psycopg.Connection):
        return Blocking(connection)
    raise unsuitable(connection, "give the connection itself")


def user_connection(connection: Any) -> UserConnection[DriverConnection]:
    driver_side = driver_connection(connection)

    async def opened() -> DriverConnection:
        return driver_side

    return UserConnection(isinstance(driver_side, Waiting), opened)
