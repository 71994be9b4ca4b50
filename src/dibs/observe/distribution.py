"""Distributions for monitoring systems: counts between fixed edges, in seconds, and the sum of what was observed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from msgspec import Struct

from dibs.core.histogram import upper_edge
from dibs.core.times import SECOND

__all__ = ["EDGES", "Distribution", "distribution_of"]

EDGES = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
    7200.0,
)
"""Upper edges in seconds, from a statement to a long run. They are part of the interface: queries name them."""


class Distribution(Struct):
    """`counts[i]` is what fell between edge i-1 and edge i, and the last one what was longer than all edges."""

    counts: list[int]
    sum: float = 0.0

    @classmethod
    def empty(cls) -> Distribution:
        return cls([0] * (len(EDGES) + 1))

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(EDGES, seconds)] += 1
        self.sum += seconds

    def merge(self, other: Distribution) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def copy(self) -> Distribution:
        return Distribution([*self.counts], self.sum)

    @property
    def count(self) -> int:
        return sum(self.counts)


def distribution_of(histogram: Mapping[int, int]) -> Distribution:
    """From a log histogram, whose buckets are 10 % wide: each is taken at its geometric middle."""
    found = Distribution.empty()
    for bucket, count in histogram.items():
        seconds = upper_edge(bucket) / SECOND / MIDDLE
        found.counts[bisect_left(EDGES, seconds)] += count
        found.sum += seconds * count
    return found


MIDDLE = 1.1**0.5
