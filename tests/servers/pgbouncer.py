"""A PgBouncer in transaction mode in front of the test server, where it is installed."""

from __future__ import annotations

import shutil
import socket
from functools import cache
from urllib.parse import quote

from servers.guarded import Guarded, free_port, new_folder
from servers.postgres import Server, server

__all__ = ["Bouncer", "bouncer", "is_installed"]

SETTINGS = """
[databases]
* = host={host} port={port} user=postgres

[pgbouncer]
pool_mode = transaction
default_pool_size = 8
max_client_conn = 500
listen_addr = 127.0.0.1
listen_port = {listens}
unix_socket_dir = {folder}
auth_type = trust
auth_file = {folder}/users
logfile = {folder}/bouncer.log
admin_users = postgres
{extra}
"""


class Bouncer:
    """A running PgBouncer."""

    def __init__(self, behind: Server, extra: str = "") -> None:
        found = path()
        assert found is not None
        self.folder = new_folder("dibs-bouncer-")
        self.port = free_port()
        (self.folder / "users").write_text('"postgres" ""\n')
        settings = SETTINGS.format(
            host=behind.folder, port=behind.port, listens=self.port, folder=self.folder, extra=extra
        )
        (self.folder / "settings").write_text(settings)
        self.guarded = Guarded(self.folder, "SIGTERM", [found, str(self.folder / "settings")])
        self.guarded.wait_until(self.is_ready)

    def is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def url(self) -> str:
        """By its socket; that it is a pooler is not said yet."""
        return f"postgresql://postgres@/postgres?port={self.port}&host={quote(str(self.folder), safe='/')}"

    def stop(self) -> None:
        self.guarded.stop()


def path() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")


def is_installed() -> bool:
    return path() is not None


@cache
def bouncer() -> Bouncer:
    """The PgBouncer of this process, in front of the newest server."""
    return Bouncer(server())
