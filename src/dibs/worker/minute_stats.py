"""What a worker did, minute by minute: the source of percentiles and rates.

A minute is written whole, and again whenever it has changed, so a repeated heartbeat changes nothing. `failed` counts
all failed attempts; `dead` those of them that made a task dead.
"""

from __future__ import annotations

import threading
from copy import copy

from dibs.core.histogram import add
from dibs.core.settings import tier_of
from dibs.core.states import State
from dibs.core.task import LeasedTask, Outcome
from dibs.core.times import MINUTE, Duration, Instant
from dibs.engines.figures import Minute


class MinuteStats:
    """Counts ended runs; safe to use from any thread."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._minutes: dict[tuple[int, str, str], Minute] = {}
        self._changed: set[tuple[int, str, str]] = set()

    def record(self, task: LeasedTask, outcome: Outcome, state: State | None, ran: Duration, now: Instant) -> None:
        """Count one settled run that took `ran` from claim to settle, and whose task is in this state now."""
        if outcome is Outcome.RELEASED or outcome is Outcome.SNOOZED:
            return
        tier = tier_of(task.spec.priority)
        key = (now // MINUTE, task.queue, tier)
        with self._lock:
            minute = self._minutes.get(key)
            if minute is None:
                minute = Minute(minute=key[0], worker=self._worker, queue=task.queue, tier=tier, wait={}, run={})
                self._minutes[key] = minute
            self._changed.add(key)
            if outcome is Outcome.COMPLETED:
                minute.completed += 1
            elif outcome is Outcome.CANCELLED:
                minute.cancelled += 1
            else:
                minute.failed += 1
                minute.dead += state is State.DEAD
            add(minute.wait, task.claimed_at - task.ready_at)
            add(minute.run, ran)

    @property
    def has_changed(self) -> bool:
        """Whether there is anything to take."""
        return bool(self._changed)

    def take(self) -> list[Minute]:
        """Copies of what has changed since the last take. Call `put_back` if they could not be delivered."""
        with self._lock:
            changed, self._changed = self._changed, set()
            taken = [self._copy(key) for key in sorted(changed)]
            newest = max((key[0] for key in self._minutes), default=0)
            for key in [key for key in self._minutes if key[0] < newest and key not in changed]:
                del self._minutes[key]  # over, and delivered whole
            return taken

    def put_back(self, minutes: list[Minute]) -> None:
        """These were not delivered after all."""
        with self._lock:
            for minute in minutes:
                key = (minute.minute, minute.queue, minute.tier)
                self._minutes.setdefault(key, minute)
                self._changed.add(key)

    def _copy(self, key: tuple[int, str, str]) -> Minute:
        minute = copy(self._minutes[key])
        minute.wait, minute.run = dict(minute.wait), dict(minute.run)
        return minute
