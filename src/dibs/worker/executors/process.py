"""Executor processes, for tasks that must be killable or limited: started when needed, reused, one task at a time.

Each child has a thread here that starts it and waits for its end. On Linux a child is killed when the *thread* that
started it ends, so that thread has to live as long as the child.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import structs

from dibs.core.task import Failure
from dibs.core.times import SECOND, Duration
from dibs.worker.executors.child import LogSettings, child_main, name_of
from dibs.worker.executors.child_protocol import (
    HEADER,
    Completing,
    Done,
    Failed,
    FromChild,
    Keep,
    Kept,
    Progress,
    Ready,
    Start,
    frame,
    from_child,
)
from dibs.worker.run import Run

__all__ = ["ChildFailed", "Processes"]

log = logging.getLogger("dibs.worker")

LAST_WORDS = 0.5
"""Seconds for what a dead child had sent to be read."""

FAREWELL = 2.0
"""Seconds for idle children to close their resources when the worker leaves."""


class ChildFailed(Exception):
    """A run in a child failed: the task raised (`failure` tells what), or the child died."""

    def __init__(self, failure: Failure, retry: bool = True, delay: Duration | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.retry = retry
        self.delay = delay


class ProcessChild:
    """One executor process, seen from the worker."""

    def __init__(self) -> None:
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
            process = context.Process(target=child_main, args=(self._theirs, os.getpid(), log_settings()))
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
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
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
        assert isinstance(message, Ready)

    async def run(self, start: Start, run: Run) -> Done | Failed:
        """Run one task, passing on what it reports."""
        self._writer.write(frame(start))
        informer = self._loop.create_task(self._inform(run))
        try:
            while True:
                message = await self._receive()
                match message:
                    case Done() | Failed():
                        return message
                    case Progress():
                        run.report(message.fraction, message.message)
                    case Keep():
                        run.keep(message.seconds)
                    case Completing():
                        run.completing = True
                    case Ready():
                        raise AssertionError("a child is ready once")
        finally:
            informer.cancel()

    async def _inform(self, run: Run) -> None:
        """Tell the child when its lease has been kept."""
        told = run.valid_until
        while True:
            await asyncio.sleep(run.span / SECOND / 6)
            if run.valid_until != told:
                told = run.valid_until
                self._writer.write(frame(Kept(told - time.monotonic())))

    async def _receive(self) -> FromChild:
        """The next message; if the child dies instead, how it died."""
        reading = self._loop.create_task(self._read())
        try:
            ends: set[asyncio.Future[Any]] = {reading, self._exit}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait({reading}, timeout=LAST_WORDS)
            if reading.done() and (message := reading.result()) is not None:
                return message
            raise ChildFailed(death(await asyncio.shield(self._exit)))
        finally:
            reading.cancel()

    async def _read(self) -> FromChild | None:
        try:
            header = await self._reader.readexactly(HEADER.size)
            body = await self._reader.readexactly(HEADER.unpack(header)[0])
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return from_child.decode(body)

    def kill(self) -> None:
        """End it and everything in its process group, now."""
        self._killed = True
        process = self._process
        if process is not None and process.is_alive():
            for send, target in ((os.killpg, process.pid), (os.kill, process.pid)):
                with suppress(ProcessLookupError, PermissionError):  # no group yet, or gone already
                    send(target, signal.SIGKILL)

    def hang_up(self) -> None:
        """Let it leave: it closes its resources when the pipe ends."""
        writer = getattr(self, "_writer", None)
        if writer is not None:
            writer.close()
        else:
            self._ours.close()

    async def gone(self) -> None:
        await asyncio.shield(self._exit)


class Processes:
    """The children of one worker."""

    def __init__(self) -> None:
        self._idle: list[ProcessChild] = []
        self._all: set[ProcessChild] = set()

    async def call(self, run: Run, args: bytes, begin: Callable[[Run], None]) -> bytes | None:
        """Run a task in a child; the result as JSON. A caller that is cancelled kills the child.

        `begin` is told when a child is there: starting one does not count as running.
        """
        child = await self._take()
        reusable = False
        try:
            begin(run)
            start = start_of(run, args)
            answer = await child.run(start, run)
            # Who failed in the middle of a transaction of its own may have left it open: it ends with the child.
            reusable = not (isinstance(answer, Failed) and (answer.spoiled or run.completing))
        finally:
            if reusable and child.alive:
                self._idle.append(child)
            else:
                self._drop(child)
        if isinstance(answer, Failed):
            raise ChildFailed(answer.failure, answer.retry, answer.delay)
        return answer.result

    async def _take(self) -> ProcessChild:
        """An idle child that is still there, or a new one."""
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
            self._drop(child)
        if not self._all:
            atexit.register(self._kill_all)  # before multiprocessing waits for children that wait for us
        child = ProcessChild()
        self._all.add(child)
        try:
            await child.ready()
        except BaseException:
            self._drop(child)
            raise
        return child

    def _drop(self, child: ProcessChild) -> None:
        child.kill()
        child.hang_up()
        self._all.discard(child)

    def _kill_all(self) -> None:
        for child in tuple(self._all):
            child.kill()

    async def close(self) -> None:
        """Let idle children leave in good order, for a moment; then kill what is left."""
        leaving = [child for child in self._all if child.alive]
        for child in leaving:
            child.hang_up()
        if leaving:
            goodbyes = [asyncio.ensure_future(child.gone()) for child in leaving]
            _, late = await asyncio.wait(goodbyes, timeout=FAREWELL)
            for goodbye in late:
                goodbye.cancel()
        self._kill_all()
        self._all.clear()
        self._idle.clear()
        atexit.unregister(self._kill_all)


def start_of(run: Run, args: bytes) -> Start:
    definition, now = run.definition, time.monotonic()
    return Start(
        task=structs.replace(run.task, args=b""),
        args=args,
        function=name_of(definition.function),
        takes_context=definition.takes_context,
        retry_on=[name_of(each) for each in definition.retry_on],
        no_retry=[name_of(each) for each in definition.no_retry],
        valid_for=run.valid_until - now,
        time_left=None if run.timeout_at is None else run.timeout_at - now,
        memory_limit=definition.memory_limit,
    )


def death(code: int) -> Failure:
    """How a child died, in words."""
    if code >= 0:
        return Failure(type="ProcessDied", message=f"the task's process ended by itself with exit code {code}")
    try:
        name = f" ({signal.Signals(-code).name})"
    except ValueError:
        name = ""
    return Failure(type="ProcessDied", message=f"the task's process was killed by signal {-code}{name}")


def log_settings() -> LogSettings | None:
    root = logging.getLogger()
    if not root.handlers:
        return None
    formatter = root.handlers[0].formatter
    return LogSettings(root.level, None if formatter is None else formatter._fmt)
