"""Searching through as many pages as it takes."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from rich.status import Status

from dibs.client.app import Dibs
from dibs.client.humanize import number
from dibs.client.info import TaskInfo
from dibs.client.tasks import Filter
from dibs.core.times import when
from dibs.terminal import status

__all__ = ["Found"]


class Found:
    """What a search has found so far. Each page is bounded, so one that looks far needs several."""

    def __init__(self, cursor: str | None) -> None:
        self.tasks: list[TaskInfo] = []
        self.cursor = cursor
        self.visited = 0
        self.pages = 0
        self.interrupted = False

    def read(self, app: Dibs, chosen: Filter, limit: int, *, quiet: bool) -> None:
        """Go on until so many are found, all were looked at, or the user has waited long enough (Ctrl-C)."""
        with status("Looking", quiet=quiet) as shown:
            try:
                while self.next_page(app, chosen, limit):
                    if isinstance(shown, Status):
                        shown.update(self.how_far())
            except KeyboardInterrupt:
                self.interrupted = True

    def next_page(self, app: Dibs, chosen: Filter, limit: int) -> bool:
        """Read a page; whether another is needed."""
        page = app.tasks.search(chosen, limit=limit - len(self.tasks), cursor=self.cursor)
        self.tasks += page.tasks
        self.cursor = page.cursor
        self.visited += page.visited
        self.pages += 1
        return self.cursor is not None and len(self.tasks) < limit

    def how_far(self) -> str:
        looked = f"Looked at {number(self.visited, 'task')}"
        if self.cursor is None:
            return f"{looked}, to the oldest."
        at = made_at(self.cursor)
        return f"{looked}." if at is None else f"{looked}, back to {at.astimezone():%Y-%m-%d %H:%M}."


def made_at(task_id: str) -> datetime | None:
    """When an id was made; None if it is not one of ours and does not tell."""
    found = UUID(task_id)
    return when((found.int >> 80) * 1000) if found.version == 7 else None
