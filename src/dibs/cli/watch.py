"""`dibs tasks watch`: follow tasks to their end."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from dibs.cli.codes import ExitCode
from dibs.cli.kinds import TASK
from dibs.cli.options import SPAN, json_option, with_store
from dibs.cli.task_views import first_line
from dibs.client.app import Dibs
from dibs.client.handle import Handle
from dibs.client.info import TaskInfo
from dibs.core.states import State
from dibs.terminal import emit, errors, plain, say

__all__ = ["ending", "follow", "watch"]

LOOK = 0.25
"""Seconds between two looks at the progress; the end is noticed at once."""


@click.command()
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True, type=TASK)
@click.option("--timeout", type=SPAN, help="Stop watching after this long; exit code 1.")
@json_option
@with_store
def watch(app: Dibs, task_ids: tuple[str, ...], timeout: float | None, as_json: bool) -> int:
    """Follow tasks to their end with a progress bar; exit code 1 unless all complete."""
    handles = [app.handle(task_id) for task_id in task_ids]
    try:
        found = follow(app, handles, timeout, quiet=as_json)
    except TimeoutError:
        found = [handle.refresh() for handle in handles]
    if as_json:
        emit(found)
    else:
        for info in found:
            say(ending(info))
    return ExitCode.OK if all(info.state is State.COMPLETED for info in found) else ExitCode.FAILED


def follow(app: Dibs, handles: list[Handle[Any]], timeout: float | None, *, quiet: bool) -> list[TaskInfo]:
    """Wait for all to end, showing how far they are; raises TimeoutError."""
    if quiet or not sys.stderr.isatty():
        return app.wait(handles, timeout)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=errors(), transient=True) as progress:
        bars = {handle.id: progress.add_task(handle.id, total=1.0, note="") for handle in handles}
        left = timeout
        while True:
            for handle in handles:
                info = handle.refresh()
                note = f"{info.state} {info.progress_message}".rstrip()
                done = 1.0 if info.is_done else info.progress
                progress.update(bars[handle.id], description=info.name, completed=done or 0.0, note=note)
            pause = LOOK if left is None else min(LOOK, left)
            try:
                return app.wait(handles, pause)
            except TimeoutError:
                left = None if left is None else left - pause
                if left is not None and left <= 0:
                    raise


def ending(info: TaskInfo) -> str:
    """How a task ended, in one line; or that it has not."""
    if not info.is_done:
        return f"{info.id} is still {info.state}; to go on waiting: dibs tasks watch {info.id}"
    if info.state is State.COMPLETED:
        return f"{info.id} completed: {plain(info.result)}"
    note = first_line(info) or info.note
    return f"{info.id} {info.state} ({info.reason}){f': {note}' if note else ''}"
