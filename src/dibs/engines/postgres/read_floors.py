"""From where a claim reads each stream, when reading from the beginning has become slow.

While some transaction holds an old snapshot, nothing that was claimed since can be cleaned out of the index, and a
claim that begins at the lowest rank walks over all of it. The tasks of a banded stream arrive in the order of their
ranks, so what has been given marks, but for a little lag, where the rest begins.

Claims read from the beginning for as long as that is quick. Once it is not, they begin at the marks, and what lies
below these is looked at apart from them (`looking`), for at most a tenth of the time. A task whose rank lies below a
mark, because it was late to commit or was edited, waits until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dibs.core.times import MINUTE, MS, SECOND, Duration, Instant
from dibs.engines.postgres.catalog import MIXED, Track

__all__ = ["EVERYTHING", "LAG", "LONG_AGO", "START", "Bounds", "Pace", "ReadFloors", "RescueFloor", "Window"]

START = -(2**62)
"""Below every rank."""

SLOW: Duration = 5 * MS
"""What reading from the beginning may take. Of a sound index it takes a fraction of that."""
LAG: Duration = 2 * SECOND
"""By how much commits may come out of order without anybody waiting."""
AHEAD: Duration = 5 * SECOND
"""How far ahead claims look that do not look at everything."""
Bounds = tuple[Instant, Duration | None]
"""From which instant on to look for what falls due or expires, and how far ahead (None: for ever)."""
EVERYTHING: Bounds = (START, None)
LONG_AGO: Duration = 10 * SECOND
"""How far back is looked each time: for leases that have ended, and for tasks where nothing was given."""
REST = 10
"""How many times as long as it took, and at least a second, nothing is read from the beginning."""


class Pace:
    """Whether reading from the beginning is slow, and when to do so again. Instants are of the caller's own clock."""

    def __init__(self) -> None:
        self.took: Duration = 0
        self.rests_until = 0.0

    @property
    def is_slow(self) -> bool:
        return self.took > SLOW

    def is_due(self, at: float) -> bool:
        """Whether somebody should look at what claims pass over."""
        return self.is_slow and at >= self.rests_until

    def claimed(self, took: Duration) -> None:
        """What a claim took to read: from the beginning, unless that was known to be slow."""
        if not self.is_slow:
            self.took = took

    def looked(self, took: Duration, at: float) -> None:
        """What a look from the beginning took."""
        self.took = took
        self.rests_until = at + max(1.0, REST * took / SECOND)


class ReadFloors(Pace):
    """The marks of one engine: the rank in each banded stream below which nothing is known to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: dict[int, int] = {}

    def lows(self, tracks: Sequence[Track]) -> list[int]:
        """The rank to begin at in each stream."""
        if not self.is_slow:
            return [START] * len(tracks)
        return [self.marks.get(track.number, START) for track in tracks]

    def know(self, tracks: Iterable[Track]) -> None:
        """These are claimed from: they are to have marks. Mixed ones have no order to rely on."""
        for track in tracks:
            if track.band != MIXED:
                self.marks.setdefault(track.number, START)

    def raise_to(self, marks: Mapping[int, int], began: Mapping[int, int]) -> None:
        """Nothing waits below these any more, for all that somebody knows who `began` to read there.

        If a mark has been moved back below that meanwhile, he has not seen what for.
        """
        for track, mark in marks.items():
            if track in self.marks and began[track] <= self.marks[track]:
                self.marks[track] = max(mark, self.marks[track])

    def lower_to(self, marks: Mapping[int, int]) -> None:
        """Something waits that has been passed over."""
        for track, mark in marks.items():
            self.marks[track] = min(mark, self.marks[track])


class Window(Pace):
    """Between which instants claims look for what falls due or expires: everything, for as long as that is quick.

    The same snapshot that slows down reading from the lowest rank keeps the entries of tasks that fell due, or were
    claimed before they could expire, at the beginning of these indexes. Then claims look from the moment at which
    nothing was due any more, and a little ahead.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mark: Instant = START

    @property
    def bounds(self) -> Bounds:
        return (self.mark, AHEAD) if self.is_slow else EVERYTHING

    def learn(self, low: Instant, now: Instant, took: Duration, *, due: bool) -> None:
        """What a claim found that looked from `low` on: whether something was still due when it had done its part.

        `now` is the store's. If the mark has been moved back meanwhile, the claim has not seen what for.
        """
        self.claimed(took)
        if not due and low <= self.mark:
            self.mark = now - LAG


class RescueFloor:
    """From which expiry on leases are looked at: what ended long ago has been taken back, and no new lease ends there.

    All are looked at once a minute, for claims that were long on their way.
    """

    def __init__(self) -> None:
        self.mark: Instant = START
        self.full_at = 0.0

    def low(self, at: float) -> Instant:
        return self.mark if at < self.full_at else START

    def learn(self, now: Instant, at: float, *, ended: bool, full: bool) -> None:
        """What a rescue found. Where it has not `ended`, something is left, and the next one begins where it did."""
        if ended:
            self.mark = now - LONG_AGO
            if full:
                self.full_at = at + MINUTE / SECOND

    def put_off(self, now: Instant, at: float) -> None:
        """Looking at all leases has failed; what ended since the mark is not to wait for that."""
        self.full_at = at + MINUTE / SECOND
        if self.mark == START:
            self.mark = now - LONG_AGO
