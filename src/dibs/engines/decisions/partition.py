"""A partition of a queue, and its stored form, which is unique over all queues."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Partition"]


class Partition(NamedTuple):
    """The partition `name` of one queue."""

    queue: str
    name: str

    @property
    def key(self) -> str:
        """The stored form. Names of queues contain no space."""
        return f"{self.queue} {self.name}"

    @classmethod
    def parse(cls, key: str) -> Partition:
        queue, _, name = key.partition(" ")
        return cls(queue, name)
