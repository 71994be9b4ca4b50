"""A store to do all this to, and the faults that it knows. A fault is begun, and answers how it is undone."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from pwd import getpwnam

import asyncpg
import psutil

from chaos.plan import ALL
from servers import redis
from servers.cluster import Cluster
from servers.guarded import run_as
from servers.proxy import Proxy

__all__ = ["STAGES", "PostgresStage", "RedisStage", "SqliteStage", "Stage"]

Undo = Callable[[], None]
DISK_SIZE = "1g"


class Stage:
    """What the stores have in common: nothing but their faces."""

    faults: dict[str, str]
    """The faults of the store itself, and whom each hits."""
    control_url: str

    def url(self, name: str) -> str:
        """By which a process reaches the store."""
        raise NotImplementedError

    def begin(self, kind: str, target: str, seconds: float, chance: random.Random) -> Undo:
        """Begin one of `faults`."""
        undo: Undo = getattr(self, kind.replace("-", "_"))(target, seconds, chance)
        return undo

    def close(self) -> None:
        raise NotImplementedError


def nothing() -> None:
    """What was done undoes itself."""


def may_mount() -> bool:
    """Whether this run has a view of the file system to itself, in which it may mount."""
    return "CHAOS_MAY_MOUNT" in os.environ


def mount(folder: Path, owner: str = "") -> Undo:
    """A small disk in memory."""
    folder.mkdir(exist_ok=True)
    options = f"size={DISK_SIZE},mode=700" + (f",uid={getpwnam(owner).pw_uid}" if owner else "")
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)

    def unmount() -> None:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)

    return unmount


def fill(file: Path) -> None:
    """Until nothing fits on the disk any more."""
    with file.open("wb", buffering=0) as filler:
        size, chunk = 0, 1 << 28
        while chunk:
            try:
                os.posix_fallocate(filler.fileno(), size, chunk)
                size += chunk
            except OSError:
                chunk //= 2


class SqliteStage(Stage):
    """A file; on a small disk of its own, where that can be had."""

    def __init__(self, journals: Path) -> None:
        self.stack = ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="dibs-chaos-"))
        self.stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.faults = {"read-held": ALL, "write-held": ALL}
        if may_mount():
            self.faults["disk-full"] = ALL
            self.stack.callback(mount(self.folder))
        self.file = self.folder / "tasks.db"
        self.control_url = f"sqlite:///{self.file}"

    def url(self, name: str) -> str:
        return self.control_url

    def read_held(self, target: str, seconds: float, chance: random.Random) -> Undo:
        """A reader that does not end: the log can't be folded back into the file."""
        return self.hold("BEGIN", "SELECT count(*) FROM sqlite_master")

    def write_held(self, target: str, seconds: float, chance: random.Random) -> Undo:
        """Somebody keeps the one write lock."""
        return self.hold("BEGIN IMMEDIATE")

    def hold(self, *statements: str) -> Undo:
        connection = sqlite3.connect(self.file, isolation_level=None, timeout=30, check_same_thread=False)
        for statement in statements:
            connection.execute(statement).fetchall()

        def let_go() -> None:
            connection.execute("ROLLBACK")
            connection.close()

        return let_go

    def disk_full(self, target: str, seconds: float, chance: random.Random) -> Undo:
        filler = self.folder / "filler"
        fill(filler)
        return lambda: filler.unlink(missing_ok=True)

    def close(self) -> None:
        self.stack.close()


class ProxiedStage(Stage):
    """A server, and a proxy before it for each process."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.proxies: dict[str, Proxy] = {}

    def sever(self, target: str, seconds: float, chance: random.Random) -> Undo:
        self.proxies[target].refuse()
        return self.proxies[target].heal

    def sever_all(self, target: str, seconds: float, chance: random.Random) -> Undo:
        for proxy in self.proxies.values():
            proxy.refuse()
        return self.heal_all

    def stall(self, target: str, seconds: float, chance: random.Random) -> Undo:
        self.proxies[target].stall()
        return self.proxies[target].heal

    def stall_all(self, target: str, seconds: float, chance: random.Random) -> Undo:
        for proxy in self.proxies.values():
            proxy.stall()
        return self.heal_all

    def heal_all(self) -> None:
        for proxy in self.proxies.values():
            proxy.heal()


NETWORK = {"sever": "worker", "sever-all": ALL, "stall": "worker", "stall-all": ALL}


class PostgresStage(ProxiedStage):
    """A server of its own, and a proxy before it for each process."""

    def __init__(self, journals: Path) -> None:
        super().__init__()
        own = ("server-restart", "server-crash", "terminate", "freeze", "snapshot-held")
        self.faults = dict.fromkeys(own, ALL) | NETWORK
        self.cluster = Cluster.new(fsync="on", full_page_writes="on")
        self.stack.callback(self.cluster.remove)
        self.database = "postgres"
        self.disk = self.cluster.folder / "disk"
        if may_mount():
            self.faults["disk-full"] = ALL
            self.database = "chaos"
            self.stack.callback(mount(self.disk, run_as()))
            self.cluster.sql(
                f"CREATE TABLESPACE small LOCATION '{self.disk}'", "CREATE DATABASE chaos TABLESPACE small"
            )
        self.control_url = self.at(self.cluster.port)

    def at(self, port: int) -> str:
        return self.cluster.url(port, schema="chaos").replace("/postgres?", f"/{self.database}?")

    def url(self, name: str) -> str:
        self.proxies[name] = self.stack.enter_context(Proxy(self.cluster.port))
        return self.at(self.proxies[name].port)

    # The server.

    def server_restart(self, target: str, seconds: float, chance: random.Random) -> Undo:
        return self.down("fast")

    def server_crash(self, target: str, seconds: float, chance: random.Random) -> Undo:
        return self.down("immediate")

    def down(self, mode: str) -> Undo:
        if self.cluster.process is None:
            return nothing
        self.thaw()
        self.cluster.stop(mode)
        return self.cluster.start

    def terminate(self, target: str, seconds: float, chance: random.Random) -> Undo:
        """Some of the server's sessions end under their users."""
        share = chance.choice([0.2, 1.0])
        self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE application_name = 'dibs' AND random() <= {share}"
        )
        return nothing

    def execute(self, statement: str) -> None:
        """If the server is there; on a connection that ends with it."""

        async def run() -> None:
            connection = await asyncpg.connect(self.cluster.dsn.replace("/postgres?", f"/{self.database}?"), timeout=2)
            try:
                await connection.execute(statement, timeout=2)
            finally:
                connection.terminate()

        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            asyncio.run(run())

    def freeze(self, target: str, seconds: float, chance: random.Random) -> Undo:
        """Every process of the server stands still."""
        self.signal(signal.SIGSTOP)
        return self.thaw

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        process = self.cluster.process
        if process is None:
            return
        with suppress(psutil.NoSuchProcess):
            server = psutil.Process(process.pid)
            for each in [server, *server.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(number)

    def snapshot_held(self, target: str, seconds: float, chance: random.Random) -> Undo:
        """A forgotten transaction: nothing that dies during it can be vacuumed."""
        ended = threading.Event()

        async def hold() -> None:
            connection = await asyncpg.connect(self.cluster.dsn.replace("/postgres?", f"/{self.database}?"), timeout=5)
            try:
                async with connection.transaction(isolation="repeatable_read"):
                    await connection.fetch("SELECT 1 FROM pg_class LIMIT 1")
                    await asyncio.to_thread(ended.wait)
            finally:
                connection.terminate()

        def run() -> None:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                asyncio.run(hold())

        threading.Thread(target=run, daemon=True).start()
        return ended.set

    def disk_full(self, target: str, seconds: float, chance: random.Random) -> Undo:
        fill(self.disk / "filler")
        return lambda: (self.disk / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        self.thaw()
        self.stack.close()


class RedisStage(ProxiedStage):
    """A server of its own with its log on disk, and a proxy before it for each process."""

    def __init__(self, journals: Path) -> None:
        super().__init__()
        own = ("server-restart", "server-crash", "terminate", "freeze", "paused", "memory-full", "scripts-gone")
        self.faults = dict.fromkeys(own, ALL) | NETWORK
        self.server = redis.Server(appendonly=True)
        self.stack.callback(self.server.remove)
        self.control_url = self.at(self.server.port)

    def at(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}/0?prefix=chaos&timeout=3"

    def url(self, name: str) -> str:
        self.proxies[name] = self.stack.enter_context(Proxy(self.server.port))
        return self.at(self.proxies[name].port)

    def server_restart(self, target: str, seconds: float, chance: random.Random) -> Undo:
        return self.down(self.server.stop)

    def server_crash(self, target: str, seconds: float, chance: random.Random) -> Undo:
        return self.down(self.server.kill)

    def down(self, end: Callable[[], None]) -> Undo:
        if not self.server.runs:
            return nothing
        self.server.thaw()
        end()
        return self.server.start

    def command(self, *words: object) -> None:
        """If the server is there, and answers."""
        if self.server.runs and not self.server.frozen:
            with suppress(OSError, redis.RedisError):
                self.server.command(*words)

    def terminate(self, target: str, seconds: float, chance: random.Random) -> Undo:
        """All of the server's connections end under their users."""
        self.command("CLIENT", "KILL", "TYPE", chance.choice(["normal", "pubsub"]))
        return nothing

    def freeze(self, target: str, seconds: float, chance: random.Random) -> Undo:
        if not self.server.runs:
            return nothing
        self.server.freeze()
        return self.server.thaw

    def paused(self, target: str, seconds: float, chance: random.Random) -> Undo:
        """The server answers no writes for a while."""
        self.command("CLIENT", "PAUSE", int(seconds * 1000), "WRITE")
        return lambda: self.command("CLIENT", "UNPAUSE")

    def memory_full(self, target: str, seconds: float, chance: random.Random) -> Undo:
        """The server refuses every write that could need memory."""
        self.command("CONFIG", "SET", "maxmemory", "1")
        return lambda: self.command("CONFIG", "SET", "maxmemory", "0")

    def scripts_gone(self, target: str, seconds: float, chance: random.Random) -> Undo:
        self.command("SCRIPT", "FLUSH")
        return nothing

    def close(self) -> None:
        self.server.thaw()
        self.stack.close()


STAGES: dict[str, Callable[[Path], Stage]] = {
    "sqlite": SqliteStage,
    "postgres": PostgresStage,
    "redis": RedisStage,
}
