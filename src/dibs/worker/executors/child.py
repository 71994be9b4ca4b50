"""Inside an executor process: one task at a time, on the main thread.

The process leads its own process group, so that killing it also kills what it started. It dies with its parent: on
Linux the kernel kills it, everywhere it ends when the socket is closed.
"""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from dibs.attempt import outcome
from dibs.attempt.execute import TaskRunner
from dibs.core.task import Failure, LeasedTask, Settlement
from dibs.errors import UsageError
from dibs.runtime.definition import TaskDefinition
from dibs.runtime.hub import Hub
from dibs.worker.executors import child_protocol as protocol
from dibs.worker.executors.app_path import hub_at
from dibs.worker.executors.child_logs import LogSettings, log_as

__all__ = ["child_main", "die_with_parent"]

MIB = 1024 * 1024
PR_SET_PDEATHSIG = 1


def child_main(sock: socket.socket, parent: int, app: str, logs: LogSettings | None) -> None:
    """The entry point of an executor process for the tasks of the app at `app`."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent)
    sock.set_inheritable(False)
    asyncio.run(Child(sock, app, logs).live())


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """In a child: have the kernel send this signal when the parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)


class ChildLink:
    """The link between a task's context and the worker, over the socket. A child is killed, never asked to stop."""

    stopping: str | None = None
    lease_lost = False

    def __init__(self, start: protocol.Start, send: Callable[[protocol.FromChild], None]) -> None:
        now = time.monotonic()
        self.task: LeasedTask = start.task
        self.valid_until = now + start.valid_for
        self.timeout_at = None if start.time_left is None else now + start.time_left
        self._send = send

    def begin(self) -> None:
        """The worker counts the time."""

    def report(self, fraction: float, message: str) -> None:
        self._send(protocol.Progress(fraction, message))

    def keep(self, seconds: float) -> None:
        self._send(protocol.Keep(seconds))

    def completes(self, settlement: Settlement) -> None:
        self._send(protocol.Completing())

    @contextmanager
    def waiting(self, queue: str) -> Iterator[None]:
        self._send(protocol.Waiting(queue, True))
        try:
            yield
        finally:
            self._send(protocol.Waiting(queue, False))


class Child:
    """Runs what arrives until the socket ends."""

    def __init__(self, sock: socket.socket, app: str, logs: LogSettings | None) -> None:
        self._sock = sock
        self._app = app
        self._logs = logs
        self._sending = threading.Lock()
        self._inbox: asyncio.Queue[protocol.Start | None] = asyncio.Queue()
        self._link: ChildLink | None = None
        self._hub: Hub
        self._runner: TaskRunner | None = None
        self._resources = AsyncExitStack()

    async def live(self) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop,), name="dibs-pipe", daemon=True).start()
        self._send(protocol.Ready())
        async with self._resources:
            while (start := await self._inbox.get()) is not None:
                answer = await self._run(start)
                self._link = None
                self._send(answer)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Receive what the parent sends, even when a task keeps the main thread busy."""
        with self._sock.makefile("rb") as pipe:
            while len(header := pipe.read(protocol.HEADER.size)) == protocol.HEADER.size:
                message = protocol.to_child.decode(pipe.read(protocol.HEADER.unpack(header)[0]))
                if isinstance(message, protocol.Start):
                    self._link = ChildLink(message, self._send)
                    loop.call_soon_threadsafe(self._inbox.put_nowait, message)
                elif (link := self._link) is not None:
                    link.valid_until = time.monotonic() + message.valid_for
        if self._link is not None:  # the parent is gone, and nothing would settle this run
            os.killpg(0, signal.SIGKILL)
        loop.call_soon_threadsafe(self._inbox.put_nowait, None)

    def _send(self, message: protocol.FromChild) -> None:
        with self._sending:
            self._sock.sendall(protocol.frame(message))

    async def _run(self, start: protocol.Start) -> protocol.Ended:
        task, link = start.task, self._link
        assert link is not None
        definition: TaskDefinition | None = None
        try:
            runner, definition = await self._find(start)
            with memory_limited(definition.memory_limit):
                # A task of its own: context variables that it sets are gone with it.
                call = as_async(runner.function_of(definition))
                return protocol.Ended(await guarded(runner.run(link, definition, call, start.args)))
        except MemoryError as error:
            failure = out_of_memory(error, None if definition is None else definition.memory_limit)
            return protocol.Ended(outcome.failed_with(task, failure, retry=True), spoiled=True)
        except BaseException as error:
            if definition is None:
                return protocol.Ended(outcome.unready(task, error))
            return protocol.Ended(outcome.failed(task, definition, error))

    async def _find(self, start: protocol.Start) -> tuple[TaskRunner, TaskDefinition]:
        """What runs the task, and its definition. The app's lifespan lasts from the first task to the process's end."""
        import_module(start.module)
        if self._runner is None:
            self._hub = hub_at(self._app)
            log_as(self._logs)  # after the import: an app that configures logging itself has done so by now
            lifespan = self._hub.lifespan
            state = None if lifespan is None else await self._resources.enter_async_context(lifespan())
            self._runner = TaskRunner(self._hub, state)
        definition = self._hub.definitions.get(start.task.name)
        if definition is None:
            raise UsageError(
                f"importing {start.module} does not define task {start.task.name}: a process can't run it."
            )
        return self._runner, definition


def as_async(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Call a plain function as if no loop ran in this thread: it may use `asyncio.run`, or Django's ORM."""
    if inspect.iscoroutinefunction(function):
        return function

    async def call(*args: Any, **kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        try:
            value = function(*args, **kwargs)
        finally:
            asyncio._set_running_loop(loop)
        return await value if inspect.isawaitable(value) else value

    return call


async def guarded(work: Awaitable[Settlement]) -> Settlement:
    """Run as a task that returns SystemExit and KeyboardInterrupt as values: raised, they would end the loop."""

    async def run() -> tuple[Settlement | None, BaseException | None]:
        try:
            return await work, None
        except BaseException as error:
            return None, error

    value, error = await asyncio.get_running_loop().create_task(run())
    try:
        if error is not None:
            raise error
        assert value is not None
        return value
    finally:
        del error  # otherwise it keeps this frame and the frame the error, with everything that the task had


@contextmanager
def memory_limited(limit: int | None) -> Iterator[None]:
    """Let this process grow to `limit` bytes.

    The kernel limits addresses, not use: what is mapped but not used at the start is added.
    """
    if limit is None or sys.platform == "win32":
        yield
        return
    import resource

    before, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = limit + unused_addresses()
    resource.setrlimit(resource.RLIMIT_AS, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, most))


def unused_addresses() -> int:
    """Bytes that are mapped but not in memory."""
    try:
        size, resident = Path("/proc/self/statm").read_bytes().split()[:2]
    except OSError:  # not Linux
        return 0
    return (int(size) - int(resident)) * os.sysconf("SC_PAGE_SIZE")


def out_of_memory(error: MemoryError, limit: int | None) -> Failure:
    failure = outcome.describe(error)
    if limit is None:
        return failure
    message = f"the task needed more memory than its memory_limit of {limit / MIB:,.0f} MiB"
    return Failure(type="MemoryError", message=message, traceback=failure.traceback)
