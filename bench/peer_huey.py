"""Huey's worker side."""

from __future__ import annotations

import os

from huey import SqliteHuey

import signals

huey = SqliteHuey("bench", filename=os.environ["BENCH_DB"], fsync=True, results=False)


@huey.task()
def nothing(number: int) -> int:
    signals.tell_done()
    return number


@huey.task()
def started() -> None:
    signals.tell_started()
