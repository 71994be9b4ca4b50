"""`dibs demo`: two thousand tasks, a few disasters, and an honest summary."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import click

from dibs.cli.codes import ExitCode
from dibs.cli.options import json_option
from dibs.core.options import check_number
from dibs.demo.app import make_app
from dibs.demo.run import Demo
from dibs.demo.view import View, show_summary
from dibs.engines.open import shown_url
from dibs.engines.values import Feature
from dibs.errors import InvalidOption
from dibs.terminal import emit, note, out
from dibs.worker_processes import WorkerNotStarted


@click.command()
@click.option("--tasks", "count", default=2000, show_default=True, help="How many tasks (at least 200).")
@click.option("--workers", default=3, show_default=True, help="Worker processes (at least 2; one is killed).")
@click.option("--url", metavar="URL", help="A store to use instead of a fresh SQLite file; the tasks stay there.")
@json_option
def demo(count: int, workers: int, url: str | None, as_json: bool) -> int:
    """See it work, and checked.

    About 2,000 tasks in several queues with several priorities, a workflow, a schedule, limits and tenants, real worker
    processes, failures, cancellations, a worker killed with SIGKILL, and a summary that is read back from the store and
    checked. Takes about half a minute. Exit code 1 if any promise was broken.
    """
    check_number(count, "--tasks", 200, 100_000)
    check_number(workers, "--workers", 2, 64)
    logs = Path(tempfile.mkdtemp(prefix="dibs-demo-"))
    kept = False
    try:
        with make_app(f"sqlite:///{logs / 'demo.db'}" if url is None else url) as app:
            if Feature.SHARED not in app.hub.engine.features:
                raise InvalidOption(f"{shown_url(app.url)} can't be shared with worker processes: use a SQLite file.")
            if Feature.CROSS_QUEUE not in app.hub.engine.features:
                raise InvalidOption(
                    f"{shown_url(app.url)} has each queue by itself, and the demo enqueues into several at once: "
                    "leave shard=queue out."
                )
            summary = Demo(app, count, workers, logs, View(out(), count, quiet=as_json)).run()
        kept = not summary.ok
    except WorkerNotStarted:
        kept = True
        raise
    finally:
        if kept:
            note(f"The workers' logs are in {logs}.")
        else:
            shutil.rmtree(logs, ignore_errors=True)
    if as_json:
        emit(summary)
    else:
        show_summary(summary)
    return ExitCode.OK if summary.ok else ExitCode.FAILED
