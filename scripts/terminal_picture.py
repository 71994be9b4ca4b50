"""Draw `docs/terminal.svg`, the picture in the README: commands that are really run, in a terminal of 80 columns.

`python scripts/terminal_picture.py` draws it again; a path after it draws into another file. It works in a
folder of its own, and takes a few seconds.
"""

from __future__ import annotations

import fcntl
import io
import logging
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

from dibs import Dibs

PICTURE = Path(__file__).parents[1] / "docs" / "terminal.svg"
WIDTH = 80
STORE = "sqlite:///shop.db"
NOT_COLOUR = re.compile(r"\x1b\[[?0-9;]*[A-Za-ln-z]")


def fill() -> str:
    """Run a few tasks, of which two fail; the id of one that no worker can run."""
    app = Dibs(STORE, retry_base=0.01)

    @app.task(queue="mail", name="mail.receipt", retries=1, priority="high")
    def send_receipt(order: int, address: str) -> str:
        if "@" not in address:
            raise ValueError(f"{address} is not an address")
        return f"receipt {order} to {address}"

    @app.task(queue="print", name="print.poster", requires=["gpu"])
    def print_poster(order: int) -> None: ...

    for order, address in enumerate(["ada@example.org", "bob", "eve@example.org", "bob"]):
        send_receipt.enqueue(order, address)
    with app.worker(queues=["mail"], until_idle=True) as worker:
        worker.wait(timeout=30)
    poster = print_poster.enqueue(7)
    app.close()
    return poster.id


def in_terminal(command: str) -> str:
    """What a command writes to a terminal, colours and all."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
    running = subprocess.Popen(  # noqa: S603 - commands of this file
        [sys.executable, "-m", *command.split()],
        env={**os.environ, "TERM": "xterm-256color", "DIBS_URL": STORE, "COLUMNS": str(WIDTH)},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            more = os.read(ours, 65_536)
        except OSError:  # nobody writes any more
            break
        if not more:
            break
        written += more
    os.close(ours)
    running.wait(timeout=30)
    lines = NOT_COLOUR.sub("", written.decode()).splitlines()
    return "\n".join(line for line in lines if "Looking" not in line).rstrip()  # it is wiped off when it has looked


def main(picture: Path) -> None:
    logging.disable()  # two tasks fail on purpose
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        poster = fill()
        for command in ("dibs tasks list", "dibs dead list", f"dibs why {poster[-6:]}"):
            console.print(Text("$ ", style="bold green") + Text(command, style="bold"))
            console.print(Text.from_ansi(in_terminal(command)), end="\n\n", soft_wrap=True)
        os.chdir("/")
    picture.write_text(console.export_svg(title="dibs", unique_id="dibs"))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if sys.argv[1:] else PICTURE)
