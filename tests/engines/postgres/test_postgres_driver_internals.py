"""What Dibs uses of asyncpg's and asyncio's private attributes is there, and nothing breaks where it is not.

These tests were run with asyncpg 0.30.0, 0.31.0 and 0.32.0. A newer version fails the first of them until it has been
tried: run this file and test_postgres_presence.py with it, then add it to `TESTED`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from types import SimpleNamespace

import asyncpg
import pytest

from dibs.engines.postgres import driver_internals
from dibs.engines.postgres.driver_internals import (
    READ_BUFFER_BYTES,
    closed_in_children,
    limit_read_buffer,
    unproxied,
)
from dibs.engines.postgres.pool import Address, Pool
from servers.postgres import server_url

TESTED = ("0.30", "0.31", "0.32")


def test_this_version_of_asyncpg_was_tested() -> None:
    assert ".".join(asyncpg.__version__.split(".")[:2]) in TESTED


def test_a_new_connection_reads_in_small_pieces() -> None:
    async def test() -> None:
        connection = await Pool(Address(dsn=server_url())).connect()
        transport = driver_internals.transport_of(connection)
        connection.terminate()
        assert transport is not None
        assert transport.max_size == READ_BUFFER_BYTES

    asyncio.run(test())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_no_copy_of_the_socket() -> None:
    async def test() -> int:
        connection = await Pool(Address(dsn=server_url())).connect()
        with closed_in_children(connection):
            number = driver_internals.transport_of(connection).get_extra_info("socket").fileno()  # type: ignore[union-attr]
            child = os.fork()
            if child == 0:
                os._exit(0 if os.path.samestat(os.fstat(number), Path(os.devnull).stat()) else 1)
            assert await connection.fetchval("SELECT 1") == 1, "the parent keeps it"
        connection.terminate()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert asyncio.run(test()) == 0
    assert not driver_internals.transports


def test_without_the_private_attributes_all_else_works(caplog: pytest.LogCaptureFixture) -> None:
    unknown = SimpleNamespace()
    limit_read_buffer(unknown)
    limit_read_buffer(SimpleNamespace(_transport=object()))
    with caplog.at_level(logging.WARNING, "dibs"), closed_in_children(unknown):
        pass
    assert "not known" in caplog.text
    assert unproxied(unknown) is unknown


def test_a_pool_lends_one_connection_behind_many_proxies() -> None:
    async def test() -> None:
        async with asyncpg.create_pool(server_url(), min_size=1, max_size=1) as pool:
            async with pool.acquire() as first:
                found = unproxied(first)
            async with pool.acquire() as second:
                assert first is not second
                assert unproxied(second) is found
                assert isinstance(found, asyncpg.Connection)

    asyncio.run(test())
