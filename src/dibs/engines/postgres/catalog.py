"""Queues and tracks, as this engine last read them.

Both change seldom and every verb needs them, so each engine keeps a copy of one generation, and every write compares
the store's generation before it uses the copy. A copy is never changed, only replaced: a transaction keeps the one it
began with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from copy import copy

import msgspec
from msgspec import Struct

from dibs.core.priority import Ranking, rank
from dibs.core.settings import QueueSettings
from dibs.core.task import NewTask, QueueState, TaskRecord
from dibs.engines.decisions.transaction import FIRST_EPOCH, Queue
from dibs.engines.postgres.pool import Connection
from dibs.engines.unreadable import UNREADABLE, UnreadableRows, problem_of

__all__ = ["MIXED", "Catalog", "Missing", "Stale", "Track", "TrackKey", "band_of", "band_of_record"]

BANDS = frozenset({30, 50, 70, 90})
"""The priorities that have names: tasks of each arrive in the order of their ranks, so each has tracks of its own."""
MIXED = -1

TrackKey = tuple[str, str, tuple[str, ...], int, int, bool, int]
"""Queue, name, requires, lane, epoch, fair, band."""


class Track(Struct, frozen=True):
    """A track's row: tasks of one kind in one lane of one queue, ranked under one epoch. `fair`: tenants take turns."""

    number: int
    queue: str
    name: str
    requires: tuple[str, ...]
    lane: int
    epoch: int
    fair: bool
    band: int
    retired: bool


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


def band_of(new: NewTask, lane: int) -> int:
    """The band of the track that a new task goes to."""
    return new.spec.priority if new.spec.priority in BANDS and new.spec.deadline is None and lane == 0 else MIXED


def band_of_record(record: TaskRecord) -> int:
    """The band of the track that a waiting task goes to; a task that comes back is not in the order of arrival."""
    plain = record.lease == 0 and record.spec.deadline is None and record.lane == 0
    return record.urgency if plain and record.urgency in BANDS else MIXED


settings_decoder = msgspec.json.Decoder(QueueSettings)
NO_QUEUE = QueueSettings()


class Catalog:
    """All queues and tracks as of one generation."""

    def __init__(self, aside: UnreadableRows, generation: int = -1) -> None:
        self.aside = aside
        self.generation = generation
        self.queues: dict[str, Queue] = {}
        self.unreadable: dict[str, str] = {}
        """Queues whose settings can't be read, and why."""
        self.tracks: dict[int, Track] = {}
        self.by_queue: dict[str, list[Track]] = defaultdict(list)
        self.numbers: dict[TrackKey, int] = {}
        self.rankings: dict[tuple[str, int], Ranking] = {}
        self.guarded: list[str] = []

    @classmethod
    async def read(cls, connection: Connection, statement: str, aside: UnreadableRows) -> Catalog:
        row = await connection.fetchrow(statement)
        found = cls(aside, row["generation"])
        for name, state, settings, epoch in row["queues"] or ():
            try:
                found.queues[name] = Queue(name, QueueState(state), settings_decoder.decode(settings), int(epoch))
            except UNREADABLE as error:
                found.unreadable[name] = problem_of(error)
                aside.log_once("queue", name, found.unreadable[name])
        for number, queue, name, requires, lane, epoch, fair, band, retired in row["tracks"] or ():
            found.add(Track(number, queue, name, tuple(requires), lane, epoch, fair, band, retired))
        guarded = {queue.name for queue in found.queues.values() if queue.is_guarded}
        guarded |= {track.queue for track in found.tracks.values() if track.fair and not track.retired}
        found.guarded = sorted(guarded)
        return found

    def add(self, track: Track) -> None:
        self.tracks[track.number] = track
        self.by_queue[track.queue].append(track)
        if not track.retired:  # a retired one that is needed again is restored as if it were missing
            key = (track.queue, track.name, track.requires, track.lane, track.epoch, track.fair, track.band)
            self.numbers[key] = track.number

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

    def of_queue(self, queue: str) -> list[Track]:
        """The tracks of a queue, including retired ones."""
        return self.by_queue.get(queue, [])

    def open_tracks(self, queue: str) -> list[Track]:
        """The tracks of a queue that may have pending tasks."""
        return [track for track in self.of_queue(queue) if not track.retired]

    def ranking(self, queue: Queue, priority: int) -> Ranking:
        """The ranking of a new task without a deadline: it is the same at every instant, so it is cached."""
        found = self.rankings.get((queue.name, priority))
        if found is None:
            found = rank(queue.settings, priority=priority, ready_at=0, now=0)
            self.rankings[queue.name, priority] = found
        return found

    def settings(self, name: str) -> QueueSettings:
        """The settings of a queue; the defaults if it does not exist."""
        queue = self.queues.get(name)
        return NO_QUEUE if queue is None else queue.settings

    def settings_if_exists(self, name: str) -> QueueSettings | None:
        """The settings of a queue that exists."""
        queue = self.queues.get(name)
        return None if queue is None else queue.settings

    def epoch(self, name: str) -> int:
        queue = self.queues.get(name)
        return FIRST_EPOCH if queue is None else queue.epoch

    def is_stale(self, track: Track) -> bool:
        """Whether waiting tasks of this track are ranked by earlier settings."""
        return track.epoch != self.epoch(track.queue)
