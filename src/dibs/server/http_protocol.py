"""A connection with limits that uvicorn does not have: how large the head of a request may be, and how slow."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["LimitedProtocol"]

LARGEST_HEAD = 64 * 1024
"""Bytes of a request's first line and headers."""
HEAD_SECONDS = 30.0
"""How long a client may take to send them."""


class LimitedProtocol(HttpToolsProtocol):
    """Closes a connection whose next request does not come to the end of its headers."""

    head = 0
    is_head = False
    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.is_head:
            self.head += len(data)
            if self.head > LARGEST_HEAD and not self.transport.is_closing():
                self.send_400_response("The headers are too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin()
        self.is_head, self.head = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self.head += len(name) + len(value)
        if self.head > LARGEST_HEAD:
            raise ValueError("the headers are too large")  # the parser stops, and the client gets a 400
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._end()
        self.is_head = False
        super().on_headers_complete()

    def _begin(self) -> None:
        self._end()
        self.timer = self.loop.call_later(HEAD_SECONDS, self._late)

    def _end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _late(self) -> None:
        self.timer = None
        if not self.transport.is_closing():
            self.transport.close()
