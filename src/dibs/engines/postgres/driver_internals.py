"""All use of private attributes of asyncpg and asyncio. Each use checks for the attribute, and works without it.

`tests/engines/test_postgres_driver_internals.py` says which versions of asyncpg this was tested with.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["READ_BUFFER_BYTES", "closed_in_children", "limit_read_buffer", "transport_of", "transports", "unproxied"]

log = logging.getLogger("dibs.engines.postgres")

READ_BUFFER_BYTES = 64 * 1024

transports: set[Any] = set()
"""The transports whose sockets a forked child must not keep."""


def transport_of(connection: Any) -> Any | None:
    """The asyncio transport of a connection, None if this version of asyncpg has it elsewhere."""
    return getattr(connection, "_transport", None)


def unproxied(connection: Any) -> Any:
    """The connection behind the proxy that a pool has lent; the object itself if it is not a proxy.

    A pool lends one connection behind many proxies. Without this attribute, each proxy counts as another connection.
    """
    return getattr(connection, "_con", connection)


def limit_read_buffer(connection: Any) -> None:
    """Have asyncio allocate less for each read; without this attribute, reads are only slower.

    By default it allocates 256 KiB each time, which the allocator takes from the system each time. That was a tenth of
    the cost of a single enqueue.
    """
    transport = transport_of(connection)
    if hasattr(transport, "max_size"):
        transport.max_size = READ_BUFFER_BYTES  # type: ignore[union-attr]


@contextmanager
def closed_in_children(connection: Any) -> Iterator[None]:
    """Children that are forked inside this block do not keep the session of a connection alive.

    A child has a copy of the socket, so otherwise the session would outlive its parent.
    """
    transport = transport_of(connection)
    if transport is None:
        log.warning("This version of asyncpg is not known: a forked child can hide the death of its parent.")
    else:
        transports.add(transport)
    try:
        yield
    finally:
        transports.discard(transport)


def release_sockets() -> None:
    """In a forked child: replace each socket by /dev/null. Its number stays taken, so closing it later is harmless."""
    for transport in transports:
        socket = transport.get_extra_info("socket")
        number = -1 if socket is None else socket.fileno()
        if number >= 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, number, inheritable=False)
            os.close(nothing)
    transports.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=release_sockets)
