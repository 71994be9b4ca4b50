"""The port of this engine: what a verb has read, what it will write, and the catalog."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from typing import Any

from msgspec import Struct, structs

from dibs.core.states import UNFINISHED, WAITING, State
from dibs.core.task import LeasedTask, TaskRecord
from dibs.core.times import Instant, day_of
from dibs.engines.catalog import Catalog, TrackKey
from dibs.engines.decisions.blocks import claimed_pairs
from dibs.engines.decisions.choosing import Chosen, Head
from dibs.engines.decisions.encoding import encode, to_json
from dibs.engines.decisions.facts import Track, decode_facts, leased_task, mixed_band
from dibs.engines.decisions.records import Changes, Place
from dibs.engines.decisions.transaction import Queue
from dibs.engines.figures import Counter
from dibs.engines.port import Found, Stored
from dibs.engines.redis import codec, rows, statements
from dibs.engines.redis.client import Client
from dibs.engines.redis.connection import Argument, Command
from dibs.engines.redis.draft import LAST, START
from dibs.engines.redis.keys import Keys
from dibs.engines.redis.rows import Entry, StoredTask
from dibs.engines.redis.snapshot import Snapshot, read_clock
from dibs.engines.redis.statements import WRITES
from dibs.engines.store_transaction import StoreTransaction, TaskMoved
from dibs.engines.values import ClaimRequest
from dibs.observe.events import EventType

__all__ = ["Transaction"]

AT_ONCE = 500
PROMOTED = (State.SCHEDULED, State.RETRYING)


class Held(Struct):
    """A task that a transaction works on: as it was stored, and where it stands in ordered sets."""

    task: StoredTask | None
    entries: list[Entry]
    was: StoredTask | None
    """As it was stored before the transaction; None if it is new."""


class Transaction(Snapshot, StoreTransaction[Catalog]):
    """What a verb that writes works on. Nothing is written before `commit`."""

    def __init__(self, client: Client, keys: Keys, catalog: Catalog, now: Instant, has_clock: bool = False) -> None:
        Snapshot.__init__(self, client, keys, catalog, now)
        StoreTransaction.__init__(self)
        self.when_full = False
        """Whether it is written even to a server that has no memory left."""
        self.has_clock = has_clock
        """Whether now is what the server's clock says, and not what a caller does."""
        self.held: dict[str, Held] = {}
        self.changes: dict[tuple[str, int | str, int], int] = defaultdict(int)
        self.has_own_catalog = False

    async def write(self, name: str, *parameters: Any) -> int:
        return await WRITES[name](self, *map(plain, parameters))

    async def next_number(self, name: str, number: int = 1) -> int:
        """The last of the next numbers. If the transaction is given up, they are not given again."""
        return int(await self.draft.client.call("HINCRBY", self.keys("store"), f"last_{name}", number))

    # Queues and tracks.

    def own_catalog(self) -> Catalog:
        """The catalog, to be changed: others go on with theirs until this transaction has ended."""
        if not self.has_own_catalog:
            self.has_own_catalog = True
            own = self.catalog = copy(self.catalog)
            own.queues, own.tracks, own.numbers = dict(own.queues), dict(own.tracks), dict(own.numbers)
            own.by_queue = defaultdict(list, {queue: [*tracks] for queue, tracks in own.by_queue.items()})
            own.rankings = {}
        return self.catalog

    def next_generation(self) -> None:
        self.own_catalog()
        self.draft.more.append(("HINCRBY", self.keys("store"), "generation", 1))

    def make_queues(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.catalog.queues:
                self.put_queue(Queue(name))

    async def save_queue(self, queue: Queue) -> None:
        self.put_queue(queue)

    def put_queue(self, queue: Queue) -> None:
        self.check_queue(queue.name)
        row = (queue.name, queue.state, to_json(queue.settings), queue.epoch)
        self.tables.replace(statements.QUEUES, None, row)
        self.own_catalog().put(queue)
        self.next_generation()

    async def delete_queue(self, name: str, most: int) -> bool:
        deleted = [await self.write("forget_buckets", name, most), await self.write("forget_shares", name, most)]
        fair = [track.number for track in self.catalog.of_queue(name) if track.fair]
        deleted += [await self.write("forget_turns", number, most) for number in fair]
        if most in deleted:
            return False
        for table in (statements.QUEUES, statements.CLOCKS):
            await self.tables.delete(table, [(name,)])
        del self.own_catalog().queues[name]
        self.next_generation()
        return True

    def knows(self, track: int) -> bool:
        return track in self.catalog.tracks

    def place(self, records: Sequence[TaskRecord]) -> None:
        for record in records:
            self.loaded[record.id] = self.track_for(record)

    def track_for(self, record: TaskRecord) -> int:
        """The number of the track that a task belongs to by its present rank."""
        queue, settings = record.queue, self.settings(record.queue)
        epoch, band = self.catalog.epoch(queue), mixed_band(record.spec.priority)
        return self.track(queue, record.name, record.requires, record.lane, epoch, settings.fair, band)

    def track(self, *key: *TrackKey) -> int:
        """The number of a track, created if it does not exist. The generation keeps others from giving the same."""
        number = self.catalog.numbers.get(key)
        if number is None:
            number = max(self.catalog.tracks, default=0) + 1
            self.own_catalog().add(Track(number, *key))
            self.tables.replace(statements.TRACKS, None, (number, *key))
            self.next_generation()
        return number

    # Tasks.

    async def find_tasks(self, ids: Sequence[str], *, guard: bool = False) -> dict[str, StoredTask]:
        """What this transaction has made of tasks, or what is stored."""
        new = [each for each in ids if each not in self.held]
        stored = await super().find_tasks(new) if new else {}
        found = {}
        for each in ids:
            task = self.held[each].task if each in self.held else stored.get(each)
            if task is not None:
                found[each] = task
                if guard and each in stored:
                    self.draft.checks.update(dict.fromkeys(self.fences(task)))
        return found

    def fences(self, task: StoredTask) -> Iterator[Command]:
        """What must still be stored when something is written about a task."""
        if task.place is not Place.TASKS:
            key = self.place_key(task.place, task.day)
            yield ("head", key, task.id, task.value[: task.value.find(b"\n") + 1] or task.value)
            return
        try:
            head = rows.head_of(task.value)
        except ValueError:
            head = task.value
        yield ("head", self.keys("tasks"), task.id, head)
        if task.running is None:
            yield ("field", self.keys("running"), task.id)
        else:
            yield ("field", self.keys("running"), task.id, task.running)
            yield ("score", self.keys("inflight"), task.id, task.expires_at or 0)

    def place_key(self, place: Place, day: int) -> str:
        return self.keys.finished(day) if place is Place.FINISHED else self.keys(place)

    def record(self, task: StoredTask) -> TaskRecord:
        """A task whose queue's settings can't be read is unreadable: nothing can be decided about it."""
        record = super().record(task)
        if record.queue in self.catalog.unreadable:
            raise ValueError("the settings of its queue can't be read")
        return record

    async def load(self, ids: Sequence[str]) -> Sequence[Stored]:
        return self.adopted((await self.find_tasks(list(ids))).values())

    async def load_by(self, name: str, *parameters: Any) -> Sequence[Stored]:
        if name == "members":
            workflow, after, most = parameters
            found = await statements.members_in(self, workflow, Place.TASKS, after, most)
            return await self.load_if([row[2] for row in found], lambda task: task.state in UNFINISHED)
        now, most, passed = parameters
        ids = await self.first_due("reranks", now, most, passed)
        return await self.load_if(ids, lambda task: task.state in WAITING and is_by(task.rerank_at, now))

    async def load_if(self, ids: Sequence[str], is_still: Callable[[TaskRecord], bool]) -> list[Stored]:
        """Tasks that were found in an ordered set, if what they were found for still holds: they may have moved."""
        return [task for task in await self.load(ids) if not isinstance(task, TaskRecord) or is_still(task)]

    async def first_due(self, name: str, until: Instant, most: int, passed: Collection[str]) -> list[str]:
        """The first ids in an ordered set of instants and ids."""
        high = codec.up_to(codec.encode("is", (until,)))
        found = await self.draft.range(self.keys(name), START, high, most + len(passed))
        ids = [codec.decode("is", member)[1] for member in found]
        return [each for each in ids if each not in passed][:most]

    async def due(self, most: int) -> Sequence[Stored]:
        """Tasks that are due, earliest first, to be changed."""
        ids = await self.first_due("due", self.now, most, self.passed_over)
        return await self.load_if(ids, lambda task: task.state in PROMOTED and is_by(task.due_at, self.now))

    async def too_late(self, low: Instant, most: int) -> Sequence[Stored]:
        ids = await self.first_due("expiries", self.now, most, self.passed_over)
        return await self.load_if(ids, lambda task: task.state in WAITING and is_by(task.spec.expires_at, self.now))

    async def waiting_in(self, queue: str, most: int) -> Sequence[Stored]:
        return await self.waiting_of([track.number for track in self.catalog.of_queue(queue)], most)

    async def waiting_of(self, tracks: Iterable[int], most: int) -> Sequence[Stored]:
        """Some waiting tasks of some tracks, to be changed."""
        passed, ids = self.passed_over, list[str]()
        for track in tracks:
            for state in (State.PENDING, State.SCHEDULED, State.RETRYING, State.BLOCKED):
                if len(ids) < most:
                    ids += [
                        each for each in await self.waiting_ids(track, state, most + len(passed)) if each not in passed
                    ]
        return await self.load_if(ids[:most], lambda task: task.state in WAITING)

    async def waiting_ids(self, track: int, state: State, most: int) -> list[str]:
        found = await self.draft.range(self.keys.waiting(track, state), START, LAST, most)
        if state is not State.PENDING:
            return [each.decode() for each in found]
        return [rows.pending_entry(member).id for member in found]

    async def expired(self, until: Instant, low: Instant, most: int) -> Sequence[Stored]:
        passed = self.passed_over
        limit = most + len(passed)
        reply = await self.draft.client.call("ZRANGEBYSCORE", self.keys("inflight"), "-inf", until, "LIMIT", 0, limit)
        ids = [each.decode() for each in reply]
        return await self.load_if(
            [each for each in ids if each not in passed][:most],
            lambda task: task.state is State.RUNNING and is_by(task.lease_expires_at, until),
        )

    async def leases_of(self, worker: str, *sequence: int) -> list[str]:
        """The tasks that a worker holds, of one claim or of all."""
        begins = codec.encode("sii", (worker, *sequence))
        members = await self.draft.range(self.keys("worker_leases"), b"[" + begins, codec.up_to(begins), statements.ALL)
        numbers = [str(codec.decode("sii", member)[2]) for member in members]
        reply = await self.draft.client.call("HMGET", self.keys("lease_ids"), *numbers) if numbers else []
        return [task_id for ids in reply if ids is not None for task_id in ids.decode().split(" ")]

    async def held_by(self, workers: Sequence[str], *sequence: int) -> list[StoredTask]:
        """The running tasks of some workers, in the order of their ids, without those that are set aside."""
        passed = self.passed_over
        wanted = [each for worker in workers for each in await self.leases_of(worker, *sequence)]
        tasks = await self.find_tasks(sorted({*wanted} - {*passed}))
        return [task for task in tasks.values() if rows.is_held_by(task, workers, sequence)]

    async def running_of(self, workers: Sequence[str], most: int) -> Sequence[Stored]:
        return self.adopted((await self.held_by(workers))[:most])

    async def busy(self, workers: Sequence[str]) -> list[str]:
        return [worker for worker in workers if await self.held_by([worker])]

    async def claimed_by(self, worker: str, sequence: int) -> list[Stored]:
        return [self.decoded(task) for task in await self.held_by([worker], sequence)]

    def adopted(self, tasks: Iterable[StoredTask]) -> list[Stored]:
        """Tasks to be changed: where they are is remembered."""
        found = []
        for task in tasks:
            stored = self.decoded(task)
            if isinstance(stored, TaskRecord):
                self.hold(task, stored)
            found.append(stored)
        return found

    def hold(self, task: StoredTask, record: TaskRecord) -> Held:
        value = task.value if task.place is Place.TASKS else rows.end_of(task.value)[2]
        parts = rows.parts_of(value)
        self.loaded[task.id], self.versions[task.id] = parts.track, parts.columns.version
        if task.id not in self.held:
            track = self.catalog.tracks[parts.track]
            entries = rows.entries(self.keys, record, track, bool(parts.columns.gated))
            self.held[task.id] = Held(task, entries, task)
        return self.held[task.id]

    # Writing tasks.

    async def delete(self, changes: Changes) -> None:
        for old in changes.gone:
            self.become(old.id, None, [])

    async def insert_tasks(self, records: Sequence[TaskRecord]) -> int:
        highest = ""
        for record in records:
            if record.id not in self.held:
                for key in (self.keys("tasks"), self.keys("dead"), self.keys.finished(day_of(self.now))):
                    self.draft.checks["field", key, record.id] = None
                self.held[record.id] = Held(None, [], None)
                highest = max(highest, record.id)
            self.store(record)
        if highest:
            self.draft.more.append(("RAISE", self.keys("highest"), highest))
        return len(records)

    async def update_tasks(self, moves: Sequence[tuple[TaskRecord, TaskRecord]]) -> int:
        for _, new in moves:
            self.store(new)
        return len(moves)

    def store(self, record: TaskRecord) -> None:
        """Write an unfinished task."""
        track = self.catalog.tracks[self.loaded[record.id]]
        gated = self.is_gated(record)
        value = rows.task_value(self.keys, record, track, gated, self.next_version(record))
        entries = rows.entries(self.keys, record, track, gated)
        task = StoredTask(record.id, Place.TASKS, value)
        if record.state is State.RUNNING:
            old = self.held[record.id].task
            assert old is not None, "only a claim starts a task"
            lease = old.lease
            task = structs.replace(
                task, running=rows.running_value(record), expires_at=record.lease_expires_at, lease=lease
            )
        self.become(record.id, task, entries)

    def is_gated(self, record: TaskRecord) -> bool:
        """Where partitions are limited, pending tasks are stored gated; `partitions` then ungates the heads."""
        waits = record.state is State.PENDING and record.spec.partition is not None
        return waits and self.settings(record.queue).per_partition is not None

    async def insert_ended(self, place: Place, records: Sequence[TaskRecord]) -> None:
        highest = ""
        for record in records:
            if record.id not in self.held:
                self.held[record.id] = Held(None, [], None)
                highest = max(highest, record.id)
            track = self.catalog.tracks[self.loaded[record.id]]
            value = rows.ended_value(self.keys, record, track, self.next_version(record))
            day = day_of(record.finished_at or 0)
            if place is Place.FINISHED:
                self.draft.put(self.keys("days"), str(day), encode((day, "[]")))
            task = StoredTask(record.id, place, value, day if place is Place.FINISHED else 0)
            self.become(record.id, task, rows.entries(self.keys, record, track, False))
        if highest:
            self.draft.more.append(("RAISE", self.keys("highest"), highest))

    def become(self, task_id: str, new: StoredTask | None, entries: list[Entry]) -> None:
        """From what a task is to what it is to be, in all keys; whatever it was must still be so."""
        held = self.held[task_id]
        old = held.task
        if held.was is not None:
            self.draft.checks.update(dict.fromkeys(self.fences(held.was)))
        self.draft.move(held.entries, entries)
        if old is not None and (new is None or (old.place, old.day) != (new.place, new.day)):
            self.draft.put(self.place_key(old.place, old.day), task_id, None)
        if new is not None:
            self.draft.put(self.place_key(new.place, new.day), task_id, new.value)
        self.change_run(task_id, old, new)
        held.task, held.entries = new, entries

    def change_run(self, task_id: str, old: StoredTask | None, new: StoredTask | None) -> None:
        runs, ran = new is not None and new.is_running, old is not None and old.is_running
        if runs:
            assert new is not None
            self.draft.put(self.keys("running"), task_id, new.running)
            self.draft.more.append(("ZADD", self.keys("inflight"), new.expires_at or 0, task_id))
        elif ran:
            assert old is not None
            assert old.running is not None
            self.draft.put(self.keys("running"), task_id, None)
            self.draft.more.append(("ZREM", self.keys("inflight"), task_id))
            self.draft.more.append(("LEAVE", rows.running_parts(old.running)[0], 1))

    async def set_gates(self, ids: Sequence[str], gated: bool) -> int:
        """Gate or ungate pending tasks. That is no change of the task: its version stays."""
        changed = 0
        for task in (await self.find_tasks(ids)).values():
            record = self.decoded(task)
            if isinstance(record, TaskRecord) and record.state is State.PENDING and rows.is_gated(task) is not gated:
                self.hold(task, record)
                track, version = self.catalog.tracks[self.loaded[task.id]], self.versions[task.id]
                value = rows.task_value(self.keys, record, track, gated, version)
                self.become(
                    task.id, StoredTask(task.id, Place.TASKS, value), rows.entries(self.keys, record, track, gated)
                )
                changed += 1
        return changed

    async def drop(self, ids: Sequence[str]) -> int:
        """Delete tasks, whatever they contain."""
        found = await self.find_tasks(list(ids))
        for task in found.values():
            stored = self.decoded(task)
            if isinstance(stored, TaskRecord):
                self.hold(task, stored)
            elif task.id not in self.held:
                self.held[task.id] = Held(task, await self.known_entries(task), task)
            self.become(task.id, None, [])
        return len(found)

    async def known_entries(self, task: StoredTask) -> list[Entry]:
        """Where a task that can't be read stands, as far as that can be found."""
        member = task.id.encode()
        if task.place is Place.FINISHED:
            return [(self.keys.finished_ids(task.day), member), (self.keys("cancelled"), member)]
        found: list[Entry] = [(self.keys(f"{task.place}_ids"), member)]
        for name in ("dead_days", "due", "expiries", "reranks", "members", "partitions"):
            found += await self.entries_with(self.keys(name), member)
        for number in self.catalog.tracks:
            for state in (State.PENDING, State.SCHEDULED, State.RETRYING, State.BLOCKED):
                found += await self.entries_with(self.keys.waiting(number, state), member)
        return found

    async def entries_with(self, key: str, text: bytes) -> list[Entry]:
        """Walks through a whole set, some at a time: only to purge what can't be read."""
        found: list[Entry] = []
        low = START
        while members := await self.draft.range(key, low, LAST, AT_ONCE):
            found += [(key, member) for member in members if text in member]
            low = codec.after(members[-1])
        return found

    # Counts.

    def count(self, what: State | Counter, track: int, change: int, day: int = 0) -> None:
        self.changes[what, track, day] += change

    def count_event(self, what: str, queue: str, change: int = 1) -> None:
        self.changes[what, queue, 0] += change

    def changed_counts(self) -> Iterable[tuple[tuple[str, int | str], int]]:
        return (((what, whose), change) for (what, whose, _), change in self.changes.items())

    async def write_counts(self) -> None:
        """They are written at the end, with everything else; what reads them before adds them."""

    def count_commands(self) -> Iterator[Command]:
        for (what, whose, day), change in self.changes.items():
            if change:
                field = f"{whose} {what}" if isinstance(whose, int) else to_json((what, whose))
                yield ("HINCRBY", self.keys("counts"), field, change)
                if day:
                    yield ("HINCRBY", self.keys.finished_counts(day), field, change)

    # Claims.

    async def first_turns(self, tracks: Sequence[int], clock: int, most: int) -> dict[int, Found[tuple[int, str]]]:
        found = {}
        for track in tracks:
            turns = await statements.first_turns(self, track, clock, most)
            found[track] = Found([(row[0], row[1]) for row in turns], len(turns), turns[-1] if turns else None)
        return found

    async def lease(self, request: ClaimRequest, chosen: Sequence[Chosen]) -> dict[str, LeasedTask] | None:
        heads = [each.head for each in chosen]
        tasks = await self.find_tasks([head.id for head in heads])
        if self.has_clock:  # what was read may have ended after this transaction began: these start after that
            self.now = await read_clock(self.draft.client)
        number = await self.next_lease()
        given: dict[str, LeasedTask] = {}
        for head in heads:
            task = tasks.get(head.id)
            if task is None or task.place is not Place.TASKS or task.is_running:
                raise TaskMoved
            stored = self.decoded(task)
            if isinstance(stored, TaskRecord) and stored.state is not State.PENDING:
                raise TaskMoved
            if isinstance(stored, TaskRecord):
                given[head.id] = self.start(request, number, head, task, stored)
        if len(given) < len(heads):
            return None
        self.add_lease(request, number, [head.id for head in heads])
        trait, blocks = claimed_pairs(request.worker, [head.id for head in heads])
        self.note_blocks([trait], blocks)
        if (watched := self.catalog.watched(EventType.TASK_STARTED, self.now)) is not None:
            for head in heads:
                if watched == [0] or head.track in watched:
                    event = (self.now, EventType.TASK_STARTED, head.track, None, head.id, request.worker, None, None)
                    self.events.append(event)
        return given

    async def next_lease(self) -> int:
        """A number that was never given before, and is not given again: above the last one, and not below the time, so
        that it grows even where a failover has lost the last one."""
        (last,) = await self.draft.values(self.keys("store"), ["lease"])
        number = max(int(last or 0) + 1, self.now)
        self.draft.put(self.keys("store"), "lease", b"%d" % number)
        return number

    def start(self, request: ClaimRequest, number: int, head: Head, task: StoredTask, record: TaskRecord) -> LeasedTask:
        held = self.hold(task, record)
        track = self.catalog.tracks[head.track]
        parts = rows.parts_of(task.value)
        span = record.options.lease if request.lease is None else request.lease
        started = leased_task(
            decode_facts(parts.columns.facts),
            track,
            self.settings(track.queue),
            id=head.id,
            lease=number,
            expires_at=self.now + span,
            ready_at=head.ready_at,
            rank=head.rank,
            args=parts.args,
            now=self.now,
        )
        gated = bool(parts.columns.gated)
        lease = encode((self.now, request.worker, request.sequence))
        running = structs.replace(task, running=b"%d" % number, expires_at=self.now + span, lease=lease)
        self.become(task.id, running, rows.entries(self.keys, record, track, gated, State.RUNNING))
        held.task = running
        return started

    def add_lease(self, request: ClaimRequest, number: int, ids: Sequence[str]) -> None:
        member = codec.encode("sii", (request.worker, request.sequence, number))
        lease = encode((self.now, request.worker, request.sequence))
        for name, value in (
            ("leases", lease),
            ("lease_ids", " ".join(ids).encode()),
            ("lease_left", b"%d" % len(ids)),
            ("lease_members", member),
        ):
            self.draft.put(self.keys(name), str(number), value)
        self.draft.add(self.keys("worker_leases"), member)

    # The end.

    def arguments(self, generation: int, topics: Sequence[Argument]) -> list[Argument]:
        """What the script `save` takes."""
        found: list[Argument] = [generation]
        for commands in ([*self.draft.comparisons()], [*self.draft.commands(), *self.count_commands()]):
            found.append(len(commands))
            for command in commands:
                found.append(len(command))
                found.extend(command)
        return [*found, len(topics), *topics]


def is_by(instant: Instant | None, until: Instant) -> bool:
    return instant is not None and instant <= until


def plain(value: Any) -> Any:
    """A parameter as it is stored: Structs as JSON text, also in lists and rows."""
    if isinstance(value, Struct):
        return to_json(value)
    if isinstance(value, list | tuple):
        found = [plain(each) for each in value]
        return tuple(found) if isinstance(value, tuple) else found
    return value
