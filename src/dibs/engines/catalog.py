"""Queues and tracks, as this process remembers them.

Both change seldom and every verb needs them, so a process keeps copies. Every transaction compares the store's
`generation` before it uses a copy.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

import msgspec
from msgspec import structs

from dibs.core.priority import Ranking, rank
from dibs.core.settings import QueueSettings
from dibs.core.task import NewTask, QueueState
from dibs.core.times import SECOND, Instant
from dibs.engines.decisions.blocks import DIGITS, SLOT, Pair, block_of, is_remembered, is_skewed, name_trait
from dibs.engines.decisions.events import wanted_tracks
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.transaction import FIRST_EPOCH, Queue
from dibs.engines.events import Watch
from dibs.engines.unreadable import UNREADABLE, UnreadableRows, next_look, problem_of
from dibs.observe.events import EventType

__all__ = ["Catalog", "TrackKey"]

TrackKey = tuple[str, str, tuple[str, ...], int, int, bool, int]
"""Queue, name, requires, lane, epoch, fair, band."""

NO_QUEUE = QueueSettings()
settings_decoder = msgspec.json.Decoder(QueueSettings)
names_decoder = msgspec.json.Decoder(tuple[str, ...])
watch_decoder = msgspec.json.Decoder(Watch)

MOST_PAIRS = 20_000


class KnownBlocks:
    """Pairs of the index of id blocks that are known to be stored, so that they need not be written again.

    Only those of blocks of about now: the others may be deleted once their block has no task.
    """

    def __init__(self) -> None:
        self.pairs: set[Pair] = set()
        self.slot = 0
        self.covered: set[tuple[str, str, str]] = set()
        """Beginnings of ids, queues and names of plain tasks about which nothing has to be stored in this slot."""

    def lacking(self, traits: Sequence[str], block: int, now: Instant) -> list[Pair]:
        """The pairs of these traits with a block that may have to be stored."""
        pairs = self.pairs if is_remembered(block, now) else ()
        return [(trait, block) for trait in traits if (trait, block) not in pairs]

    def covers(self, new: NewTask, now: Instant) -> bool:
        """Whether nothing has to be stored about a task: the shortest way for most that come alone."""
        spec = new.spec
        if spec.key is not None or spec.partition is not None or spec.tenant:
            return False
        if now // SLOT != self.slot:
            self.slot, self.covered = now // SLOT, set()
        place = (new.id[:DIGITS], new.queue, new.name)
        if place in self.covered:
            return True
        block = block_of(new.id)
        if is_skewed(block, now) or (name_trait(new.queue, new.name), block) not in self.pairs:
            return False
        self.covered.add(place)
        return True

    def learn(self, pairs: Iterable[Pair]) -> None:
        """After the commit."""
        if len(self.pairs) > MOST_PAIRS:
            self.pairs.clear()
        self.pairs.update(pairs)


class Catalog:
    """All queues and tracks as of one generation."""

    def __init__(self, aside: UnreadableRows | None = None, generation: int = -1) -> None:
        self.aside = aside or UnreadableRows()
        self.known_blocks = KnownBlocks()
        self.forget(generation)

    def forget(self, generation: int = -1) -> None:
        """Drop everything: the queues and tracks of this generation follow."""
        self.generation = generation
        self.read_again_at = inf
        """When to read everything again without a change: unreadable rows may have been repaired."""
        self.queues: dict[str, Queue] = {}
        self.unreadable: dict[str, str] = {}
        """Queues whose settings can't be read, and why."""
        self.tracks: dict[int, Track] = {}
        self.by_queue: dict[str, list[Track]] = defaultdict(list)
        self.numbers: dict[TrackKey, int] = {}
        self.rankings: dict[tuple[str, int], Ranking] = {}
        self.watches: list[Watch] = []
        """What subscribers want to be written. Nearly always empty: then nothing is looked up."""
        self.watched_until = 0.0
        """When the last of these ends, by the monotonic clock."""
        self.error_types: dict[str, frozenset[str]] = {}
        """By queue, the types of errors that were counted when they were last read."""

    def is_current(self, generation: int) -> bool:
        """Whether nothing has changed, or may have been repaired."""
        return generation == self.generation and time.monotonic() < self.read_again_at

    # From rows.

    def know_queue(self, name: str, state: object, settings: Any, epoch: object) -> None:
        """A queue's row. `settings` is JSON."""
        try:
            found = (msgspec.convert(state, QueueState), settings_decoder.decode(settings), msgspec.convert(epoch, int))
            self.queues[name] = Queue(name, *found)
        except UNREADABLE as error:
            self.read_again_at = next_look()
            self.unreadable[name] = problem_of(error)
            self.aside.log_once("queue", name, self.unreadable[name])

    def know_track(
        self,
        number: int,
        queue: object,
        name: object,
        requires: object,
        lane: object,
        epoch: object,
        fair: object,
        band: object,
        retired: object = False,
    ) -> None:
        """A track's row. `requires` may be JSON."""
        try:
            names = names_decoder.decode(requires) if isinstance(requires, str) else requires
            row = (number, queue, name, names, lane, epoch, fair, band, retired)
            self.add(msgspec.convert(row, Track, strict=False))
        except UNREADABLE as error:
            self.read_again_at = next_look()
            self.aside.log_once("track", number, problem_of(error))

    def know_watch(self, now: Instant, subscriber: str, until: object, watch: Any) -> None:
        """A subscriber's row. `watch` is JSON."""
        try:
            wanted = structs.replace(watch_decoder.decode(watch), until=msgspec.convert(until, int))
        except UNREADABLE as error:
            self.aside.log_once("subscriber", subscriber, problem_of(error))
            return
        self.watches.append(wanted)
        self.watched_until = max(self.watched_until, time.monotonic() + (wanted.until - now) / SECOND)

    def add(self, track: Track) -> None:
        self.tracks[track.number] = track
        self.by_queue[track.queue].append(track)
        if not track.retired:  # a retired one that is needed again is restored as if it were missing
            key = (track.queue, track.name, track.requires, track.lane, track.epoch, track.fair, track.band)
            self.numbers[key] = track.number

    def put(self, queue: Queue) -> None:
        """Add a queue that was created or changed."""
        self.queues[queue.name] = queue
        self.rankings.clear()

    # What it tells.

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

    def watched(self, event: EventType, now: Instant | None) -> list[int] | None:
        """The tracks whose tasks' events of this type are to be written: all of them (`ALL_TRACKS`), or some; None: of
        no track. Without `now`, by how long the watches had left when they were read.
        """
        if not self.watches or (now is None and time.monotonic() > self.watched_until):
            return None
        watches = self.watches if now is None else [watch for watch in self.watches if watch.until > now]
        return wanted_tracks(watches, event, self.tracks.values())

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
