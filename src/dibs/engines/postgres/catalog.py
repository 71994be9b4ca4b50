"""Queues and tracks, as this engine last read them.

A copy is never changed, only replaced: a transaction keeps the one it began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from functools import cached_property

from dibs.core.task import TaskRecord
from dibs.engines import catalog
from dibs.engines.catalog import TrackKey
from dibs.engines.decisions.facts import Track, mixed_band
from dibs.engines.decisions.transaction import Queue
from dibs.engines.postgres.pool import Connection
from dibs.engines.unreadable import UnreadableRows

__all__ = ["MOST_TRACKS", "NO_SLOTS", "Catalog", "Missing", "Stale", "arrives_in_order"]

NAMED = frozenset({30, 50, 70, 90})
"""The priorities that have names."""
MOST_TRACKS = 256
"""So many tracks may a queue have for tasks of priorities without a name: a claim looks into each."""

Slots = tuple[Sequence[int], Sequence[str], Sequence[int | None]]
"""Tracks, their queues, and how many tasks of a partition may run at once there."""
NO_SLOTS: Slots = ((), (), ())


class Stale(Exception):
    """The store has queues or tracks that this copy lacks; `tracks` are some of those that have tasks.

    An exception, because it must roll back the transaction, which `Store.persist` repeats with a new copy.
    """

    def __init__(self, *tracks: int) -> None:
        super().__init__(*tracks)
        self.tracks = tracks


class Missing(Exception):
    """The transaction needs a queue or tracks that do not exist.

    An exception, because it must roll back the transaction, which `Store.persist` repeats after creating them.
    """

    def __init__(self, queues: list[str], tracks: list[TrackKey]) -> None:
        super().__init__(queues, tracks)
        self.queues = queues
        self.tracks = tracks


def arrives_in_order(record: TaskRecord) -> bool:
    """Whether a waiting task is ranked by its priority and its arrival alone. One that comes back is not."""
    return record.lease == 0 and record.spec.deadline is None and record.urgency == record.spec.priority


class Catalog(catalog.Catalog):
    """All queues and tracks as of one generation."""

    @classmethod
    async def read(cls, connection: Connection, statement: str, aside: UnreadableRows) -> Catalog:
        row = await connection.fetchrow(statement)
        found = cls(aside, row["generation"])
        for queue in row["queues"] or ():
            found.know_queue(*queue)
        for track in row["tracks"] or ():
            found.know_track(*track)
        for watch in row["watches"] or ():
            found.know_watch(row["now"], *watch)
        return found

    def track_key(
        self, queue: str, name: str, requires: tuple[str, ...], lane: int, priority: int, *, in_order: bool
    ) -> TrackKey:
        """The track that a waiting task goes to. `in_order`: it is ranked by its priority and its arrival alone.

        Such tasks have a track for each priority: it fills at its end, so claims know where to start reading. Where
        claims start at the beginning all the same, because of limits or shares, only the named priorities do.
        """
        settings = self.settings(queue)
        key = (queue, name, requires, lane, self.epoch(queue), settings.fair, priority)
        has_band = in_order and lane == 0
        if has_band and priority not in NAMED:
            is_plain = not settings.fair and not settings.limits_starts
            has_band = is_plain and (key in self.numbers or queue not in self.with_many_tracks)
        return key if has_band else (*key[:-1], mixed_band(priority))

    @cached_property
    def with_many_tracks(self) -> frozenset[str]:
        """Queues that have as many tracks as they may."""
        return frozenset(queue for queue in self.by_queue if len(self.open_tracks(queue)) >= MOST_TRACKS)

    @cached_property
    def guarded(self) -> list[str]:
        """Queues whose tasks concern each other, also by earlier settings, in order."""
        fair = {track.queue for track in self.tracks.values() if track.fair and not track.retired}
        return sorted(fair | {queue.name for queue in self.queues.values() if queue.is_guarded})

    @cached_property
    def slots(self) -> Slots:
        """The tracks of queues that limit what of a partition runs at once, and nothing else about partitions."""
        rows = [
            (track.number, name, limit.max_concurrent)
            for name, queue in self.queues.items()
            if (limit := queue.settings.per_partition) is not None and limit.rate is None
            for track in self.of_queue(name)
        ]
        tracks, queues, mosts = zip(*rows, strict=True) if rows else NO_SLOTS
        return tracks, queues, mosts

    @cached_property
    def bounded(self) -> frozenset[str]:
        """Queues that may be full."""
        return frozenset(queue.name for queue in self.queues.values() if queue.settings.max_depth is not None)

    def with_queue(self, queue: Queue) -> Catalog:
        """A copy with a changed queue, for the transaction that changes it."""
        changed = copy(self)
        changed.queues = {**self.queues, queue.name: queue}
        changed.rankings = {}
        return changed

    def track(self, number: int) -> Track:
        found = self.tracks.get(number)
        if found is None:
            if number in self.aside.tracks:
                raise LookupError(f"it is in track {number}, which does not exist")
            raise Stale(number)
        return found

    def expect(self, numbers: Iterable[int]) -> None:
        """Raise `Stale` if this copy lacks some of these tracks: they may be new, and are then read together."""
        unknown = set(numbers) - self.tracks.keys() - self.aside.tracks
        if unknown:
            raise Stale(*sorted(unknown))
