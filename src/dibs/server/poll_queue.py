"""Of the pollers that wait for the same work, one at a time asks the store.

All of them would be woken by every task, and all but one in vain; and each would look again every second. So the others
wait for their turn, which comes when the one before has got something, or gives up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from weakref import WeakValueDictionary

__all__ = ["PollQueue"]


class PollQueue:
    """Locks by the kind of work: first come, first served."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    def lock(self, kind: Hashable) -> asyncio.Lock:
        """The same as long as anybody has it."""
        lock = self._locks.get(kind)
        if lock is None:
            lock = self._locks[kind] = asyncio.Lock()
        return lock
