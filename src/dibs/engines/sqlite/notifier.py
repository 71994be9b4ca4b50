"""Waking waiters in this process and in others.

Every process that listens binds a datagram socket in a directory beside the store; a process that has committed sends
the topics to each socket there. Nothing depends on a datagram arriving: while there are waiters, a thread also reads
`data_version` every 50 ms, which changes when another process, or the user's own connection, has committed. That wakes
only listeners for tasks: heartbeats and schedulers write when they are woken, and two workers would wake each other for
ever.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from dibs.engines.sqlite.presence import share_rights
from dibs.engines.topics import TopicKind
from dibs.engines.wake import Listener, LocalNotifier

__all__ = ["Notifier", "Subscriber", "socket_directory"]

NET_SECONDS = 0.05
LINGER_SECONDS = 1.0
"""How long polling continues after the last waiter, so that a worker that waits repeatedly does not restart it."""
LONGEST_NAME = 100
"""The longest path of a socket, in bytes, that every system allows."""
ELSEWHERE = Path("/tmp")  # noqa: S108  # notifications are no secret, and nothing depends on them
LONGEST_MESSAGE = 4096
EVERYTHING = b"*"
FRESH_NANOSECONDS = 50_000_000
"""A file or directory that changed so recently may change again with the same time stamp."""
RELOOK_SECONDS = 0.005
"""How often a process that commits continuously checks for new listeners, which begin with a claim anyway."""
BIND_TRIES = 5
TASK_KINDS = (TopicKind.WORK, TopicKind.ENDED, TopicKind.EVENTS)
"""What a commit on a user's own connection can be about. All other commits send datagrams."""
FULL = 10
"""As many datagrams as some systems keep for a socket: with so many, others may have been dropped."""
ALL_SECONDS = 1.0
"""How often polling also wakes listeners that write when they are woken, where no datagram can be received."""


class Subscriber:
    """A subscription that keeps the process listening until it is closed."""

    def __init__(self, notifier: Notifier, listener: Listener) -> None:
        self._notifier = notifier
        self._listener = listener
        self._closed = False

    async def wait(self, timeout: float) -> bool:
        """Wait until woken, at most `timeout` seconds; a notification since the last wait counts."""
        self._notifier.begin_wait()
        try:
            return await self._listener.wait(timeout)
        finally:
            self._notifier.end_wait()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._listener.close()
            self._notifier.unsubscribe()


class Notifier:
    """Wakes the listeners of this process, and through their sockets those of other processes.

    `data_version` returns a number that changes when others commit, or None if it can't be read now.
    """

    def __init__(self, path: Path, data_version: Callable[[], int | None]) -> None:
        self.local_notifier = LocalNotifier()
        self.mode = 0o600
        self.directory = socket_directory(path)
        self.directory_name = str(self.directory)
        self.log_name = f"{path}-wal"
        self.data_version = data_version
        self.lock = threading.Lock()
        self.subscribers = 0
        self.waiters = 0
        self.waited_at = 0.0
        self.listener_thread: ListenerThread | None = None
        self.sender: socket.socket | None = None
        self.others: list[str] = []
        self.listed_at = -1
        self.looked_at = 0.0

    def subscribe(self, topics: Collection[str], loop: asyncio.AbstractEventLoop) -> Subscriber:
        listener = self.local_notifier.subscribe(topics, loop)
        with self.lock:
            self.subscribers += 1
            if self.listener_thread is None:
                self.listener_thread = ListenerThread(self)
                self.listener_thread.start()
        return Subscriber(self, listener)

    def unsubscribe(self) -> None:
        with self.lock:
            self.subscribers -= 1
            if self.subscribers == 0 and self.listener_thread is not None:
                self.listener_thread.stop()
                self.listener_thread = None

    def begin_wait(self) -> None:
        with self.lock:
            self.waiters += 1
            if self.listener_thread is not None and self.listener_thread.sleeps:
                self.listener_thread.wake()

    def end_wait(self) -> None:
        with self.lock:
            self.waiters -= 1
            self.waited_at = time.monotonic()

    def is_awaited(self) -> bool:
        return self.waiters > 0 or time.monotonic() < self.waited_at + LINGER_SECONDS

    def notify(self, topics: Collection[str]) -> None:
        """Wake all listeners of any of these topics, here and elsewhere. Never blocks, never fails."""
        if not topics:
            return
        self.local_notifier.notify(topics)
        if others := self.other_sockets():
            message = "\n".join(topics).encode()
            self.send(others, message if len(message) <= LONGEST_MESSAGE else EVERYTHING)

    def other_sockets(self) -> list[str]:
        """The sockets of other processes; the directory is read again only when it has changed."""
        looked_at = time.monotonic()
        if looked_at < self.looked_at + RELOOK_SECONDS:
            return self.others
        self.looked_at = looked_at
        try:
            changed_at = os.stat(self.directory_name).st_mtime_ns  # noqa: PTH116  # after every commit: 2 µs, not 10
            if changed_at != self.listed_at:
                mine = None if self.listener_thread is None else self.listener_thread.address
                self.others = [str(name) for name in self.directory.iterdir() if name != mine]
                self.listed_at = -1 if time.time_ns() - changed_at < FRESH_NANOSECONDS else changed_at
        except OSError:  # there is no listener yet, or the last one has just left
            self.others, self.listed_at = [], -1
        return self.others

    def send(self, others: list[str], message: bytes) -> None:
        with self.lock:
            if self.sender is None:
                self.sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self.sender.setblocking(False)
            for name in others:
                try:
                    self.sender.sendto(message, name)
                except (ConnectionRefusedError, FileNotFoundError):  # its process is gone
                    self.listed_at = -1
                    with suppress(OSError):
                        Path(name).unlink()
                except OSError:
                    # A full buffer means that its owner will wake up anyway; polling covers anything else.
                    continue

    def hear(self, message: bytes) -> None:
        """A datagram from another process."""
        if message == EVERYTHING:
            self.local_notifier.notify_all()
        else:
            self.local_notifier.notify(message.decode(errors="replace").split("\n"))

    def close(self) -> None:
        with self.lock:
            if self.listener_thread is not None:
                self.listener_thread.stop()
                self.listener_thread = None
            if self.sender is not None:
                self.sender.close()
                self.sender = None


class ListenerThread(threading.Thread):
    """Listens for one process, from its first subscription to its last."""

    def __init__(self, notifier: Notifier) -> None:
        super().__init__(name="dibs-bells", daemon=True)
        self.notifier = notifier
        self.sleeps = False
        self.stopped = False
        self.waker, self.woken = socket.socketpair()
        self.woken.setblocking(False)
        self.waker.setblocking(False)
        self.receiver, self.address = bind(notifier.directory, notifier.mode)
        self.version = notifier.data_version()
        self.next_look = 0.0
        self.written_at = -1
        self.is_settled = False
        self.owes_all = False
        self.next_all = 0.0

    def wake(self) -> None:
        with suppress(OSError):  # full of unread wake-ups, or the thread has just ended and closed its sockets
            self.waker.send(b".")

    def stop(self) -> None:
        """Remove the socket, so that others can't send to it, then end the thread."""
        self.stopped = True
        if self.address is not None:
            with suppress(OSError):
                self.address.unlink()
            with suppress(OSError):  # others still listen there
                self.address.parent.rmdir()
        self.wake()

    def run(self) -> None:
        sockets = [self.woken] if self.receiver is None else [self.woken, self.receiver]
        while not self.stopped:
            with self.notifier.lock:
                self.sleeps = not self.notifier.is_awaited()
            ready, _, _ = select.select(sockets, [], [], None if self.sleeps else self.until_look())
            if self.woken in ready:
                self.woken.recv(4096)
            if self.receiver is not None and self.receiver in ready:
                self.receive(self.receiver)
            # Not after every datagram: its commit would wake listeners a second time.
            if time.monotonic() >= self.next_look:
                self.next_look = time.monotonic() + NET_SECONDS
                self.look()
        for each in (*sockets, self.waker):
            each.close()

    def until_look(self) -> float:
        return min(max(0.0, self.next_look - time.monotonic()), NET_SECONDS)

    def receive(self, receiver: socket.socket) -> None:
        heard = 0
        with suppress(BlockingIOError):
            while True:
                self.notifier.hear(receiver.recv(2 * LONGEST_MESSAGE))
                heard += 1
        if heard >= FULL:  # some may have been dropped
            self.owes_all = True
            self.notifier.local_notifier.notify_kinds(*TASK_KINDS)

    def look(self) -> None:
        """Poll: wake listeners if another process has committed since the last time.

        Every commit writes to the log, so nothing else is read while the log is unchanged: that costs a tenth.
        """
        if self.owes_all and time.monotonic() >= self.next_all:
            self.owes_all, self.next_all = False, time.monotonic() + ALL_SECONDS
            self.notifier.local_notifier.notify_all()
        written_at = log_time(self.notifier.log_name)
        if written_at == self.written_at and self.is_settled:
            return
        self.written_at = written_at
        self.is_settled = time.time_ns() - written_at > FRESH_NANOSECONDS
        version = self.notifier.data_version()
        if version is not None and version != self.version:
            self.version = version
            self.owes_all = self.owes_all or self.receiver is None
            self.notifier.local_notifier.notify_kinds(*TASK_KINDS)


def log_time(name: str) -> int:
    """When the write-ahead log was last written to; -1 if there is none."""
    try:
        return os.stat(name).st_mtime_ns  # noqa: PTH116  # twenty times a second
    except OSError:
        return -1


def socket_directory(path: Path) -> Path:
    """Beside the store, or in a short directory that all processes know if the path would be too long for a socket.

    Not in `TMPDIR`: each process may have its own, and it may be too long as well.
    """
    beside = path.with_name(path.name + "-bells")
    longest = beside / "0123456789-abcd"
    if len(os.fsencode(longest)) <= LONGEST_NAME:
        return beside
    return ELSEWHERE / f"dibs-bells-{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}"


def bind(directory: Path, mode: int) -> tuple[socket.socket | None, Path | None]:
    """A socket that other processes can find; (None, None) where that is impossible and polling must do."""
    if not hasattr(socket, "AF_UNIX"):
        return None, None
    for _ in range(BIND_TRIES):
        name = directory / f"{os.getpid():x}-{secrets.token_hex(2)}"
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            make_directory(directory, mode)
            receiver.bind(str(name))
        except (FileNotFoundError, OSError) as error:
            receiver.close()
            if isinstance(error, FileNotFoundError):  # the last listener has just removed the directory
                continue
            return None, None
        share_rights(name, mode)
        receiver.setblocking(False)
        return receiver, name
    return None, None


def make_directory(directory: Path, mode: int) -> None:
    if not directory.is_dir():
        directory.mkdir(exist_ok=True)
        share_rights(directory, mode | (mode & 0o444) >> 2)  # a process that may read the store may use the directory
