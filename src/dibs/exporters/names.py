"""Bounds labels: the first names of each kind are shown, and all later ones count as one."""

from __future__ import annotations

from collections import defaultdict

from dibs.observe.distribution import Distribution
from dibs.observe.metrics import OTHER, Kind, Metric, Sample

__all__ = ["LIMITS", "Names"]

LIMITS = {"queue": 200, "task": 200, "error_type": 200, "chore": 50}
"""How many values of a label are shown; labels that are not here have few values by nature."""


class Names:
    """Which values of labels are shown. What was shown once stays: a counter must not move to another series."""

    def __init__(self, limits: dict[str, int] | None = None) -> None:
        self._limits = LIMITS if limits is None else limits
        self._known: dict[str, set[str]] = defaultdict(set)

    def bounded(self, samples: list[Sample]) -> list[Sample]:
        """The same with bounded labels: what falls together is added up, or of ages and limits the largest is taken."""
        found: dict[tuple[str, tuple[str, ...]], Sample] = {}
        for sample in samples:
            metric = sample.metric
            labels = tuple(self._shown(label, value) for label, value in zip(metric.labels, sample.labels, strict=True))
            there = found.get((metric.name, labels))
            value = sample.value if there is None else together(metric, there.value, sample.value)
            found[metric.name, labels] = Sample(metric, labels, value)
        return list(found.values())

    def _shown(self, label: str, value: str) -> str:
        limit = self._limits.get(label)
        if limit is None:
            return value
        known = self._known[label]
        if value not in known:
            if len(known) >= limit:
                return OTHER
            known.add(value)
        return value


def together(metric: Metric, one: float | Distribution, other: float | Distribution) -> float | Distribution:
    if isinstance(one, Distribution) and isinstance(other, Distribution):
        added = one.copy()
        added.merge(other)
        return added
    assert not isinstance(one, Distribution)
    assert not isinstance(other, Distribution)
    if metric.kind is Kind.GAUGE and metric.name.endswith("_seconds"):
        return max(one, other)
    return one + other
