"""A TCP proxy before a server, with which tests break what lies between: cut, refuse, stall, delay.

It runs on a thread of its own, so that it goes on whatever the loop under test does.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

__all__ = ["Proxy"]

PATIENCE = 30.0
CHUNK = 65536
Answer = TypeVar("Answer")


class Link:
    """One connection through the proxy. While `flows` is not set, bytes are taken but not passed on."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.ends = (client, server)
        self.flows = asyncio.Event()
        self.flows.set()
        self.answered = asyncio.Event()

    def cut(self) -> None:
        for end in self.ends:
            end.transport.abort()
        self.flows.set()  # who waits to pass something on finds nobody there
        self.answered.set()


class Proxy:
    """Forwards `port` to the server's; used as a context manager."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.accepts = True
        self.delay = 0.0
        self.stalls_new = False
        self.accepted = 0
        self.links: set[Link] = set()
        self.fuse: Callable[[], bool] = lambda: False
        self.traps: dict[bytes, str] = {}
        self.sprung = threading.Event()
        self._silent: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    # What a test does to it, from its own thread.

    def cut(self) -> int:
        """Reset every connection; how many there were."""
        return self._do(self._cut())

    def refuse(self) -> None:
        """Cut every connection, and let no new one in."""
        self.accepts = False
        self.cut()

    def stall(self, *, new: bool = True) -> int:
        """Bytes are accepted and go nowhere; `new`: also on connections that are made from now on."""
        return self._do(self._stall(new))

    def heal(self) -> None:
        """Everything is as it should be: what was stalled flows."""
        self._do(self._heal())

    def cut_at_random(self, probability: float, seed: int) -> None:
        """From now on any piece of data, in either direction, may be the last one of its connection."""
        chance = random.Random(seed)
        self.fuse = lambda: chance.random() < probability

    def trap(self, words: bytes, act: str) -> None:
        """When a client next sends these words: `before` cuts the connection instead of passing them on, `after` passes
        them on and cuts it before the answer, `stall` passes nothing on any more.
        """
        assert act in ("before", "after", "stall")
        self.sprung.clear()
        self.traps = {words: act}

    # What goes on inside, on its own loop.

    def _do(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        self.accepts = False  # also not what was accepted in the last moment
        async with asyncio.timeout(PATIENCE):
            while others := asyncio.all_tasks() - {asyncio.current_task()}:
                await self._cut()
                await asyncio.wait(others, timeout=0.1)

    async def _cut(self) -> int:
        found = [*self.links]
        for link in found:
            link.cut()
        for writer in [*self._silent]:
            writer.transport.abort()
        return len(found)

    async def _stall(self, new: bool) -> int:
        self.stalls_new = self.stalls_new or new
        for link in self.links:
            link.flows.clear()
        return len(self.links)

    async def _heal(self) -> None:
        self.accepts, self.stalls_new, self.delay, self.fuse, self.traps = True, False, 0.0, lambda: False, {}
        for link in self.links:
            link.flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if not self.accepts:
            writer.transport.abort()
            return
        if self.stalls_new:  # a black hole: it may say what it likes
            self._silent.add(writer)
            await quietly(reader.read)
            self._silent.discard(writer)
            writer.transport.abort()
            return
        try:
            theirs, server = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        link = Link(writer, server)
        self.links.add(link)
        try:
            await asyncio.gather(self._pump(link, reader, server, self._sprung_by), self._pump(link, theirs, writer))
        finally:
            self.links.discard(link)
            link.cut()

    def _sprung_by(self, data: bytes) -> str | None:
        for words, act in self.traps.items():
            if words in data:
                self.traps = {}
                return act
        return None

    async def _pump(
        self,
        link: Link,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        trap: Callable[[bytes], str | None] = lambda _: None,
    ) -> None:
        """One direction, until either end is gone."""
        try:
            while data := await source.read(CHUNK):
                act = trap(data)
                if act is not None:
                    link.flows.clear()  # no answer gets through
                    self.sprung.set()
                if act == "before":
                    break
                if act == "after":
                    sink.write(data)
                    await link.answered.wait()  # the server has done it
                    break
                if self.delay:
                    await asyncio.sleep(self.delay)
                if not link.flows.is_set():
                    link.answered.set()
                    await link.flows.wait()
                if self.fuse():
                    break
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            link.cut()


async def quietly(read: Callable[[], Awaitable[bytes]]) -> None:
    """Read to the end, whatever end that is."""
    try:
        await read()
    except OSError:
        return
