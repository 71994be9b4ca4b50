"""A Dibs server that listens, on a thread of its own, in the process of the test."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

import uvicorn

from dibs import Dibs
from dibs.core.times import Instant
from dibs.engines.base import Engine, MayBlock, never
from dibs.engines.http.connection import Address
from dibs.engines.http.engine import HttpEngine
from dibs.server import Server, ServerSettings
from servers.asgi import TurnedClock

__all__ = ["LiveEngine", "LiveServer"]

PATIENCE = 30.0
KEEPING = ("rescue", "fire", "lead", "resign", "chore", "backup", "migrations")


class Uvicorn(uvicorn.Server):
    def __init__(self, server: Server, **options: Any) -> None:
        settings: Any = {"lifespan": "off", "log_config": None, "log_level": "critical", "ws": "websockets-sansio"}
        super().__init__(uvicorn.Config(server, **settings, **options))
        self.is_up = threading.Event()
        self.stops = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    async def main_loop(self) -> None:
        """Uvicorn's own looks ten times a second whether it should end: too slow for hundreds of tests."""
        await self.stops.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=PATIENCE)


class LiveServer:
    """Serves an app at `url`, on the app's own loop; used as a context manager. It closes the app."""

    def __init__(self, app: Dibs, settings: ServerSettings | None = None, port: int = 0, **options: Any) -> None:
        self.app = app
        self.server = Server(app, settings or ServerSettings(keeps=False))
        self.http = Uvicorn(self.server, **options)
        self.listener = socket.socket(proto=socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY for these only
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.url = f"http{'s' if 'ssl_certfile' in options else ''}://127.0.0.1:{self.port}"
        self.failure: BaseException | None = None
        self.users = 0
        """Engines that need it."""
        self.thread = threading.Thread(target=self._serve, name="live-server", daemon=True)

    def _serve(self) -> None:
        try:
            self.app.hub.runner.main(self.http.serve([self.listener]))
        except BaseException as error:
            self.failure = error
            self.http.is_up.set()

    def start(self) -> LiveServer:
        self.thread.start()
        assert self.http.is_up.wait(PATIENCE)
        if self.failure is not None:
            raise self.failure
        return self

    def stop(self) -> None:
        loop = self.app.hub.runner.loop
        loop.call_soon_threadsafe(self.server.stopping.set)
        loop.call_soon_threadsafe(self.http.stops.set)
        self.thread.join(PATIENCE)
        self.listener.close()
        self.app.close()

    def __enter__(self) -> LiveServer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()


class LiveEngine(HttpEngine):
    """An HTTP engine, over a socket, with a server of its own; like `RemoteEngine` otherwise."""

    def __init__(self, inner: Engine, live: LiveServer | None = None, clock: TurnedClock | None = None) -> None:
        self.clock = clock or TurnedClock()
        self.inner = inner
        self.live = live
        self._is_counted = False
        super().__init__(Address(urls=("http://127.0.0.1:1",), patience=0.0))
        self.features = inner.features - {"transactions", "inline"}
        for name in KEEPING:
            setattr(self, name, self._there(name))

    def _there(self, name: str) -> Callable[..., Awaitable[Any]]:
        """A verb that is not on the wire, on the server's loop."""

        async def call(*values: Any, **given: Any) -> Any:
            assert self.live is not None
            work = getattr(self.inner, name)(*values, **given)
            running = asyncio.run_coroutine_threadsafe(work, self.live.app.hub.runner.loop)
            return await asyncio.wrap_future(running)

        return call

    def at(self, now: Instant) -> None:
        self.clock.at = now

    async def open(self, may_block: MayBlock = never, *, create: bool = True) -> None:
        if self.live is None:
            app = Dibs(engine=self.inner, clock=self.clock)
            app.hub.creates = create
            self.live = await asyncio.to_thread(LiveServer(app).start)
        if not self._is_counted:
            self._is_counted = True
            self.live.users += 1
        self.address = Address(urls=(self.live.url,), patience=0.0)
        await super().open(create=create)

    async def close(self) -> None:
        await super().close()
        if self.live is not None and self._is_counted:
            self._is_counted, live = False, self.live
            live.users -= 1
            if not live.users:
                self.live = None
                await asyncio.to_thread(live.stop)

    def sibling(self) -> Engine:
        return LiveEngine(self.inner, self.live, self.clock)  # type: ignore[return-value]
