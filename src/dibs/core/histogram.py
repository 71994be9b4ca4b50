"""Log histograms: percentiles within 10 % from a few dozen integers, and any two can be added."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, log

from dibs.core.times import Duration

__all__ = ["Histogram", "add", "mean", "merge", "percentile", "upper_edge"]

Histogram = dict[int, int]
"""bucket → count. Bucket b holds durations up to 1.1^b microseconds."""

STEP = log(1.1)


def bucket_of(span: Duration) -> int:
    """The bucket of a duration."""
    return 0 if span <= 1 else ceil(log(span) / STEP)


def upper_edge(bucket: int) -> Duration:
    """The longest duration that a bucket stands for."""
    return round(1.1**bucket)


def add(histogram: Histogram, span: Duration) -> None:
    """Count one duration."""
    bucket = bucket_of(span)
    histogram[bucket] = histogram.get(bucket, 0) + 1


def merge(into: Histogram, other: Mapping[int, int]) -> None:
    """Add another histogram's counts."""
    for bucket, count in other.items():
        into[bucket] = into.get(bucket, 0) + count


def percentile(histogram: Mapping[int, int], share: float) -> Duration | None:
    """The duration that `share` (0…1) of the counted ones don't exceed; None if nothing was counted."""
    total = sum(histogram.values())
    if total == 0:
        return None
    wanted = max(1, ceil(share * total))
    seen = 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= wanted:
            return upper_edge(bucket)
    raise AssertionError("unreachable: the counts add up to the total")


def mean(histogram: Mapping[int, int]) -> Duration | None:
    """The average, taking each bucket at its upper edge."""
    total = sum(histogram.values())
    return None if total == 0 else sum(upper_edge(bucket) * count for bucket, count in histogram.items()) // total
