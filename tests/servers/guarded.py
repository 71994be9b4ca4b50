"""Servers that end with the process that started them, even if it is killed."""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from servers import guardian

__all__ = ["PATIENCE", "Guarded", "free_port", "new_folder", "run_as"]

PATIENCE = 60.0
"""Seconds that a server may take to start."""

SHORT = "/tmp"
PORTS = range(20_000, 32_000)


def run_as() -> str:
    """Servers refuse to be run by root: then by whom."""
    if os.name != "posix" or os.geteuid() != 0:
        return ""
    import pwd

    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def new_folder(prefix: str) -> Path:
    """A folder that belongs to the user that runs the server.

    Its name is short enough for a socket in it, and every user can reach it: `TMPDIR` may be neither.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=SHORT if os.access(SHORT, os.W_OK) else None))
    folder.chmod(0o755)
    if user := run_as():
        import pwd

        os.chown(folder, pwd.getpwnam(user).pw_uid, guardian.user_group(user))
    return folder


def free_port() -> int:
    """None that the system gives to outgoing connections: one of those could take it before the server does."""
    while True:
        port = secrets.choice(PORTS)  # not `random`, which Hypothesis seeds alike in every process
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Guarded:
    """A server under a guardian. Its folder goes with it."""

    def __init__(self, folder: Path, stop_by: str, command: list[str]) -> None:
        self.folder = folder
        self.guardian = subprocess.Popen(
            [sys.executable, guardian.__file__, str(folder), stop_by, run_as(), *command],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the tests
        )
        atexit.register(self.stop)

    def wait_until(self, ready: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        pause = threading.Event()
        while not ready():
            if time.monotonic() > until or self.guardian.poll() is not None:
                log = (self.folder / "log").read_text(errors="replace")
                self.stop()
                raise RuntimeError(f"the server did not start:\n{log}")
            pause.wait(0.02)

    def stop(self) -> None:
        """Stop the server and remove its folder. Twice is once."""
        atexit.unregister(self.stop)
        if self.guardian.stdin is not None and not self.guardian.stdin.closed:
            self.guardian.stdin.close()
            self.guardian.wait()
