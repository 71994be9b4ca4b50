"""The index of id blocks: which traits have tasks in which block of ids (`docs/design/search.md`).

A block is the first ten hex digits of an id: 0.256 s of a UUIDv7. A trait is something that searches ask for. A store
keeps pairs of both, so a search reads only the blocks that may have what it looks for. Wide traits are kept for sixteen
blocks at a time: what a claim takes may have come one by one, and must not cost a pair for each task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from dibs.core.task import NewTask, TaskRecord
from dibs.core.times import HOUR, MINUTE, Instant
from dibs.engines.decisions.encoding import to_json

__all__ = [
    "DIGITS",
    "END",
    "HIGHEST",
    "NEIGHBOURS",
    "SLOT",
    "WIDE",
    "YOUNG",
    "Pair",
    "Span",
    "block_of",
    "blocks_of",
    "claimed_pairs",
    "common",
    "created_trait",
    "first_id",
    "is_remembered",
    "is_skewed",
    "joined",
    "key_trait",
    "name_trait",
    "partition_trait",
    "slot_of",
    "spans_of",
    "tenant_trait",
    "traits_between",
    "traits_of",
    "wide",
    "wide_worker_trait",
    "worker_trait",
]

Pair = tuple[str, int]
"""A trait and a block."""
Span = tuple[int, int]
"""Blocks from the first to the last, both included."""

SLOT = 256_000
"""Microseconds of one block."""
DIGITS = 11
"""How many characters of an id tell its block."""
WIDE = 16
"""How many blocks are one for a wide trait."""
FEW = 4
"""Blocks of what one claim takes that are kept one by one."""
HIGHEST = 2**40 - 1
END = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""No task has this id: searches begin below it."""
NEIGHBOURS = 4
"""A block this near to the time of creation is where a search by time looks anyway: clocks differ a little."""
YOUNG = HOUR // SLOT
"""Pairs of blocks this near to the present are never deleted, so that a process may remember them for a while."""
REMEMBERED = MINUTE // SLOT
"""How near to the present a block is whose pairs a process remembers: far less than `YOUNG`, as clocks may differ."""
SMALL_GAP = 2
"""Blocks this near to each other are read as one range."""


def block_of(task_id: str) -> int:
    try:
        return int(task_id[:8] + task_id[9:11], 16)
    except (ValueError, IndexError):  # no id that a client makes
        return 0


def blocks_of(ids: Sequence[str]) -> Collection[int]:
    """The blocks of some ids. Most batches are in one."""
    if len(ids) == 1:
        return (block_of(ids[0]),)
    lowest = block_of(min(ids))
    return (lowest,) if lowest == block_of(max(ids)) else {block_of(each) for each in ids}


def wide(blocks: Iterable[int]) -> set[int]:
    """The first of the sixteen blocks that each is one of."""
    return {block - block % WIDE for block in blocks}


def slot_of(instant: Instant) -> int:
    """The block of an id that is made at this instant."""
    return min(max(instant // SLOT, 0), HIGHEST)


def first_id(block: int) -> str:
    """The lowest id of a block; the end of all ids after the last one."""
    if block > HIGHEST:
        return END
    digits = f"{block:010x}"
    return f"{digits[:8]}-{digits[8:]}00-0000-0000-000000000000"


def is_skewed(block: int, now: Instant) -> bool:
    """Whether a search by time would not look into this block for what is created now."""
    return abs(block - now // SLOT) > NEIGHBOURS


def is_remembered(block: int, now: Instant) -> bool:
    return abs(block - now // SLOT) <= REMEMBERED


# Terms. The name of a queue has no space.


def name_trait(queue: str, name: str) -> str:
    return f"name {queue} {name}"


def worker_trait(worker: str) -> str:
    return f"worker {worker}"


def wide_worker_trait(worker: str) -> str:
    return f"wide worker {worker}"


def claimed_pairs(worker: str, ids: Sequence[str]) -> tuple[str, Collection[int]]:
    """What is stored about tasks that a worker takes: a trait, and blocks."""
    blocks = blocks_of(ids)
    return (worker_trait(worker), blocks) if len(blocks) <= FEW else (wide_worker_trait(worker), wide(blocks))


def tenant_trait(tenant: str) -> str:
    return f"tenant {to_json(tenant)}"


def partition_trait(partition: str) -> str:
    return f"partition {to_json(partition)}"


def key_trait(key: str) -> str:
    return f"key {to_json(key)}"


def created_trait(slot: int) -> str:
    """For a task whose id is of another time than its creation. The order of these traits is that of time."""
    return f"created {slot - slot % WIDE:010x}"


def traits_of(task: NewTask | TaskRecord) -> list[str]:
    """The traits of a task, but for the worker's and that of its creation."""
    spec, found = task.spec, [name_trait(task.queue, task.name)]
    if spec.tenant:
        found.append(tenant_trait(spec.tenant))
    if spec.partition is not None:
        found.append(partition_trait(spec.partition))
    if spec.key is not None:
        found.append(key_trait(spec.key))
    return found


def traits_between(old: TaskRecord | None, new: TaskRecord) -> list[str]:
    """The traits that must be stored when a task is new, or has changed."""
    if old is None:
        return traits_of(new)
    if old.queue == new.queue and old.spec is new.spec:
        return []
    before = traits_of(old)
    return [trait for trait in traits_of(new) if trait not in before]


# Spans, highest first, apart from each other.


def spans_of(blocks: Iterable[int], width: int = 1) -> list[Span]:
    found: list[Span] = []
    for block in sorted(blocks, reverse=True):
        last = block + width - 1
        if found and found[-1][0] - last <= SMALL_GAP:
            found[-1] = (block, found[-1][1])
        else:
            found.append((block, last))
    return found


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """The blocks that are in both."""
    found: list[Span] = []
    i = j = 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low <= high:
            found.append((low, high))
        if one[i][0] > other[j][0]:
            i += 1
        else:
            j += 1
    return found


def joined(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """The blocks that are in either."""
    found: list[Span] = []
    for low, high in sorted([*one, *other], key=lambda span: -span[1]):
        if found and high >= found[-1][0] - 1:
            found[-1] = (min(low, found[-1][0]), found[-1][1])
        else:
            found.append((low, high))
    return found
