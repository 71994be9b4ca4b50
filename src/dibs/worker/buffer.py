"""Tasks that are leased but not started, in the order in which one claim would give them now.

Within a lane of a queue that is the order of ranks, which does not change with time. Lanes and queues are merged by
their heads, as claims merge them: by effective priority at the instant of the latest claim. In a fair queue turns
decide, not ranks: such a queue is one lane, in the order of its claims.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from dibs.core.priority import merge_key
from dibs.core.task import LeasedTask
from dibs.core.times import Instant
from dibs.worker.run import Run

__all__ = ["Buffer"]

TURNS = 0
"""Stands for the scale in the lane of a fair queue."""

Lane = tuple[str, int]
"""A queue, and the scale of one of its lanes."""


def lane_of(task: LeasedTask) -> Lane:
    return (task.queue, TURNS if task.fair else task.scale)


def place(run: Run) -> tuple[int, str]:
    """The position of a run in its lane."""
    return (run.task.rank, run.task.id)


class Buffer:
    """One short queue per lane, merged by their heads."""

    def __init__(self, queues: tuple[str, ...] = (), in_order: bool = False) -> None:
        self._lanes: dict[Lane, deque[Run]] = {}
        self._size = 0
        self._now: Instant = 0
        self._order = {queue: number for number, queue in enumerate(dict.fromkeys(queues))}
        self._in_order = in_order

    def __len__(self) -> int:
        return self._size

    def serves(self, queue: str) -> bool:
        """Whether tasks of this queue may come here."""
        return queue in self._order

    def __iter__(self) -> Iterator[Run]:
        return (run for lane in self._lanes.values() for run in lane)

    def add(self, runs: Iterable[Run]) -> None:
        """The tasks of one claim, most urgent first."""
        added: set[Lane] = set()
        for run in runs:
            lane = lane_of(run.task)
            self._lanes.setdefault(lane, deque()).append(run)
            added.add(lane)
            self._size += 1
            self._now = max(self._now, run.task.claimed_at)
        for lane in added:
            if lane[1] != TURNS:
                self._lanes[lane] = deque(sorted(self._lanes[lane], key=place))

    def pop(self, may_start: Callable[[Run], bool] | None = None) -> Run | None:
        """Take out the run to start next, of those that may start; None if there is none."""
        if may_start is None:
            heads = [lane[0] for lane in self._lanes.values()]
        else:  # more urgent tasks of another tenant may come after one that may not start
            heads = [run for lane in self._lanes.values() if (run := next(filter(may_start, lane), None)) is not None]
        if not heads:
            return None
        run = heads[0] if len(heads) == 1 else min(heads, key=self._turn)
        self.drop(run)
        return run

    def _turn(self, run: Run) -> tuple[float, ...]:
        task = run.task
        order = self._order.get(task.queue, 0)
        key = merge_key((self._now - task.rank) / task.scale, task.ready_at, order)
        return (order, *key, task.scale) if self._in_order else (*key, task.scale)

    def drop(self, run: Run) -> bool:
        """Take one run out, wherever it stands."""
        key = lane_of(run.task)
        lane = self._lanes.get(key, ())
        if run not in lane:
            return False
        self._lanes[key].remove(run)
        self._size -= 1
        if len(lane) == 0:
            del self._lanes[key]
        return True
