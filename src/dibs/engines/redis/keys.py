"""The names of all keys. `docs/design/redis.md` says what each holds.

All keys of an installation have one hash tag, so that a cluster keeps them on one server and every script may use them
all. What is kept for each track, day or queue is derived from the declared prefix, in the same slot.
"""

from __future__ import annotations

from dibs.core.states import State

__all__ = ["Keys"]


class Keys:
    """The keys of one installation."""

    def __init__(self, prefix: str) -> None:
        self.tag = prefix
        self.base = f"{{{prefix}}}:"
        """What every key begins with."""

    def __call__(self, name: str) -> str:
        return f"{self.base}{name}"

    def pending(self, track: int) -> str:
        return f"{self.base}pending:{track}"

    def waiting(self, track: int, state: State) -> str:
        """Tasks that are not pending, for searches."""
        return f"{self.base}{state}:{track}"

    def finished(self, day: int) -> str:
        return f"{self.base}finished:{day}"

    def finished_ids(self, day: int) -> str:
        return f"{self.base}finished_ids:{day}"

    def finished_counts(self, day: int) -> str:
        return f"{self.base}finished_counts:{day}"

    def idle(self, queue: str) -> str:
        """Set while a claim has found nothing in the queue since the last wake-up."""
        return f"{self.base}idle:{queue}"

    def channel(self, topic: str) -> str:
        return f"{self.base}topic:{topic}"

    def alive(self, worker: str) -> str:
        """The channel that a worker's process listens to while it lives."""
        return f"{self.base}alive:{worker}"
