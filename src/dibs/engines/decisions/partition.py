"""A partition of a queue, and the text by which stores tell the partitions of all queues apart."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Partition"]


class Partition(NamedTuple):
    """The partition `name` of one queue."""

    queue: str
    name: str

    @property
    def key(self) -> str:
        """The stored form. No queue's name has a space."""
        return f"{self.queue} {self.name}"

    @classmethod
    def parse(cls, key: str) -> Partition:
        queue, _, name = key.partition(" ")
        return cls(queue, name)
