"""Datagrams from a worker process to the one that measures: when a task started, when the last one was done."""

from __future__ import annotations

import itertools
import os
import socket
import time

__all__ = ["ListenerThread", "tell_done", "tell_started"]

PATIENCE = 120.0
counter = itertools.count(1)
"""`next` on it is one step of the interpreter, so threads need no lock."""

LAST = int(os.environ.get("BENCH_COUNT", "0"))
"""In a worker process: the number of tasks that there are. Read once, because a no-op is to cost next to nothing."""


class ListenerThread:
    """Hears what workers tell; `environment` tells them where."""

    def __init__(self, count: int = 0) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(PATIENCE)
        self.environment = {"BENCH_PORT": str(self.socket.getsockname()[1]), "BENCH_COUNT": str(count)}

    def hear(self) -> float:
        """The next moment that a worker tells."""
        return float(self.socket.recv(100))

    def close(self) -> None:
        self.socket.close()


def tell(moment: float) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(str(moment).encode(), ("127.0.0.1", int(os.environ["BENCH_PORT"])))


def tell_started() -> None:
    """In a task whose start is waited for."""
    tell(time.time())


def tell_done() -> None:
    """In a no-op task: the first and the last of them tell."""
    number = next(counter)
    if number == 1 or number == LAST:
        tell(time.time())
