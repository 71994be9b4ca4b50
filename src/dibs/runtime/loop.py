"""The event loop of an app's engine, and which thread drives it.

A hop to a background thread costs 150–200 µs a call; driving the loop on the caller's own thread about 16 µs. So a lone
blocking caller drives the loop itself. A background thread takes over once the loop has to run by itself: for async
callers on another loop, for waits for results, for an in-process worker. `dibs worker` drives it on its main thread. A
forked child resets everything.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from dibs.engines.base import MayBlock
from dibs.errors import Closed, StoreUnavailable, WrongThread

__all__ = ["LoopRunner"]

Result = TypeVar("Result")

CLOSED = "this app has been closed."
GRACE = 0.5
"""Seconds in which calls under way can end when the app is closed."""


class DibsLoop(asyncio.SelectorEventLoop):
    """The loop of one app."""

    def __del__(self) -> None:
        # Not an error: most apps live as long as their module, and are never closed.
        if not self.is_closed() and not self.is_running():
            self.close()


class LoopRunner:
    """Runs coroutines on one loop, from any thread."""

    def __init__(self, start: Callable[[MayBlock], Awaitable[None]], forget: Callable[[], None]) -> None:
        self._start = start
        self._forget = forget
        self.make_loop: Callable[[], asyncio.AbstractEventLoop] = DibsLoop
        """Makes the loop at its first use; before that, another kind can be chosen."""
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._drive = threading.Lock()
        self._gate = threading.Lock()
        """Held while work is handed to the loop of another thread, so that none is handed over after it stopped."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._serving = threading.Event()
        self._only_callers = True
        self._started = False
        self._opening = asyncio.Lock()
        self._closing = threading.RLock()
        self._closed = False
        self._ending = False
        """The engine is being closed: calls that still find it open may fail at any point."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, made at first use."""
        if self._pid != os.getpid():
            self._forget()
            self._reset()
        if self._closed:
            raise Closed(CLOSED)
        return self._loop or self._made_loop()

    def _made_loop(self) -> asyncio.AbstractEventLoop:
        with self._gate:  # two threads may be first
            if self._loop is None:
                self._loop = self.make_loop()
            return self._loop

    @property
    def is_serving(self) -> bool:
        """Whether a thread drives the loop for all callers."""
        return self._pid == os.getpid() and self._serving.is_set()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def may_block(self) -> bool:
        """Whether only blocked callers drive the loop, so that blocking it does no harm."""
        return self._only_callers

    def ensure_engine(self) -> None:
        """Open the engine if it is not open yet."""
        if self._pid != os.getpid() or not self._started:
            self.run(asyncio.sleep(0))

    async def aensure_engine(self) -> None:
        """`ensure_engine` for async code."""
        if self._pid != os.getpid() or not self._started:
            await self.arun(asyncio.sleep(0))

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Block until done, driving the loop on this thread unless another one does."""
        try:
            running = asyncio._get_running_loop()
            loop = self.loop
            if running is loop:
                raise WrongThread(
                    "a blocking call inside async code on Dibs's own loop would wait for itself: "
                    "use the async form (aenqueue, aresult, …)."
                )
            if running is not None:
                self.serve()
        except BaseException:
            work.close()
            raise
        while not self._serving.is_set():
            if self._drive.acquire(timeout=0.05):
                try:
                    if self._closed:
                        work.close()
                        raise Closed(CLOSED)
                    if not self._serving.is_set():
                        return loop.run_until_complete(self._with_engine(work))
                finally:
                    self._drive.release()
        return self._submit(work).result()

    def take(self) -> bool:
        """Reserve the engine if nothing drives the loop. If True, the caller may use it, and then calls `give_back`."""
        if not self._started or self._serving.is_set() or self._pid != os.getpid():
            return False
        if not self._drive.acquire(blocking=False):
            return False
        if self._serving.is_set() or self._closed:
            self._drive.release()
            return False
        return True

    def give_back(self) -> None:
        self._drive.release()

    async def arun(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await from any loop."""
        try:
            loop = self.loop
        except BaseException:
            work.close()
            raise
        if asyncio.get_running_loop() is loop:
            return await self._with_engine(work)
        self.serve()
        return await asyncio.wrap_future(self._submit(work))

    def _submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Hand work to the thread that drives the loop."""
        with self._gate:
            if self._closed or self._loop is None:
                work.close()
                raise Closed(CLOSED)
            return asyncio.run_coroutine_threadsafe(self._with_engine(work), self._loop)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Have the loop call this, from any thread."""
        with self._gate:
            if self._closed or self._loop is None:
                raise Closed(CLOSED)
            self._loop.call_soon_threadsafe(callback)

    async def _with_engine(self, work: Coroutine[Any, Any, Result]) -> Result:
        if not self._started:
            try:
                await self.opened()
            except BaseException:
                work.close()
                raise
        try:
            return await work
        except (asyncio.CancelledError, StoreUnavailable):
            if self._ending:
                raise Closed("the app was closed while this call was under way.") from None
            raise

    async def opened(self) -> None:
        """On the loop: make sure that the engine is open."""
        if self._started:
            return
        async with self._opening:  # opening may suspend, and others may ask for it in that time
            if not self._started:
                await self._start(self.may_block)
                self._started = True

    def serve(self) -> None:
        """Have a background thread drive the loop from now on."""
        loop = self.loop
        if self._serving.is_set():  # by another thread, or by a worker on its main thread
            return
        with self._drive:
            if self._serving.is_set():
                return
            with self._gate:
                if self._closed:
                    raise Closed(CLOSED)
                self._only_callers = False
                self._thread = threading.Thread(target=self._serve, args=(loop,), name="dibs-loop", daemon=True)
                self._thread.start()
            self._serving.wait()

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.call_soon(self._serving.set)
        loop.run_forever()

    def main(self, work: Coroutine[Any, Any, Result], *, opens: bool = True) -> Result:
        """Drive the loop on this thread until `work` is done, and serve the calls of other threads.

        Without `opens`, the engine is not opened before: `work` does that, with `opened`, when it can.
        """
        loop = self.loop
        with self._drive:
            self._only_callers = False
            self._serving.set()
            try:
                return loop.run_until_complete(self._with_engine(work) if opens else work)
            finally:
                self._serving.clear()
                self._only_callers = True

    async def aclose(self, finish: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """`close` for async code, without blocking its loop."""
        self._refuse_own_loop("aclose")
        await asyncio.to_thread(self.close, finish)

    def close(self, finish: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `finish` on the loop, then end it. A second call does nothing; a concurrent one waits for the end."""
        self._refuse_own_loop("close")
        if self._pid != os.getpid():  # all of it belongs to the parent
            return
        with self._closing:
            if self._loop is not None and not self._closed:
                self._end(self._loop, finish)
            self._closed = True

    def _refuse_own_loop(self, caller: str) -> None:
        running = asyncio._get_running_loop()
        if running is not None and running is self._loop and self._pid == os.getpid():
            raise WrongThread(f"{caller}() on Dibs's own loop would wait for itself: call it from outside.")

    def _end(self, loop: asyncio.AbstractEventLoop, finish: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._ending = True
        if self._started:
            self.run(finish())
        with self._gate:
            if self._closed:  # by a signal's handler, on this very thread
                return
            self._closed = True
            thread = self._thread
            driven = thread is not None or self._serving.is_set()
            ending = asyncio.run_coroutine_threadsafe(end_calls(), loop) if driven else None
        if thread is not None and ending is not None:
            ending.result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
        with self._drive:  # nothing else drives it from here on
            if asyncio._get_running_loop() is None:
                end_loop(loop)
            else:  # called from async code: no loop can be driven on a thread that drives another
                ending_thread = threading.Thread(target=end_loop, args=(loop,), name="dibs-close")
                ending_thread.start()
                ending_thread.join()


def end_loop(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_until_complete(end_calls())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


async def end_calls() -> None:
    """Let the calls under way end; those that don't are cancelled, and raise `Closed` in their callers."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        _, late = await asyncio.wait(others, timeout=GRACE)
        for task in late:
            task.cancel()
