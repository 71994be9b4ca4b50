"""A worker's own port: `/metrics`, `/health` and `/ready`, on threads that answer also while its loop is blocked."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from dibs.core.options import check_number, check_text, shown
from dibs.errors import InvalidOption, UsageError
from dibs.exporters.names import Names
from dibs.exporters.process_figures import process_samples
from dibs.exporters.prometheus import exposition
from dibs.exporters.worker_figures import worker_samples
from dibs.version import __version__
from dibs.worker.worker import Worker

__all__ = ["serving"]

log = logging.getLogger("dibs.worker")

SILENCE = 5.0
"""Seconds after which a client that says nothing is hung up on."""
MOST_CLIENTS = 32
"""Clients that are answered at once: scrapers and probes are few."""
TEXT, JSON = "text/plain; charset=utf-8", "application/json"

Answer = tuple[int, str, bytes]


class Endpoint:
    """What a worker answers."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._names = Names()

    def answer(self, path: str, accept: str) -> Answer:
        if path == "/metrics":
            samples = [*worker_samples(self._worker), *process_samples(self._worker.hub)]
            text, content_type = exposition(self._names.bounded(samples), accept)
            return 200, content_type, text
        if path == "/health":
            return health(self._worker.not_live(), "not live")
        if path == "/ready":
            return health(self._worker.not_ready(), "not ready")
        return 404, TEXT, b"There is /metrics, /health and /ready.\n"


def health(problem: str | None, word: str) -> Answer:
    said = {"status": "ok" if problem is None else word, "version": __version__}
    if problem is not None:
        said["detail"] = problem
    return (200 if problem is None else 503), JSON, msgspec.json.encode(said)


class Handler(BaseHTTPRequestHandler):
    """One client."""

    timeout = SILENCE
    server_version, sys_version = "dibs", ""

    def __init__(self, endpoint: Endpoint, *args: Any) -> None:
        self._endpoint = endpoint
        super().__init__(*args)

    def do_GET(self) -> None:  # the name of the base class
        path = self.path.partition("?")[0]
        try:
            status, content_type, body = self._endpoint.answer(path, self.headers.get("Accept", ""))
        except Exception:
            log.exception("The worker's %s could not be answered.", path)
            status, content_type, body = 500, TEXT, b"It failed; the log says why.\n"
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815  # the name of the base class

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes and probes are no news."""


class Listener(ThreadingHTTPServer):
    """A thread for each client, up to a limit."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], endpoint: Endpoint) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._room = threading.BoundedSemaphore(MOST_CLIENTS)
        super().__init__(address, partial(Handler, endpoint))

    def server_bind(self) -> None:
        """Without asking the resolver for a name of this host, which may take seconds."""
        socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up, or sent no HTTP."""


@contextmanager
def serving(worker: Worker, port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Answer for a worker while this is entered; gives the port, which 0 leaves to the system."""
    check_number(port, "the metrics port", 0, 65_535)
    check_text(host, "the metrics host", 255)
    try:
        listener = Listener((host, port), Endpoint(worker))
    except OSError as error:
        raise refusal(error, host, port) from None
    thread = threading.Thread(target=listener.serve_forever, args=(0.1,), name="dibs-metrics", daemon=True)
    thread.start()
    log.info("Metrics, health and readiness of the worker are at http://%s:%d.", host, listener.server_port)
    try:
        yield listener.server_port
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def refusal(error: OSError, host: str, port: int) -> UsageError:
    if error.errno == errno.EADDRINUSE:
        return UsageError(f"the metrics port {port} of {host} is in use: give another one, or 0 for a free one.")
    if error.errno == errno.EACCES:
        return UsageError(f"this user may not listen on port {port} of {host}: give a metrics port from 1024 on.")
    return InvalidOption(f"can't listen for metrics on {shown(host)}, port {port}: {error.strerror or error}.")
