"""One executor process, seen from the worker.

Each process has a thread here that starts it and waits for its end. On Linux a child is killed when the *thread* that
started it ends, so that thread has to live as long as the child.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import Any

from dibs.core.task import Failure
from dibs.core.times import SECOND
from dibs.worker.executors import child_protocol as protocol
from dibs.worker.executors.child import child_main
from dibs.worker.executors.child_logs import log_settings
from dibs.worker.run import Run

__all__ = ["ChildDied", "ChildProcess"]

log = logging.getLogger("dibs.worker")

LAST_WORDS = 0.5
"""Seconds in which to read what a dead child had sent."""


class ChildDied(Exception):
    """The process ended in the middle of a run; `failure` says how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class ChildProcess:
    """One executor process, seen from the worker."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._ours, self._theirs = socket.socketpair()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._process: Any = None
        self._killed = False
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        threading.Thread(target=self._attend, name="dibs-child", daemon=True).start()

    def _attend(self) -> None:
        """Start the process and wait for its end."""
        import multiprocessing

        code = 1
        try:
            context = multiprocessing.get_context("spawn")
            process = context.Process(target=child_main, args=(self._theirs, os.getpid(), self._app, log_settings()))
            process.start()
            self._process = process
            if self._killed:  # while it was being started
                self.kill()
            self._theirs.close()
            process.join()
            code = process.exitcode or 0
        except Exception:
            log.exception("An executor process could not be started.")
        finally:
            self._theirs.close()
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                self._loop.call_soon_threadsafe(self._ended, code)

    def _ended(self, code: int) -> None:
        if not self._exit.done():
            self._exit.set_result(code)

    @property
    def alive(self) -> bool:
        return not self._exit.done() and not self._killed

    async def ready(self) -> None:
        """Wait until it has started."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._ours)
        message = await self._receive()
        assert isinstance(message, protocol.Ready)

    async def run(self, start: protocol.Start, run: Run) -> protocol.Ended:
        """Run one task, passing on what it reports."""
        self._writer.write(protocol.frame(start))
        notifier = self._loop.create_task(self._tell_extensions(run))
        waits: list[tuple[str, ExitStack]] = []
        try:
            while True:
                message = await self._receive()
                match message:
                    case protocol.Ended():
                        return message
                    case protocol.Progress():
                        run.report(message.fraction, message.message)
                    case protocol.Keep():
                        run.keep(message.seconds)
                    case protocol.Completing():
                        run.completing = True
                    case protocol.Waiting(queue, begins):
                        if begins:  # refused if it would deadlock: then this run fails, and its process ends
                            held = ExitStack()
                            held.enter_context(run.waiting(queue))
                            waits.append((queue, held))
                        else:
                            place = next(n for n, (name, _) in enumerate(waits) if name == queue)
                            waits.pop(place)[1].close()
                    case protocol.Ready():
                        raise AssertionError("a child is ready once")
        finally:
            notifier.cancel()
            for _, held in waits:
                held.close()

    async def _tell_extensions(self, run: Run) -> None:
        """Tell the child whenever its lease has been extended."""
        sent = run.valid_until
        while True:
            await asyncio.sleep(run.span / SECOND / 6)
            if run.valid_until != sent:
                sent = run.valid_until
                self._writer.write(protocol.frame(protocol.Kept(sent - time.monotonic())))

    async def _receive(self) -> protocol.FromChild:
        """The next message; raises if the child dies instead."""
        reading = self._loop.create_task(self._read())
        try:
            ends: set[asyncio.Future[Any]] = {reading, self._exit}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait({reading}, timeout=LAST_WORDS)
            if reading.done() and (message := reading.result()) is not None:
                return message
            raise ChildDied(death(await asyncio.shield(self._exit)))
        finally:
            reading.cancel()

    async def _read(self) -> protocol.FromChild | None:
        try:
            header = await self._reader.readexactly(protocol.HEADER.size)
            body = await self._reader.readexactly(protocol.HEADER.unpack(header)[0])
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return protocol.from_child.decode(body)

    def kill(self) -> None:
        """End it and everything in its process group, now."""
        self._killed = True
        process = self._process
        if process is not None and process.is_alive():
            for send, target in ((os.killpg, process.pid), (os.kill, process.pid)):
                with suppress(ProcessLookupError, PermissionError):  # no group yet, or gone already
                    send(target, signal.SIGKILL)

    def hang_up(self) -> None:
        """Let it leave: it closes its resources when the socket ends."""
        writer = getattr(self, "_writer", None)
        if writer is not None:
            writer.close()
        else:
            self._ours.close()

    async def gone(self) -> None:
        await asyncio.shield(self._exit)


def death(code: int) -> Failure:
    """How a child died, in words."""
    if code >= 0:
        return Failure(type="ProcessDied", message=f"the task's process ended by itself with exit code {code}")
    try:
        name = f" ({signal.Signals(-code).name})"
    except ValueError:
        name = ""
    return Failure(type="ProcessDied", message=f"the task's process was killed by signal {-code}{name}")
