"""How many requests a server has answered, how, and how long that took."""

from __future__ import annotations

from collections.abc import Iterator

from dibs.observe import metrics
from dibs.observe.distribution import Distribution
from dibs.observe.metrics import Sample

__all__ = ["RequestFigures"]


class RequestFigures:
    """By route, as the router knows it: its number is bounded, whatever paths are asked for."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, str], int] = {}
        self._seconds: dict[tuple[str, str], Distribution] = {}

    def record(self, route: str, method: str, status: int, seconds: float) -> None:
        key = (route, method, str(status))
        self._requests[key] = self._requests.get(key, 0) + 1
        found = self._seconds.get(key[:2])
        if found is None:
            found = self._seconds[key[:2]] = Distribution.empty()
        found.observe(seconds)

    def samples(self) -> Iterator[Sample]:
        for labels, number in self._requests.items():
            yield Sample(metrics.REQUESTS, labels, number)
        for route, seconds in self._seconds.items():
            yield Sample(metrics.REQUEST_SECONDS, route, seconds)
