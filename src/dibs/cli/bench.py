"""`dibs bench`: how fast is it here, on this store?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from dibs.benchmark.app import make_app
from dibs.benchmark.measures import measure_all
from dibs.cli.options import json_option
from dibs.client.app import Dibs
from dibs.core.options import check_number
from dibs.engines.open import shown_url
from dibs.engines.values import Feature
from dibs.errors import InvalidOption
from dibs.terminal import emit, say, show, status, table

__all__ = ["bench"]


@click.command()
@click.argument("url", required=False)
@click.option(
    "--tasks", "count", default=20_000, show_default=True, help="Tasks to drain; fewer are enqueued one by one."
)
@click.option("--processes", default=1, show_default=True, help="Worker processes.")
@click.option("--concurrency", default=200, show_default=True, help="Tasks at once in each of them.")
@click.option("--samples", default=300, show_default=True, help="Tasks whose start latency is measured.")
@json_option
def bench(url: str | None, count: int, processes: int, concurrency: int, samples: int, as_json: bool) -> None:
    """Measure how fast it is here.

    Enqueueing, draining and start latency on a store of its own: a fresh SQLite file, or URL. Tasks are no-op async
    functions whose results are kept; the JSON names what each figure is. For a store that lives in one process
    (memory://), the worker runs in this process.
    """
    check_number(count, "--tasks", 100, 10_000_000)
    check_number(processes, "--processes", 1, 64)
    check_number(concurrency, "--concurrency", 1, 10_000)
    check_number(samples, "--samples", 10, 100_000)
    with TemporaryDirectory(prefix="dibs-bench-", ignore_cleanup_errors=True) as folder:
        place = f"sqlite:///{folder}/bench.db" if url is None else url
        with make_app(place) as app:
            if Feature.SHARED not in app.hub.engine.features and processes > 1:
                raise InvalidOption(f"{shown_url(place)} lives in one process: leave --processes out.")
            if Feature.DURABLE in app.hub.engine.features:
                refuse_used(app)
            announce = partial(status, quiet=as_json)
            figures = measure_all(app, Path(folder), count, processes, concurrency, samples, announce)
    emit(figures) if as_json else show_figures(figures)


def refuse_used(app: Dibs) -> None:
    """Other tasks in the store would affect the figures, and be affected."""
    names = [queue.name for queue in app.queues.list() if not queue.name.startswith("bench-")]
    if names:
        raise InvalidOption(
            f"{shown_url(app.url)} is in use (queues {', '.join(names[:3])}): bench needs a store of its own."
        )


def show_figures(figures: dict[str, Any]) -> None:
    made = table("MEASURED", "FIGURE", right=["FIGURE"])
    made.add_row("enqueue, one at a time", f"{figures['enqueue_one_per_second']:,}/s")
    made.add_row("enqueue, 64 threads at once", f"{figures['enqueue_concurrent_per_second']:,}/s")
    made.add_row("enqueue, 1,000 at a time", f"{figures['enqueue_bulk_per_second']:,}/s")
    plural = "es" if figures["processes"] > 1 else ""
    made.add_row(f"drain, {figures['processes']} worker process{plural}", f"{figures['drain_per_second']:,}/s")
    for name, value in figures["latency_ms"].items():
        made.add_row(f"start latency on an idle worker, {name.upper()}", f"{value:.1f} ms")
    show(made)
    versions = figures["versions"]
    say(f"\n{figures['url']}\n{figures['durability']}")
    say(f"dibs {versions['dibs']}, Python {versions['python']}, {versions['system']}")
