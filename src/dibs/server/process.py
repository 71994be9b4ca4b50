"""A server as the main program of its process: binds, opens the store, answers until a signal, and leaves.

HTTP and the engine share the app's own loop, so that no request hops between threads.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from dibs.client.app import Dibs
from dibs.core.options import shown
from dibs.engines.http.problems import problem_of
from dibs.errors import DibsError, InvalidOption, StoreBusy, StoreUnavailable
from dibs.runtime.environment import worker_name
from dibs.server.http import problem_response
from dibs.server.http_protocol import LimitedProtocol
from dibs.server.server import Server
from dibs.server.settings import ServerSettings, is_loopback
from dibs.version import __version__
from dibs.worker.caretaker import Caretaker
from dibs.worker.health import Backoff
from dibs.worker.main import PATIENCE
from dibs.worker.status import ExitCode
from dibs.worker.supervisor import handling_signals

__all__ = ["bind", "bound", "choose_loop", "serve"]

log = logging.getLogger("dibs.server")

KEEP_ALIVE = 75
"""Seconds that a connection stays open between two requests: longer than load balancers keep theirs."""

FIRST_TRY = 3.0
"""Seconds in which the store may be opened before the server begins to answer without it."""

TURN = 0.05
"""Seconds between two looks whether all requests have ended."""

OTHER_FILES = 256
"""Files that are open besides the connections of clients."""

ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Why an address of a host can't be used on this machine, while another one of it may."""

LARGEST_MESSAGE = 1024 * 1024
"""Bytes of a message that a WebSocket takes: names of queues and workers, no payloads."""

STALLED_MS = 30_000
"""After this, the system gives up a connection whose other end does not take what was sent."""

TRY_LATER = 1013


class CantListen(DibsError):
    """The address is taken."""


def serve(app: Dibs, settings: ServerSettings, *, shares_port: bool = False, access_log: bool = False) -> int:
    """Answer requests until SIGTERM or SIGINT, and close the app. The exit code is 0 if no request was cut off.

    The first signal stops accepting and gives requests `shutdown_timeout` seconds; the second ends them at once.
    `shares_port`: other processes of this server listen there as well.
    """
    settings.checked()
    tls = tls_context(settings)
    with closing(bind(settings, shares=shares_port)) as listener:
        choose_loop(app)
        allow_connections(settings.most_connections)
        process = Process(app, settings, listener, tls, access_log)
        with handling_signals(process.received):
            try:
                with app:
                    return app.hub.runner.main(process.run(), opens=False)
            finally:
                process.over()


class HttpServer(uvicorn.Server):
    """Uvicorn, but for signals, which are `Process`'s, and for how it ends."""

    def __init__(self, config: uvicorn.Config, listens: Callable[[], None]) -> None:
        """`listens` is called when it does."""
        super().__init__(config)
        self._listens = listens
        self.deadline = 0.0
        """Until when requests may end, on the monotonic clock, once it stops."""
        self.cut_off = 0

    def stop(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        self.deadline = min(self.deadline, deadline) if self.should_exit else deadline
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listens()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, let requests end, and cut off those that don't in time."""
        state = self.server_state
        for server in self.servers:
            server.close()
        for each in sockets or ():
            each.close()
        for connection in list(state.connections):
            connection.shutdown()
        while (state.tasks or state.connections) and time.monotonic() < self.deadline:  # noqa: ASYNC110  # uvicorn has no event for it
            await asyncio.sleep(TURN)
        await self._cut_off(list(state.tasks))

    async def _cut_off(self, requests: list[asyncio.Task[None]]) -> None:
        if requests:
            self.cut_off = len(requests)
            log.warning("Requests that were cut off because the time was up: %d.", self.cut_off)
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # each would fail there with a traceback
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for request in requests:
            request.cancel()
        if requests:
            await asyncio.wait(requests, timeout=1.0)


class AwaitingStore:
    """The server's application until and after the store has been opened; before that, the API answers 503.

    Otherwise each request would try to open the store itself, one after the other.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.is_open = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.is_open or not scope["path"].startswith("/api/"):
            await self.server(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": TRY_LATER})
        else:
            problem = problem_of(StoreUnavailable("the server could not open its store yet: try again later."))
            await problem_response(problem)(scope, receive, send)


class Process:
    """One life of a server, and what signals do to it."""

    def __init__(
        self,
        app: Dibs,
        settings: ServerSettings,
        listener: socket.socket,
        tls: ssl.SSLContext | None = None,
        access_log: bool = False,
    ) -> None:
        self.app = app
        self.settings = settings
        self.listener = listener
        self.server = Server(app, settings)
        self.application = AwaitingStore(self.server)
        self.http = HttpServer(uvicorn_config(self.application, settings, tls, access_log), self._introduce)
        self.caretaker = Caretaker(app.hub, f"server-{worker_name()}")
        self.address = address_of(listener, tls is not None)
        self._loop = app.hub.runner.loop
        self._tried = asyncio.Event()
        self._signals = 0
        self._watchdog: threading.Timer | None = None

    async def run(self) -> int:
        """Serve until stopped. Raises if the store turns out to be none that can be served."""
        opening = self._loop.create_task(self._open())
        opening.add_done_callback(lambda _: self._tried.set())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_TRY):
                    await self._tried.wait()
            if not opening.done():
                opening.add_done_callback(self._give_up)
            elif not opening.cancelled() and (error := opening.exception()) is not None:
                raise error
            await self.http.serve([self.listener])
        finally:
            opening.cancel()
            await asyncio.wait([opening])
            await self.caretaker.stop()
        if not opening.cancelled() and (error := opening.exception()) is not None:
            raise error
        log.info("The server has stopped.")
        return ExitCode.FAILED if self.http.cut_off else ExitCode.CLEAN

    async def _open(self) -> None:
        """Open the store, as often as it takes, and begin to keep it."""
        backoff, began, failed = Backoff(first=0.5, cap=10.0), time.monotonic(), False
        while not self.application.is_open:
            try:
                await self.app.hub.runner.opened()
                self.application.is_open = True
            except (StoreBusy, StoreUnavailable) as error:
                if not failed:
                    log.error("The store can't be reached, so the API answers 503 until it can: %s", error)
                failed = True
                self._tried.set()
                await asyncio.sleep(backoff.next())
        if failed:
            log.warning("The store can be reached after %.1f s.", time.monotonic() - began)
        if self.settings.keeps:
            self.caretaker.start()

    def _give_up(self, opening: asyncio.Task[None]) -> None:
        """Stop if the store was found after all, and is none that can be served."""
        if not opening.cancelled() and opening.exception() is not None:
            self._stop(0.0)

    def _introduce(self) -> None:
        """The server's first line, and what looks like a mistake."""
        tokens = self.server.tokens
        needed = "no tokens are needed" if tokens is None else f"tokens are needed, those in {tokens.path}"
        log.info(
            "Dibs %s serves %s at %s (API docs at /docs); %s.",
            __version__,
            self.app.hub.store_name,
            self.address,
            needed,
        )
        if not is_loopback(self.settings.host) and not self.settings.tls_cert and not self.settings.proxies:
            log.warning("Tokens travel unencrypted: give --tls-cert and --tls-key, or put a proxy with TLS before it.")
        if tokens is not None and not tokens.read():
            log.warning("There are no tokens yet. Make one: dibs tokens create NAME --scope … --tokens %s", tokens.path)

    # Stopping.

    def received(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: the first one is patient. A blocked loop never acts on it; then the process ends anyway."""
        self._signals += 1
        timeout = self.settings.shutdown_timeout if self._signals == 1 else 0.0
        hint = f" Requests have {timeout:g} s to end; a second one ends them at once." if self._signals == 1 else ""
        log.info("Got %s.%s", signal.Signals(number).name, hint)
        with suppress(RuntimeError):  # the loop is closed: it has stopped anyway
            self._loop.call_soon_threadsafe(self._stop, timeout)
        self.over()
        self._watchdog = threading.Timer(timeout + PATIENCE, force_exit)
        self._watchdog.daemon = True
        self._watchdog.start()

    def over(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()

    def _stop(self, timeout: float) -> None:
        """Not ready any more; long polls and sockets end; then nothing is accepted."""
        self.server.stopping.set()
        self._tried.set()
        self.http.stop(timeout)


def force_exit() -> None:
    log.critical("The event loop is blocked and the time is up: leaving without it.")
    logging.shutdown()
    os._exit(ExitCode.FORCED)


# Before it starts.


def uvicorn_config(
    application: AwaitingStore, settings: ServerSettings, tls: ssl.SSLContext | None, access_log: bool
) -> uvicorn.Config:
    config = uvicorn.Config(
        application,
        http=LimitedProtocol,
        ws=WebSocketsSansIOProtocol,
        ws_max_size=LARGEST_MESSAGE,
        ws_per_message_deflate=False,  # events are small, and would be compressed for each client
        interface="asgi3",
        lifespan="off",
        log_config=None,
        log_level="info" if log.isEnabledFor(logging.DEBUG) else "warning",
        access_log=access_log,
        server_header=False,
        date_header=True,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies),
        limit_concurrency=settings.most_connections,
        timeout_keep_alive=KEEP_ALIVE,
        workers=1,
    )
    if access_log:
        logging.getLogger("uvicorn.access").setLevel(logging.INFO)
    config.load()
    config.ssl = tls
    return config


def choose_loop(app: Dibs) -> None:
    """Use uvloop where it is installed, unless the app has used its loop already."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return
    app.hub.runner.make_loop = uvloop.new_event_loop


def allow_connections(most: int) -> None:
    """Raise the limit of open files, which often is 1,024, as far as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + OTHER_FILES if hard == resource.RLIM_INFINITY else min(most + OTHER_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def tls_context(settings: ServerSettings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    for path in (settings.tls_cert, settings.tls_key):
        check_readable(path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=refuse_password)
    except ssl.SSLError as error:
        what = (error.reason or str(error)).replace("_", " ").lower()
        raise InvalidOption(f"{settings.tls_cert} and {settings.tls_key} are no certificate and key: {what}.") from None
    return context


def check_readable(path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise InvalidOption(f"{path} can't be read: {error.strerror}.") from None


def refuse_password() -> str:
    """OpenSSL would ask for it on the terminal."""
    raise InvalidOption("the TLS key is encrypted: give one without a password, which only this user may read.")


def bind(settings: ServerSettings, *, shares: bool = False) -> socket.socket:
    """A socket at the address of the server, not yet listening; several processes may share it."""
    host, port, failure = settings.host, settings.port, OSError()
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise InvalidOption(f"the host {shown(host)} is unknown: give an address of this machine as --host.") from None
    for family, kind, protocol, _, address in found:
        if settings.tokens is None and not is_loopback(str(address[0])):
            raise InvalidOption(f"{shown(host)} is {address[0]}, and that needs tokens: give --tokens FILE.")
        try:
            return bound(socket.socket(family, kind, protocol), address, shares)
        except OSError as error:
            failure = error
            if error.errno not in ABSENT:
                break
    raise refusal(failure, settings)


def bound(made: socket.socket, address: object, shares: bool) -> socket.socket:
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # a client that takes nothing for so long is gone
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_MS)
        if shares:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(address)  # type: ignore[arg-type]  # as getaddrinfo has given it
    except OSError:
        made.close()
        raise
    return made


def refusal(error: OSError, settings: ServerSettings) -> DibsError:
    place = f"port {settings.port} of {settings.host}"
    if error.errno == errno.EADDRINUSE:
        return CantListen(f"{place} is in use: stop what listens there, or give another --port.")
    if error.errno == errno.EACCES:
        return InvalidOption(f"this user may not listen on {place}: give a --port from 1024 on.")
    if error.errno in ABSENT:
        return InvalidOption(f"{shown(settings.host)} is no address of this machine: give another --host.")
    return CantListen(f"can't listen on {place}: {error.strerror}.")


def address_of(listener: socket.socket, is_secure: bool) -> str:
    host, port = listener.getsockname()[:2]
    return f"{'https' if is_secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
