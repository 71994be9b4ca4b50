"""PostgreSQL servers that a test may stop, crash, promote and fill up, each with its own data and port.

A guard beside each server holds a pipe from this process. When that closes, however the process ended, the guard stops
the server and removes its files.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from pwd import getpwnam

import asyncpg
import psutil

from servers.guarded import PATIENCE, free_port, new_folder, run_as
from servers.guardian import identity
from servers.postgres import NEWEST, binaries

__all__ = ["Cluster", "has_disks", "join_urls"]

MOUNT = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"'
GUARD = 'cat > /dev/null; "$1" stop -D "$2" -m immediate; rm -rf "$3"'

STOP = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}

SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_wal_size": "256MB",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "hot_standby": "on",
    "wal_receiver_status_interval": "1s",
    "log_min_messages": "warning",
    "listen_addresses": "127.0.0.1",
}
numbers = count(1)


class Cluster:
    """One server. `start` and `stop` it as often as you like; `remove` it at the end."""

    def __init__(self, **settings: str) -> None:
        self.programs = binaries(NEWEST)
        self.folder = new_folder("dibs-cluster-")
        self.data = self.folder / "data"
        self.disk_size: str | None = None
        self.port = free_port()
        self.settings = {**SETTINGS, **settings}
        self.process: subprocess.Popen[bytes] | None = None
        self.guard = subprocess.Popen(
            ["sh", "-c", GUARD, "guard", self.programs / "pg_ctl", self.data, self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **identity(run_as()),  # type: ignore[arg-type]
        )

    @classmethod
    def new(cls, disk_size: str | None = None, **settings: str) -> Cluster:
        """A running server with an empty database. `disk_size`: beside its data there is a small disk, `disk`."""
        cluster = cls(**settings)
        cluster.disk_size = disk_size
        cluster.run("initdb", "-D", cluster.data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
        cluster.start()
        return cluster

    def standby(self) -> Cluster:
        """A running copy that follows this one."""
        other = Cluster(**self.settings)
        source = f"host=127.0.0.1 port={self.port} user=postgres"
        other.run("pg_basebackup", "-D", other.data, "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        other.start()
        return other

    # Life and death.

    def start(self) -> None:
        """Returns when it takes connections."""
        assert self.process is None
        options = {**self.settings, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.with_disk(), str(self.programs / "postgres"), "-D", str(self.data), *words],
                stdout=log,
                stderr=log,
                start_new_session=True,
                **({} if self.disk_size else identity(run_as())),  # type: ignore[arg-type]
            )
        self.until_ready()

    def with_disk(self) -> list[str]:
        """What root starts the server through to give it a small disk. Nobody else sees it, and it ends with it."""
        if self.disk_size is None:
            return []
        place = self.folder / "disk"
        place.mkdir(exist_ok=True)
        user = getpwnam(run_as())
        options = f"size={self.disk_size},uid={user.pw_uid},gid={user.pw_gid},mode=700"
        become = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        return ["unshare", "--mount", "sh", "-c", MOUNT, "mount", options, str(place), *become]

    @property
    def disk(self) -> Path:
        """The small disk, as this process can see it."""
        assert self.process is not None
        return Path(f"/proc/{self.process.pid}/root{self.folder}/disk")

    def stop(self, mode: str = "fast") -> None:
        """`immediate` is what a crash does: what is not in the log is gone."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(STOP[mode])
            process.wait(PATIENCE)

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """All its processes stand still. The kernel still takes what clients send, and new connections."""
        assert self.process is not None
        first = psutil.Process(self.process.pid)
        first.suspend()  # from now on there are no new ones
        others = first.children(recursive=True)
        try:
            for process in others:
                process.suspend()
            yield
        finally:
            for process in [*others, first]:
                process.resume()

    def promote(self) -> None:
        """Make a standby the primary."""
        self.run("pg_ctl", "promote", "-D", self.data, "-w")

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.guard.communicate(timeout=PATIENCE)

    def until_ready(self) -> None:
        until = time.monotonic() + PATIENCE
        while not self.answers():
            assert self.process is not None
            assert self.process.poll() is None, self.last_words()
            assert time.monotonic() < until, self.last_words()
            time.sleep(0.02)

    def answers(self) -> bool:
        async def ask() -> None:
            connection = await asyncpg.connect(self.dsn, timeout=5)
            await connection.close(timeout=5)

        try:
            asyncio.run(ask())
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        return True

    def last_words(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    # Talking to it.

    @property
    def dsn(self) -> str:
        """For a connection of the test's own."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?sslmode=disable"

    def url(self, port: int | None = None, **options: str) -> str:
        """For Dibs, with a schema that nobody has used; `port` of a proxy before it."""
        options = {"schema": f"dibs_{next(numbers)}", "sslmode": "disable", **options}
        words = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/postgres?{words}"

    def sql(self, *statements: str) -> None:
        """Run statements, each by itself, on a connection of the test's own."""

        async def run() -> None:
            connection = await asyncpg.connect(self.dsn, timeout=PATIENCE)
            try:
                for statement in statements:
                    await connection.execute(statement)
            finally:
                await connection.close(timeout=PATIENCE)

        asyncio.run(run())

    # Its programs.

    def run(self, program: str, *arguments: object) -> None:
        command: Sequence[object] = [self.programs / program, *arguments]
        done = subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            check=False,
            text=True,
            cwd=self.folder,
            timeout=PATIENCE,
            **identity(run_as()),  # type: ignore[arg-type]
        )
        assert done.returncode == 0, f"{program}: {done.stderr}"


def has_disks() -> bool:
    """Whether a server can be given a small disk here: that takes root, and the right to mount."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "mount"))):
        return False
    tried = ["unshare", "--mount", "sh", "-c", MOUNT, "mount", "size=1m", "/tmp", "true"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


def join_urls(first: str, *others: str) -> str:
    """One URL that names the servers of several."""
    head, _, rest = first.partition("@")
    host, _, path = rest.partition("/")
    hosts = [host, *(other.partition("@")[2].partition("/")[0] for other in others)]
    return f"{head}@{','.join(hosts)}/{path}"
