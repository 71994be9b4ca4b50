"""`dibs serve` as a process: its log, its address, and requests to it."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

__all__ = ["PATIENCE", "Serving", "end_request"]

PATIENCE = 40.0
"""Seconds after which something that should happen has not."""

ABOUT = "/api/v1/engine/about"
NO_ARGUMENTS = b"\x80"
INTRODUCTION = re.compile(r" serves .* at (https?://\S+) ")


class Serving:
    """A server on a free port; used as a context manager, it is killed in the end if it still runs."""

    def __init__(self, *arguments: str, cwd: Path, **options: Any) -> None:
        port = () if "--port" in arguments else ("--port", "0")
        command = [sys.executable, "-X", "faulthandler", "-W", "error", "-m", "dibs", "serve", *arguments, *port]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=cwd, **options)
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGABRT if isinstance(error, AssertionError) else signal.SIGKILL)
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        if self.process.stderr is not None:
            self.process.stderr.close()
        if error is not None:
            sys.stderr.write(self.log)

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def wait_for(self, pattern: str, times: int = 1) -> str:
        """The line with this pattern, once it has been written so often."""
        until = time.monotonic() + PATIENCE
        with self._news:
            while True:
                found = [line for line in self.lines if re.search(pattern, line)]
                if len(found) >= times:
                    return found[-1]
                left = until - time.monotonic()
                assert left > 0, f"{pattern!r} was not logged {times} times:\n{self.log}"
                assert self.process.poll() is None or self._reader.is_alive(), f"it has ended:\n{self.log}"
                self._news.wait(min(left, 0.2))

    @property
    def url(self) -> str:
        """Where it listens, once it does."""
        found = INTRODUCTION.search(self.wait_for(INTRODUCTION.pattern))
        assert found is not None
        return found[1]

    @property
    def place(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def request(
        self,
        method: str = "POST",
        path: str = ABOUT,
        body: bytes = NO_ARGUMENTS,
        tls: ssl.SSLContext | None = None,
        **headers: str,
    ) -> tuple[int, bytes]:
        """One request on a connection of its own."""
        host, port = self.place
        if tls is None:
            connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=PATIENCE, context=tls)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def begin_request(self) -> socket.socket:
        """A request that lacks the last byte of its body: the server is at it until that comes."""
        made = socket.create_connection(self.place, timeout=PATIENCE)
        made.sendall(f"POST {ABOUT} HTTP/1.1\r\nHost: {urlsplit(self.url).netloc}\r\nContent-Length: 1\r\n".encode())
        made.sendall(b"Expect: 100-continue\r\n\r\n")
        assert b"100 Continue" in made.recv(1000)  # it waits for the body
        return made

    def stop(self, number: int = signal.SIGTERM) -> int:
        """The exit code after a signal."""
        self.process.send_signal(number)
        return self.finish()

    def finish(self) -> int:
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it hangs:\n{self.log}") from None
        self._reader.join(PATIENCE)
        return code


def end_request(made: socket.socket) -> bytes:
    """Send the last byte, and read until the server closes the connection."""
    with made:
        made.sendall(NO_ARGUMENTS)
        answer = b""
        while part := made.recv(65536):
            answer += part
        return answer
