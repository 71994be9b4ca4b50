"""A partition of a queue, and its stored form, which is unique over all queues."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Partition(NamedTuple):
    """The partition `name` of one queue."""

    queue: str
    name: str

    @property
    def key(self) -> str:
        """The stored form. Names of queues contain no space."""
        return f"{self.queue} {self.name}"

    @staticmethod
    @lru_cache(maxsize=10_000)
    def parse(key: str) -> Partition:
        """The partition with this stored form. A claim asks several times for each."""
        queue, _, name = key.partition(" ")
        return Partition(queue, name)
