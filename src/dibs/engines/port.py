"""The port: what a verb needs of a store, and all that it knows of one.

A verb is a coroutine that loads, decides (`dibs.engines.decisions`) and saves. A port is one transaction of a store, or
one snapshot of it. Where a store blocks instead of waiting, the port never suspends, and `at_once` runs the verb.

Most of what a verb reads and writes is named: `Read` says what rows a name gives, and a test compares these names with
what each store has. Parameters are plain values, lists of them, or lists of rows; a Struct is stored as JSON.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from dibs.core.settings import QueueSettings
from dibs.core.states import State
from dibs.core.task import LeasedTask, TaskRecord
from dibs.core.times import Instant
from dibs.engines.decisions.choosing import Chosen, Head
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.records import Changes
from dibs.engines.decisions.searching import Wanted
from dibs.engines.decisions.steps import Step
from dibs.engines.decisions.transaction import Queue, Transaction
from dibs.engines.figures import Counter
from dibs.engines.unreadable import UnreadableRows
from dibs.engines.values import ClaimRequest, UnreadableTask

__all__ = ["Found", "IdRange", "Port", "Read", "Row", "Stored", "Stretch", "View", "at_once", "stretch_of"]

Result = TypeVar("Result")
Row = TypeVar("Row")

Stored = TaskRecord | UnreadableTask
"""A task as a store gives it."""


class Read(Struct, Generic[Row], frozen=True):
    """A read that stores know by its name, and the type of its rows.

    `what` and `keys` are for people: what a row is that can't be read, and the columns that tell which one.
    """

    name: str
    row: type[Row]
    what: str = "row"
    keys: tuple[int, ...] = (0,)


class Found(Struct, Generic[Row]):
    """The rows that a read gave. `number`, `last` and `unread` are about all that are stored, readable or not."""

    rows: list[Row]
    number: int
    last: tuple[Any, ...] | None
    """The last row, as it is stored."""
    unread: Sequence[tuple[Any, ...]] = ()
    """The rows that can't be read, as they are stored."""


IdRange = tuple[str | None, str | None]
"""The lowest id, and the one to begin below; None: without end."""


class Stretch(Struct, frozen=True):
    """What a search has found in a range of ids."""

    ids: list[str]
    """The tasks that may match, newest first."""
    floor: str | None
    """The lowest id to which this is complete; None if that is the end of the range."""
    visited: int


def stretch_of(rows: Iterable[tuple[str | None, int | None]], most: int) -> Stretch:
    """The rows that the statement `newest` gives: tasks, and for each place how far it was read."""
    found, floors, visited = [], [""], 0
    for task_id, number in rows:
        if number is None and task_id is not None:
            found.append(task_id)
        elif number is not None:
            visited += number
            if task_id is not None and number == most:
                floors.append(task_id)
    floor = max(floors)
    return Stretch(sorted((each for each in found if each >= floor), reverse=True), floor or None, visited)


class View(Protocol):
    """One snapshot of a store."""

    now: Instant

    @property
    def aside(self) -> UnreadableRows:
        """What this process can't read."""
        ...

    @property
    def passed_over(self) -> list[str]:
        """The tasks that are set aside, or locked by others."""
        ...

    @property
    def queues(self) -> Mapping[str, Queue]:
        """All queues whose settings can be read, by name."""
        ...

    @property
    def unreadable_queues(self) -> Mapping[str, str]:
        """Queues whose settings can't be read, and what is wrong with them."""
        ...

    @property
    def tracks(self) -> Mapping[int, Track]:
        """All tracks that can be read, by number."""
        ...

    def settings(self, queue: str) -> QueueSettings: ...

    def settings_if_exists(self, queue: str) -> QueueSettings | None: ...

    async def read(self, read: Read[Row], *parameters: Any) -> list[Row]:
        """The rows that can be read."""
        ...

    async def fetch(self, read: Read[Row], *parameters: Any) -> Found[Row]:
        """`read`, and what is known of the rows that can't be read."""
        ...

    async def counts_by_track(self) -> Sequence[tuple[State, Track, int]]:
        """How many tasks of a state each track has."""
        ...

    async def find(self, ids: Sequence[str]) -> dict[str, Stored]:
        """The tasks of these ids that exist, wherever they are."""
        ...

    async def newest(self, ranges: Sequence[IdRange], most: int, wanted: Wanted) -> Sequence[Stretch]:
        """What is wanted among the newest tasks of each range of ids; at most so many are visited in each place."""
        ...

    async def every_count(self) -> list[tuple[str, Track | str, int]]:
        """Every count that is not zero: what is counted, of which track or in which queue, how many."""
        ...

    async def depth(self, queue: str) -> int:
        """How many pending tasks a queue has."""
        ...

    async def running_by_name(self, queue: str) -> Mapping[str, int]:
        """How many tasks of a queue run, by their names; all of them under the empty name."""
        ...

    async def unshared(self, queue: str) -> int:
        """How many pending tasks of a fair queue were ranked before it was fair."""
        ...

    # The pending index.

    def all_tracks(self, queue: str) -> Sequence[Track]:
        """The tracks of a queue."""
        ...

    def open_tracks(self, queue: str) -> Sequence[Track]:
        """The tracks of a queue that may have pending tasks."""
        ...

    async def tracks_with_pending(self, queue: str) -> Sequence[Track]:
        """The tracks of a queue that have pending tasks, gated or not."""
        ...

    async def clock(self, queue: str) -> tuple[int, int]:
        """The virtual time of a queue, and that of the tenant without a name."""
        ...

    async def read_tracks(
        self, after: Sequence[tuple[object, ...]], most: int, with_gated: bool
    ) -> Sequence[Found[Head]]:
        """Pending tasks behind each (track, share, rank, id), in claim order, `most` of each."""
        ...

    async def read_groups(self, after: Sequence[tuple[object, ...]], most: int) -> Sequence[Found[Head]]:
        """Pending tasks of one partition behind each (partition's key, track, share, rank, id), gated or not."""
        ...


class Port(Transaction, View, Protocol):
    """One transaction of a store."""

    steps: deque[Step]
    """The prompt steps that this transaction has caused."""
    stuck: list[Step]
    """Steps that lead to rows that can't be read here: they are left to other processes."""
    partitions: dict[str, dict[Partition, None]]

    def make_queues(self, names: Collection[str]) -> None:
        """Create those of some queues that do not exist."""
        ...

    def check_queue(self, name: str) -> None:
        """Raise if nothing may be written about a queue, because its settings can't be read."""
        ...

    async def save_queue(self, queue: Queue) -> None:
        """Write a queue; this transaction sees it from here on."""
        ...

    async def delete_queue(self, name: str, most: int) -> bool:
        """Delete a queue with its limits and shares. False, and the queue stays, if so many were deleted first."""
        ...

    def mark_changed(self, partition: Partition) -> None:
        """Note a partition in which a pending task has come or gone, or a slot is free again."""
        ...

    async def guard(self, partitions: Sequence[str]) -> None:
        """From now on, moving the tasks of these partitions concerns others."""
        ...

    def count_share(self, queue: str, share: str, change: int) -> None:
        """Count pending tasks of a share of a fair queue."""
        ...

    def give_turn(self, track: int, share: str) -> None:
        """A share has a task for claims: in a fair track it gets a turn."""
        ...

    async def first_turns(self, tracks: Sequence[int], clock: int, most: int) -> Mapping[int, Found[tuple[int, str]]]:
        """The first turns of each of some fair tracks, as (virtual time, share): 0 if the clock has passed it."""
        ...

    async def serve(self, queue: str, clock: int, served: Mapping[str, int]) -> None:
        """Write the new clock of a fair queue, and the virtual times of the shares that it has served."""
        ...

    async def lease(self, request: ClaimRequest, chosen: Sequence[Chosen]) -> Mapping[str, LeasedTask] | None:
        """Lease pending tasks that are as they were read; those that could be leased, by id.

        The others are `passed_over` from now on. None, and none is leased, if some can't be read.
        """
        ...

    async def claimed_by(self, worker: str, sequence: int) -> Sequence[Stored]:
        """The running tasks that a worker has claimed with this sequence."""
        ...

    async def write(self, name: str, *parameters: Any) -> int:
        """Run a write that the store knows by its name; how many rows it changed."""
        ...

    async def load(self, ids: Sequence[str]) -> Sequence[Stored]:
        """The tasks of these ids that exist, to be changed: `save` compares them with what is stored then."""
        ...

    async def load_by(self, name: str, *parameters: Any) -> Sequence[Stored]:
        """The unfinished tasks that a read gives whose rows are tasks, to be changed."""
        ...

    async def waiting_in(self, queue: str, most: int) -> Sequence[Stored]:
        """Some waiting tasks of a queue, to be changed."""
        ...

    async def expired(self, until: Instant, low: Instant, most: int) -> Sequence[Stored]:
        """Running tasks whose lease has ended by then, longest ago first, to be changed. None ended before `low`."""
        ...

    async def running_of(self, workers: Sequence[str], most: int) -> Sequence[Stored]:
        """Running tasks of some workers, to be changed."""
        ...

    async def busy(self, workers: Sequence[str]) -> Collection[str]:
        """Those of some workers that have running tasks, without tasks that are set aside."""
        ...

    async def too_late(self, low: Instant, most: int) -> Sequence[Stored]:
        """Waiting tasks that have expired, longest ago first, to be changed. None expired before `low`."""
        ...

    async def save(self, changes: Changes) -> None:
        """Write what became of tasks, with counts and history. If one is not as it was loaded, nothing is written: the
        store gives the verb up, and runs it again."""
        ...

    def count(self, what: State | Counter, track: int, change: int, day: int = 0) -> None:
        """Count tasks of a track by state, finished ones also by the day of their end, and what happened to them."""
        ...

    def count_pending(self, number: int, share: str, change: int) -> None:
        """Count pending tasks of one share of a track."""
        ...

    async def flush(self) -> None:
        """Write the counts that have changed, for what reads them before the transaction ends."""
        ...

    async def purge(self, ids: Sequence[str]) -> set[str]:
        """Delete rows of tasks that can't be read, unless a process that can may be running them; those deleted."""
        ...


def at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """The answer of a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: Result = end.value
        return answer
    work.close()
    raise RuntimeError("a coroutine that never suspends did")
