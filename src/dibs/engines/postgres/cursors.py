"""From where a claim reads each stream, when reading from the beginning has become slow.

While some transaction holds an old snapshot, nothing that was claimed since can be cleaned out of the index, and a
claim that begins at the lowest rank walks over all of it. The tasks of a banded stream arrive in the order of their
ranks, so what has been given marks, but for a little lag, where the rest begins.

Claims read from the beginning for as long as that is quick. Once it is not, they begin at the marks, and read from the
beginning only now and then, for at most a tenth of the time: a task that was late to commit, so that its rank lies
below a mark, waits until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dibs.core.times import MINUTE, MS, SECOND, Duration, Instant
from dibs.engines.postgres.catalog import MIXED, Stream

__all__ = ["BEGINNING", "EVERYTHING", "Cursors", "RescueCursor", "Window"]

BEGINNING = -(2**62)
"""Below every rank."""

SLOW: Duration = 5 * MS
"""What reading from the beginning may take. Of a sound index it takes a fraction of that."""
LAG: Duration = 2 * SECOND
"""By how much commits may come out of order without anybody waiting."""
AHEAD: Duration = 5 * SECOND
"""How far ahead claims look that do not look at everything."""
EVERYTHING = (BEGINNING, None)
REST = 10
"""How many times as long as it took, and at least a second, nothing is read from the beginning."""


class Cursors:
    """The marks of one engine. Instants are of the caller's own clock, in seconds."""

    def __init__(self) -> None:
        self.marks: dict[int, int] = {}
        self.took: Duration = 0
        self.rests_until: dict[int, float] = {}
        """Of each stream: one that is claimed from seldom must not wait for the rest that busier ones give it."""

    def are_used(self, streams: Iterable[Stream], at: float) -> bool:
        """Whether a claim from these streams begins at the marks."""
        return self.took > SLOW and all(at < self.rests_until.get(stream.number, 0.0) for stream in streams)

    def lows(self, streams: Sequence[Stream], at: float) -> list[int]:
        """The rank to begin at in each stream."""
        if not self.are_used(streams, at):
            return [BEGINNING] * len(streams)
        return [BEGINNING if stream.band == MIXED else self.marks.get(stream.number, BEGINNING) for stream in streams]

    def learn(
        self, streams: Iterable[int], last: Mapping[int, int], took: Duration, at: float, *, ended: bool, full: bool
    ) -> None:
        """What a claim found: the rank of the last task given of each stream, and whether it came to the end of all."""
        if full:
            self.took = took
            for stream in streams:
                self.rests_until[stream] = at + max(1.0, REST * took / SECOND)
                if stream not in last and not ended:  # not the most urgent ones: where its tasks begin is not known
                    self.marks.pop(stream, None)
        for stream, rank in last.items():
            mark = rank - LAG
            self.marks[stream] = mark if full else max(mark, self.marks.get(stream, BEGINNING))


class Window:
    """Between which instants claims look for what falls due or expires: everything, for as long as that is quick.

    The same snapshot that slows down reading from the lowest rank keeps the entries of tasks that fell due, or were
    claimed before they could expire, at the beginning of these indexes. Then claims look from the moment at which
    nothing was due any more, and a little ahead; and at everything only now and then.
    """

    def __init__(self) -> None:
        self.mark: Instant = BEGINNING
        self.took: Duration = 0
        self.rests_until = 0.0

    def bounds(self, at: float) -> tuple[Instant, Duration | None]:
        """From which instant on to look, and how far ahead (None: for ever)."""
        return (self.mark, AHEAD) if self.took > SLOW and at < self.rests_until else EVERYTHING

    def learn(self, now: Instant, took: Duration, at: float, *, due: bool, full: bool) -> None:
        """What a claim found, at the store's `now`: whether something was still due when it had done its part."""
        if not due:
            self.mark = now - LAG
        if full:
            self.took = took
            self.rests_until = at + max(1.0, REST * took / SECOND)


class RescueCursor:
    """From which expiry on leases are looked at: what ended long ago has been taken back, and no new lease ends there.

    All are looked at once a minute, for claims that were long on their way.
    """

    def __init__(self) -> None:
        self.mark: Instant = BEGINNING
        self.full_at = 0.0

    def low(self, at: float) -> Instant:
        return self.mark if at < self.full_at else BEGINNING

    def learn(self, now: Instant, at: float, *, ended: bool, full: bool) -> None:
        """What a rescue found, and whether it came to the end."""
        if not ended:
            self.mark = BEGINNING
            return
        self.mark = now - MINUTE
        if full:
            self.full_at = at + MINUTE / SECOND
