"""Queues and tracks, as this process remembers them.

Both change seldom and every verb needs them, so each connection keeps a copy. Every transaction compares the store's
`generation` before it uses the copy.
"""

from __future__ import annotations

import time
from collections import defaultdict
from math import inf
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from dibs.core.priority import Ranking, rank
from dibs.core.settings import QueueSettings
from dibs.core.task import QueueState
from dibs.core.times import Instant
from dibs.engines.decisions.transaction import FIRST_EPOCH, Queue
from dibs.engines.sqlite.row_decoder import RowDecoder
from dibs.engines.unreadable import UNREADABLE, UnreadableRows, next_look, problem_of

if TYPE_CHECKING:
    from dibs.engines.sqlite.transaction import Snapshot

__all__ = ["Catalog", "Track", "TrackKey"]


class Track(Struct, frozen=True):
    """A track's row: tasks of one kind in one lane of one queue, ranked under one epoch. `fair`: tenants take turns."""

    number: int
    queue: str
    name: str
    requires: tuple[str, ...]
    lane: int
    epoch: int
    fair: bool = False


class StoredQueue(Struct, array_like=True):
    """A queue's row, before its settings are decoded."""

    name: str
    state: object
    settings: object
    epoch: object


class StoredTrack(Struct, array_like=True):
    """A track's row, before `requires` is decoded."""

    number: int
    queue: object
    name: object
    requires: object
    lane: object
    epoch: object
    fair: object


TrackKey = tuple[str, str, tuple[str, ...], int, int, bool]
"""Queue, name, requires, lane, epoch, fair."""

QUEUES = RowDecoder(StoredQueue, "queue")
TRACKS = RowDecoder(StoredTrack, "track")
settings_decoder = msgspec.json.Decoder(QueueSettings)
names_decoder = msgspec.json.Decoder(tuple[str, ...])

NO_QUEUE = QueueSettings()


def queue_from(stored: StoredQueue) -> Queue:
    settings = settings_decoder.decode(msgspec.convert(stored.settings, str))
    return Queue(stored.name, msgspec.convert(stored.state, QueueState), settings, msgspec.convert(stored.epoch, int))


def track_from(stored: StoredTrack) -> Track:
    return Track(
        stored.number,
        msgspec.convert(stored.queue, str),
        msgspec.convert(stored.name, str),
        names_decoder.decode(msgspec.convert(stored.requires, str)),
        msgspec.convert(stored.lane, int),
        msgspec.convert(stored.epoch, int),
        bool(msgspec.convert(stored.fair, int)),
    )


class Catalog:
    """All queues and tracks as of one generation."""

    def __init__(self, aside: UnreadableRows | None = None) -> None:
        self.aside = aside or UnreadableRows()
        self.forget()

    def forget(self) -> None:
        """Make the next refresh read everything."""
        self.generation = -1
        self.read_again_at = inf
        """When to read everything again without a change: unreadable rows may have been repaired."""
        self.queues: dict[str, Queue] = {}
        self.unreadable: dict[str, str] = {}
        """Queues whose settings can't be read, and why."""
        self.tracks: dict[int, Track] = {}
        self.by_queue: dict[str, list[Track]] = defaultdict(list)
        self.numbers: dict[TrackKey, int] = {}
        self.rankings: dict[tuple[str, int], Ranking] = {}

    def refresh(self, snapshot: Snapshot, generation: int) -> None:
        """Read everything again if it has changed, or may have been repaired."""
        if generation == self.generation and time.monotonic() < self.read_again_at:
            return
        self.forget()
        for queue in snapshot.many(QUEUES, "queues"):
            try:
                self.queues[queue.name] = queue_from(queue)
            except UNREADABLE as error:
                self.read_again_at = next_look()
                self.unreadable[queue.name] = problem_of(error)
                self.aside.log_once("queue", queue.name, self.unreadable[queue.name])
        for track in snapshot.many(TRACKS, "tracks"):
            try:
                self.add(track_from(track))
            except UNREADABLE as error:
                self.read_again_at = next_look()
                self.aside.log_once("track", track.number, problem_of(error))
        self.generation = generation

    def add(self, track: Track) -> None:
        self.tracks[track.number] = track
        self.by_queue[track.queue].append(track)
        key = (track.queue, track.name, track.requires, track.lane, track.epoch, track.fair)
        self.numbers[key] = track.number

    def put(self, queue: Queue) -> None:
        """Add a queue that was created or changed."""
        self.queues[queue.name] = queue
        self.rankings.clear()

    def ranking(self, queue: Queue, priority: int, now: Instant) -> Ranking:
        """The ranking of a new task without a deadline: it is the same at every instant, so it is cached."""
        found = self.rankings.get((queue.name, priority))
        if found is None:
            found = rank(queue.settings, priority=priority, ready_at=now, now=now)
            self.rankings[queue.name, priority] = found
        return found

    def settings(self, name: str) -> QueueSettings:
        """The settings of a queue; the defaults if it does not exist."""
        queue = self.queues.get(name)
        return NO_QUEUE if queue is None else queue.settings

    def epoch(self, name: str) -> int:
        queue = self.queues.get(name)
        return FIRST_EPOCH if queue is None else queue.epoch

    def is_stale(self, track: Track) -> bool:
        """Whether waiting tasks of this track are ranked by earlier settings."""
        return track.epoch != self.epoch(track.queue)
