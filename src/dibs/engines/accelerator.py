"""What a store may have beside it to be faster. The store works without it, and it may go away at any time.

It carries wake-ups between processes, and keeps token buckets that many would otherwise write to one row for. Nothing
else is kept there, and nothing that is lost there is missed for long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from msgspec import Struct

from dibs.core.settings import Limit
from dibs.core.times import Instant
from dibs.engines.values import Finding

__all__ = ["Accelerator", "Ask", "MakeAccelerator", "Receive"]

Receive = Callable[[Collection[str]], None]
"""Is called with the topics that another process has told."""


class Ask(Struct, frozen=True):
    """So many tokens of one bucket are wanted; a negative number is given back."""

    bucket: tuple[str, str]
    """Queue and client."""
    limit: Limit
    count: int


class Accelerator(Protocol):
    """Used on the loop of the engine that made it. No method raises if it is away."""

    @property
    def is_up(self) -> bool:
        """Whether topics arrive by it, as far as is known."""
        ...

    async def publish(self, topics: Collection[str]) -> Collection[str]:
        """Tell other processes. Answers with the topics that the store has to tell itself."""
        ...

    def listen_to(self, topics: Collection[str]) -> None:
        """Receive these until they are released, as often as they were asked for."""
        ...

    def release(self, topics: Collection[str]) -> None: ...

    async def take(self, asks: Sequence[Ask], now: Instant | None) -> list[tuple[int, int]] | None:
        """Take tokens: how many there were, at most as many as wanted, and the level that is left. None: it is away."""
        ...

    async def check(self) -> Finding: ...

    async def close(self) -> None: ...


MakeAccelerator = Callable[[str, Receive, Callable[[], None]], Accelerator]
"""Takes the identity of the store, what to do with topics, and what to do when it goes away."""
