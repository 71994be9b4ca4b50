"""Tasks that are leased but not started: most urgent first.

Each claim's tasks keep the order that the store gave them. Between claims the heads are compared by the effective
priority that they had when they were claimed: within the tenth of a second that a buffer lasts, ageing changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from dibs.worker.run import Run

__all__ = ["Buffer", "urgency"]


def urgency(run: Run) -> float:
    """Smaller goes first."""
    return -run.task.effective


class Buffer:
    """One short queue per claim, merged by their heads."""

    def __init__(self, queues: tuple[str, ...] = (), in_order: bool = False) -> None:
        self._claims: list[deque[Run]] = []
        self._size = 0
        self._order = {queue: place for place, queue in enumerate(queues)} if in_order else {}

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Run]:
        return (run for claim in self._claims for run in claim)

    def add(self, runs: Iterable[Run]) -> None:
        """The tasks of one claim, most urgent first."""
        claim = deque(runs)
        if claim:
            self._claims.append(claim)
            self._size += len(claim)

    def head(self) -> Run:
        """The run to start next."""
        return self._best()[0]

    def pop(self) -> Run:
        claim = self._best()
        run = claim.popleft()
        self._size -= 1
        if not claim:
            self._claims.remove(claim)
        return run

    def drop(self, run: Run) -> bool:
        """Take one run out, wherever it stands."""
        for claim in self._claims:
            if run in claim:
                claim.remove(run)
                self._size -= 1
                if not claim:
                    self._claims.remove(claim)
                return True
        return False

    def clear(self) -> list[Run]:
        """Take everything out."""
        runs = list(self)
        self._claims, self._size = [], 0
        return runs

    def _best(self) -> deque[Run]:
        if len(self._claims) == 1:
            return self._claims[0]
        return min(self._claims, key=lambda claim: (self._order.get(claim[0].task.queue, 0), urgency(claim[0])))
