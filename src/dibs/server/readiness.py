"""Whether the server can serve, asked of the store at most once a second, however many ask."""

from __future__ import annotations

import asyncio
import time

from dibs.errors import DibsError
from dibs.runtime.hub import Hub

__all__ = ["Readiness"]

FRESH = 1.0
PATIENCE = 3.0
"""Seconds after which a store that does not answer counts as away."""


class Readiness:
    """The last known state of the store."""

    def __init__(self, hub: Hub, stopping: asyncio.Event) -> None:
        self._hub = hub
        self._stopping = stopping
        self._known: str | None = "it has not been asked yet"
        self._asked_at = float("-inf")
        self._asking: asyncio.Future[None] | None = None

    async def problem(self) -> str | None:
        """Why it can't serve; None if it can."""
        if self._stopping.is_set():
            return "the server is stopping"
        if time.monotonic() - self._asked_at > FRESH:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.ensure_future(self._ask())
            await asyncio.shield(self._asking)
        return self._known

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._hub.runner.arun(self._hub.engine.about())
            self._known = None
        except (DibsError, TimeoutError):
            self._known = "the store is away"
        finally:
            self._asked_at = time.monotonic()
