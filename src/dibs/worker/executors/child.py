"""Inside an executor process: one task at a time, on the main thread.

The process is the leader of its own group, so that killing it takes along what it started. It dies with its parent: the
kernel sees to it on Linux, the end of the pipe everywhere.
"""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct

from dibs.attempt.context import CURRENT, Context
from dibs.attempt.middleware import Onion, compose
from dibs.attempt.outcome import describe
from dibs.core.codec import Signature, as_json
from dibs.core.retry import asked_delay, should_retry
from dibs.core.task import Failure, LeasedTask, Settlement
from dibs.errors import DibsError, InvalidOption
from dibs.runtime.hub import Hub
from dibs.worker.executors.child_protocol import (
    HEADER,
    Completing,
    Done,
    Failed,
    FromChild,
    Keep,
    Progress,
    Ready,
    Start,
    frame,
    to_child,
)

__all__ = ["LogSettings", "child_main", "name_of"]

MIB = 1024 * 1024
PR_SET_PDEATHSIG = 1


class LogSettings(Struct, frozen=True):
    """How the parent logs, so that the child can do the same."""

    level: int
    format: str | None


def child_main(sock: socket.socket, parent: int, logs: LogSettings | None) -> None:
    """The entry point of an executor process."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent)
    sock.set_inheritable(False)
    if logs is not None and not logging.getLogger().handlers:
        logging.basicConfig(level=logs.level, format=logs.format or logging.BASIC_FORMAT)
    asyncio.run(Child(sock).live())


def die_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


class ChildLink:
    """A context's connection over the pipe. A child is killed, never asked to stop."""

    stopping: str | None = None
    lease_lost = False

    def __init__(self, start: Start, send: Callable[[FromChild], None]) -> None:
        now = time.monotonic()
        self.task: LeasedTask = start.task
        self.valid_until = now + start.valid_for
        self.timeout_at = None if start.time_left is None else now + start.time_left
        self._send = send

    def report(self, fraction: float, message: str) -> None:
        self._send(Progress(fraction, message))

    def keep(self, seconds: float) -> None:
        self._send(Keep(seconds))

    def completes(self, settlement: Settlement) -> None:
        self._send(Completing())


class Found(Struct):
    """A task function with what surrounds it in this process."""

    function: Callable[..., Any]
    signature: Signature
    onion: Onion | None
    state: Any
    hub: Hub | None


class Child:
    """Runs what arrives until the pipe ends."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()
        self._inbox: asyncio.Queue[Start | None] = asyncio.Queue()
        self._link: ChildLink | None = None
        self._found: dict[str, Found] = {}
        self._states: dict[int, tuple[Hub, Any]] = {}
        self._resources = AsyncExitStack()

    async def live(self) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop,), name="dibs-pipe", daemon=True).start()
        self._send(Ready())
        async with self._resources:
            while (start := await self._inbox.get()) is not None:
                answer = await self._run(start)
                self._link = None
                self._send(answer)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hear the parent, also while a task keeps the main thread busy."""
        with self._sock.makefile("rb") as pipe:
            while len(header := pipe.read(HEADER.size)) == HEADER.size:
                message = to_child.decode(pipe.read(HEADER.unpack(header)[0]))
                if isinstance(message, Start):
                    self._link = ChildLink(message, self._send)
                    loop.call_soon_threadsafe(self._inbox.put_nowait, message)
                elif (link := self._link) is not None:
                    link.valid_until = time.monotonic() + message.valid_for
        if self._link is not None:  # the parent is gone, and with it whoever would report this run
            os.killpg(0, signal.SIGKILL)
        loop.call_soon_threadsafe(self._inbox.put_nowait, None)

    def _send(self, message: FromChild) -> None:
        with self._sending:
            self._sock.sendall(frame(message))

    async def _run(self, start: Start) -> Done | Failed:
        retry_on: tuple[type[BaseException], ...] = (Exception,)
        no_retry: tuple[type[BaseException], ...] = ()
        try:
            retry_on, no_retry = classes(start.retry_on), classes(start.no_retry)
            found = await self._find(start)
            try:
                args, kwargs = found.signature.decode(start.args)
            except DibsError as error:  # retried whatever the task says: a deploy heals it
                return Failed(failure=describe(error), retry=True)
            value = await self._call(start, found, args, kwargs)
        except MemoryError as error:
            return Failed(failure=out_of_memory(error, start.memory_limit), retry=True, spoiled=True)
        except BaseException as error:
            retry = should_retry(error, retry_on, no_retry)
            return Failed(failure=describe(error), retry=retry, delay=delay_of(error))
        try:
            return Done(None if value is None else as_json(value, f"the result of {start.task.name}"))
        except DibsError as error:
            return Failed(failure=describe(error), retry=False)

    async def _find(self, start: Start) -> Found:
        found = self._found.get(start.function)
        if found is None:
            thing = resolve(start.function)
            definition = getattr(thing, "definition", None)
            function = thing if definition is None else definition.function
            hub = hub_of(start.task.name, function)
            found = Found(
                function=function,
                signature=Signature(function, start.task.name, start.takes_context),
                onion=None if hub is None else compose(hub.middleware),
                state=None if hub is None else await self._state_of(hub),
                hub=hub,
            )
            self._found[start.function] = found
        return found

    async def _state_of(self, hub: Hub) -> Any:
        """What the app's lifespan gives: entered once in each process, left when it ends."""
        if id(hub) not in self._states:
            state = None if hub.lifespan is None else await self._resources.enter_async_context(hub.lifespan())
            self._states[id(hub)] = (hub, state)
        return self._states[id(hub)][1]

    async def _call(self, start: Start, found: Found, args: list[Any], kwargs: dict[str, Any]) -> Any:
        assert self._link is not None
        context = Context(self._link, found.state, found.hub)
        if start.takes_context:
            args.insert(0, context)

        async def innermost() -> Any:
            value = found.function(*args, **kwargs)
            return await value if inspect.isawaitable(value) else value

        async def whole() -> Any:
            CURRENT.set(context)
            call: Awaitable[Any] = innermost() if found.onion is None else found.onion(context, innermost)
            return await call

        with MemoryLimit(start.memory_limit):
            # A task of its own: context variables that it sets are gone with it.
            return await guarded(whole)


async def guarded(call: Callable[[], Awaitable[Any]]) -> Any:
    """Run as a task, with SystemExit and KeyboardInterrupt carried out as values: they would end the loop."""

    async def run() -> tuple[Any, BaseException | None]:
        try:
            return await call(), None
        except BaseException as error:
            return None, error

    value, error = await asyncio.get_running_loop().create_task(run())
    try:
        if error is not None:
            raise error
        return value
    finally:
        del error  # else it would keep this frame, and the frame the error, with all that the task had


class MemoryLimit:
    """Lets this process grow to `limit` bytes while a task runs.

    The kernel limits addresses, not use: what is mapped but not used when the run starts is added.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._before = (0, 0)

    def __enter__(self) -> None:
        if self._limit is not None and sys.platform != "win32":
            import resource

            self._before = resource.getrlimit(resource.RLIMIT_AS)
            wanted = self._limit + unused_addresses()
            if self._before[1] != resource.RLIM_INFINITY:
                wanted = min(wanted, self._before[1])
            resource.setrlimit(resource.RLIMIT_AS, (wanted, self._before[1]))

    def __exit__(self, *error: object) -> None:
        if self._limit is not None and sys.platform != "win32":
            import resource

            resource.setrlimit(resource.RLIMIT_AS, self._before)


def unused_addresses() -> int:
    """Bytes that are mapped but not in memory."""
    try:
        size, resident = Path("/proc/self/statm").read_bytes().split()[:2]
    except OSError:  # not Linux
        return 0
    return (int(size) - int(resident)) * os.sysconf("SC_PAGE_SIZE")


def out_of_memory(error: MemoryError, limit: int | None) -> Failure:
    failure = describe(error)
    if limit is None:
        return failure
    message = f"the task needed more memory than its memory_limit of {limit / MIB:,.0f} MiB"
    return Failure(type="MemoryError", message=message, traceback=failure.traceback)


def delay_of(error: BaseException) -> int | None:
    try:
        return asked_delay(error)
    except InvalidOption:
        return None


def hub_of(name: str, function: Callable[..., Any]) -> Hub | None:
    """The app that defines this task, found where apps are kept: in a module, first the function's own."""
    own = sys.modules[function.__module__]
    for module in (own, *tuple(sys.modules.values())):
        for value in tuple(getattr(module, "__dict__", {}).values()):
            # Read from the instance's own dictionary: asking foreign objects for attributes may make them do things.
            hub = instance_dict(value).get("hub")
            if isinstance(hub, Hub) and name in hub.definitions and hub.definitions[name].function is function:
                return hub
    return None


def instance_dict(value: object) -> dict[str, Any]:
    try:
        return dict(object.__getattribute__(value, "__dict__"))
    except (AttributeError, TypeError):
        return {}


def name_of(thing: Any) -> str:
    """Where a function or class can be imported from."""
    return f"{thing.__module__}:{thing.__qualname__}"


def resolve(name: str) -> Any:
    """The way back for `name_of`."""
    module, _, qualname = name.partition(":")
    return reduce(getattr, qualname.split("."), import_module(module))


def classes(names: list[str]) -> tuple[type[BaseException], ...]:
    return tuple(resolve(name) for name in names)
