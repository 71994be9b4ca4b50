"""The commands of `peers.py` for Redis contestants whose calls block: a lone caller is one thread, many are threads."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import peers

__all__ = ["Peer", "main"]


class Peer(Protocol):
    """One contestant's own way to do each thing. `nothing` and `started` are the names of its two tasks."""

    def enqueue(self, name: str, number: int) -> object: ...
    def enqueue_many(self, numbers: range) -> object: ...


def one(peer: Peer, count: int) -> None:
    peer.enqueue("nothing", 0)  # whatever is made ready at first use
    began = time.perf_counter()
    for number in range(count):
        peer.enqueue("nothing", number)
    print(count / (time.perf_counter() - began))


def callers(peer: Peer, count: int) -> None:
    each = max(1, count // peers.CALLERS)
    barrier = threading.Barrier(peers.CALLERS + 1)

    def call() -> None:
        peer.enqueue("nothing", 0)
        barrier.wait()
        for number in range(each):
            peer.enqueue("nothing", number)

    with ThreadPoolExecutor(peers.CALLERS) as pool:
        calls = [pool.submit(call) for _ in range(peers.CALLERS)]
        barrier.wait()
        began = time.perf_counter()
        for each_call in calls:
            each_call.result()
        print(peers.CALLERS * each / (time.perf_counter() - began))


def bulk(peer: Peer, count: int) -> None:
    began = time.perf_counter()
    for start in range(0, count, peers.BULK):
        peer.enqueue_many(range(start, min(start + peers.BULK, count)))
    print(count / (time.perf_counter() - began))


def starts(peer: Peer, count: int) -> None:
    for _ in sys.stdin:
        sent = time.time()
        peer.enqueue("started", 0)
        print(sent, flush=True)


COMMANDS: dict[str, Callable[[Peer, int], None]] = {each.__name__: each for each in (one, callers, bulk, starts)}


def main(peer: Peer) -> None:
    """Do what the command line says. Workers are started by the contestants' own command lines."""
    command, *rest = sys.argv[1:]
    COMMANDS[command](peer, int(rest[0]) if rest else 0)
