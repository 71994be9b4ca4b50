"""What time it is, for the app and for the store."""

from __future__ import annotations

import time
from typing import Protocol, runtime_checkable

from dibs.core.times import Instant


@runtime_checkable
class Clock(Protocol):
    """`now()` is this process's best guess; `store_now()` goes to the engine, None meaning the store's own clock."""

    def now(self) -> Instant: ...
    def store_now(self) -> Instant | None: ...


class SystemClock:
    """The store uses its own clock."""

    def now(self) -> Instant:
        return time.time_ns() // 1000

    def store_now(self) -> Instant | None:
        return None
