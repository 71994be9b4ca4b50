"""FlexiQ's worker side."""

from __future__ import annotations

import logging
import os

from flexiq import Queue

import signals

logging.disable(logging.INFO)  # it would log two lines per job

# By default FlexiQ's scheduler takes one job per poll on SQLite; in batches it is some ten times as fast.
queue = Queue(db_path=os.environ["BENCH_DB"], workers=4, scheduler_batch_size=200, scheduler_poll_interval_ms=5)


@queue.task()
def nothing(number: int) -> int:
    signals.tell_done()
    return number


@queue.task()
def started() -> None:
    signals.tell_started()
