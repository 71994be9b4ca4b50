"""Prometheus in programs of your own: metrics of an app in your registry, and a port for a worker that you start.

`dibs serve` has `/metrics` by itself, and `dibs worker` with `--metrics-port`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from dibs.client.app import Dibs
from dibs.core.options import check_kind
from dibs.exporters.endpoint import serving
from dibs.exporters.names import Names
from dibs.exporters.process_figures import process_samples
from dibs.exporters.prometheus import AppCollector
from dibs.observe.metrics import Sample
from dibs.worker.worker import Worker

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

__all__ = ["register_metrics", "serve_metrics"]


def register_metrics(app: Dibs, registry: CollectorRegistry | None = None) -> None:
    """Show what this process does with its store in a registry of `prometheus_client`, by default the global one.

    Its calls of the store, its connections, and whether the store is away. One app for each registry.
    """
    from prometheus_client import REGISTRY

    hub, names = check_kind(app, "app", Dibs).hub, Names()

    def read() -> Iterator[Sample]:
        yield from names.bounded([*process_samples(hub)])

    (REGISTRY if registry is None else registry).register(AppCollector(read))


def serve_metrics(worker: Worker, port: int, host: str = "127.0.0.1") -> AbstractContextManager[int]:
    """Serve `/metrics`, `/health` and `/ready` of a worker while this is entered; gives the port (0: a free one)."""
    return serving(check_kind(worker, "worker", Worker), port, host)
