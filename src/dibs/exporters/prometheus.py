"""Samples as Prometheus reads them, written by its own client library, in the form that the scraper asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from dibs.errors import UsageError
from dibs.observe.distribution import EDGES, Distribution
from dibs.observe.metrics import METRICS, Kind, Metric, Sample

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.core import Metric as Family
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise UsageError("metrics need the client library of Prometheus: pip install 'dibs[metrics]'.") from error

__all__ = ["AppCollector", "exposition"]

ORDER = {metric.name: place for place, metric in enumerate(METRICS)}
BOUNDS = (*(str(edge) for edge in EDGES), "+Inf")


class AppCollector(Collector):
    """For a registry of Prometheus's own client: gives it samples at each scrape."""

    def __init__(self, read: Callable[[], Iterable[Sample]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Family]:
        return families(self._read())

    def describe(self) -> Iterable[Family]:
        """Nothing is read before the first scrape."""
        return ()


class Once(Collector):
    """What one scrape has found."""

    def __init__(self, found: list[Family]) -> None:
        self._found = found

    def collect(self) -> Iterable[Family]:
        return self._found


def exposition(samples: Iterable[Sample], accept: str = "") -> tuple[bytes, str]:
    """The text for a scraper, and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(Once(list(families(samples)))), content_type


def families(samples: Iterable[Sample]) -> Iterator[Family]:
    """By metric, in the order of the catalogue."""
    by_metric: dict[str, list[Sample]] = {}
    for sample in samples:
        by_metric.setdefault(sample.metric.name, []).append(sample)
    for name in sorted(by_metric, key=ORDER.__getitem__):
        yield family(by_metric[name][0].metric, by_metric[name])


def family(metric: Metric, samples: list[Sample]) -> Family:
    text, labels = metric.help, metric.labels
    if metric.kind is Kind.HISTOGRAM:
        durations = HistogramMetricFamily(metric.full_name, text, labels=labels)
        for sample in samples:
            assert isinstance(sample.value, Distribution)
            counts = accumulate(sample.value.counts)
            durations.add_metric(sample.labels, list(zip(BOUNDS, counts, strict=True)), sample.value.sum)
        return durations
    make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    found = make(metric.full_name, text, labels=labels)
    for sample in samples:
        assert not isinstance(sample.value, Distribution)
        found.add_metric(sample.labels, sample.value)
    return found
