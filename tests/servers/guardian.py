"""Runs a server for as long as the process that started it lives: `python guardian.py FOLDER SIGNAL USER COMMAND…`.

The starter holds the other end of its standard input. When that closes, however the starter ended, the server gets the
signal, and the folder goes. `USER` is who the server runs as; empty for nobody else.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

PATIENCE = 10.0


def guard(folder: Path, number: signal.Signals, user: str, command: list[str]) -> None:
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, **identity(user)
        )
    sys.stdin.buffer.read()
    if server.poll() is None:
        server.send_signal(number)
        try:
            server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    shutil.rmtree(folder, ignore_errors=True)


def identity(user: str) -> dict[str, object]:
    """How to start a process as somebody else, which only root can."""
    return {"user": user, "group": user_group(user), "extra_groups": []} if user else {}


def user_group(user: str) -> int:
    import pwd

    return pwd.getpwnam(user).pw_gid


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # what ends the tests must not end this before it has cleaned up
    guard(Path(sys.argv[1]), signal.Signals[sys.argv[2]], sys.argv[3], sys.argv[4:])
