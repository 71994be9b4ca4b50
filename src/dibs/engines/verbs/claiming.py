"""claim: choose tasks, lease them, and write what that has changed for others. A store does the upkeep before."""

from __future__ import annotations

from collections import Counter as Totals
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, structs

from dibs.core.limits import Scope
from dibs.core.moves import leased
from dibs.core.states import State
from dibs.core.task import LeasedTask, QueueState, TaskRecord
from dibs.core.times import Duration
from dibs.engines.decisions.choosing import Choice, Chosen, Headrooms, NeedMore, QueueCursor, startable
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.headroom import Whose
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.transaction import Queue
from dibs.engines.figures import Counter
from dibs.engines.port import Port
from dibs.engines.values import ClaimRequest
from dibs.engines.verbs.candidates import ClaimCandidates, headrooms_of
from dibs.engines.verbs.partitions import next_refill, promote_heads

__all__ = ["Given", "give", "given_before", "served_queues", "token_waits", "tracks_for"]


TRIES = 5
"""How often a claim chooses others in place of tasks that are locked."""

AnyTrack = TypeVar("AnyTrack", bound=Track)


class Given(Struct):
    """What a claim gives. `more`: it stopped at a bound, and the next claim goes on at once."""

    tasks: list[LeasedTask]
    more: bool = False
    headrooms: Headrooms | None = None
    """What limits allow after these starts; None if that is not known."""


def served_queues(queues: Mapping[str, Queue], request: ClaimRequest) -> list[Queue]:
    """Those of all queues that give tasks, in the order of the request."""
    found = (queues.get(name) for name in dict.fromkeys(request.queues))
    return [queue for queue in found if queue is not None and queue.state is not QueueState.PAUSED]


def tracks_for(tracks: Iterable[AnyTrack], request: ClaimRequest, crowded: Collection[int]) -> list[AnyTrack]:
    """Those of some tracks that a worker can run. `crowded`: tracks to pass over."""
    names = None if request.names is None else frozenset(request.names)
    offered = frozenset(request.capabilities)
    return [
        track
        for track in tracks
        if track.number not in crowded
        and (names is None or track.name in names)
        and (not track.requires or offered.issuperset(track.requires))
    ]


async def given_before(port: Port, request: ClaimRequest) -> list[LeasedTask]:
    """What an earlier call with the same sequence claimed and still holds."""
    found = await port.claimed_by(request.worker, request.sequence)
    records = [record for record in found if isinstance(record, TaskRecord)]
    return [leased(record, port.settings(record.queue)) for record in records]


async def give(port: Port, request: ClaimRequest, queues: Sequence[Queue]) -> Given | None:
    """Choose tasks and lease them, and others in place of those that another transaction has locked.

    None, and nothing is leased, if some of those chosen can't be read.
    """
    given = await give_once(port, request, queues)
    for _ in range(TRIES):
        if given is None or given.headrooms is not None or request.floors:
            break  # reserved slots are counted in one choice
        if port.partitions:
            await promote_heads(port)
        more = await give_once(port, without(request, len(given.tasks)), queues)
        if more is not None:
            given = Given([*given.tasks, *more.tasks], given.more or more.more, more.headrooms)
    return given


def without(request: ClaimRequest, given: int) -> ClaimRequest:
    """What is left of a request."""
    wanted = request.limit + request.prefetch - given
    limit = max(0, request.limit - given)
    return structs.replace(request, limit=limit, prefetch=wanted - limit)


async def give_once(port: Port, request: ClaimRequest, queues: Sequence[Queue]) -> Given | None:
    """Choose tasks and lease them. None, and nothing is leased, if some of those chosen can't be read."""
    wanted = request.limit + request.prefetch
    if wanted <= 0:
        return Given([], headrooms=await headrooms_of(port, [each for each in queues if each.settings.limits_starts]))
    limited = [queue for queue in queues if queue.settings.limits_starts]
    headrooms = await headrooms_of(port, limited)
    crowded = port.aside.crowded
    fitting = {queue.name: tracks_for(port.open_tracks(queue.name), request, crowded) for queue in queues}
    tracks = {queue.name: startable(headrooms, queue, fitting[queue.name]) for queue in queues}
    candidates = ClaimCandidates(port, limited, tracks, wanted, headrooms)
    await candidates.open(queues)
    cursors = [
        QueueCursor(candidates.pages, queue, order, tracks[queue.name], headrooms)
        for order, queue in enumerate(queues)
        if tracks[queue.name]
    ]
    choice = Choice(cursors, request, port.now)
    while isinstance(chosen := choice.go_on(), NeedMore):
        await candidates.read_more(chosen)
    tasks = await port.lease(request, chosen) if chosen else {}
    if tasks is None:
        return None
    taken = [each for each in chosen if each.head.id in tasks]
    count(port, taken)
    if limited:
        await spend(port, chosen, taken)
        await gate(port, cursors, headrooms)
    await save_turns(port, candidates, cursors)
    more = any(cursor.is_truncated for cursor in cursors)
    return Given([tasks[each.head.id] for each in taken], more, headrooms if len(taken) == len(chosen) else None)


def count(port: Port, taken: Sequence[Chosen]) -> None:
    for (track, share), n in Totals((each.head.track, each.share) for each in taken).items():
        port.count_pending(track, share, -n)
    for track, n in Totals(each.head.track for each in taken).items():
        port.count(State.RUNNING, track, n)
        port.count(Counter.CLAIMED, track, n)


async def spend(port: Port, chosen: Sequence[Chosen], taken: Sequence[Chosen]) -> None:
    """Spend the start tokens of the leased tasks. Where headroom is left in a partition, others may start."""
    given = {each.head.id for each in taken}
    starts: Totals[Whose] = Totals()
    buckets: dict[Whose, tuple[object, ...]] = {}
    for each in chosen:
        for whose, headroom in each.counted:
            if each.head.id in given and headroom.full is not None:
                starts[whose] += 1
                bucket = headroom.spent(starts[whose])
                refills_in = headroom.refills_in if whose[1] is Scope.PARTITION else None
                refill_at = None if refills_in is None else port.now + refills_in
                buckets[whose] = (*whose, bucket.level, bucket.at, refill_at)
            if whose[1] is Scope.PARTITION and (not headroom.is_full or each.head.id not in given):
                port.mark_changed(Partition(whose[0], whose[2]))
    if buckets:
        await port.write("save_buckets", [*buckets.values()])


async def gate(port: Port, cursors: Iterable[QueueCursor], headrooms: Headrooms) -> None:
    """Gate the tasks that may not start because their partitions are full."""
    blocked = {task_id: partition for cursor in cursors for task_id, partition in cursor.blocked.items()}
    if blocked:
        await port.write("gate", [*blocked])
    for partition in blocked.values():
        if headrooms.known[partition.queue, Scope.PARTITION, partition.name].has_no_token:
            port.mark_changed(partition)


async def save_turns(port: Port, candidates: ClaimCandidates, cursors: Iterable[QueueCursor]) -> None:
    """Write the turns that were taken, and delete those without a task."""
    for track, shares in candidates.idle.items():
        await port.write("delete_turns", track, shares)
    for cursor in cursors:
        if cursor.served:
            await port.serve(cursor.queue.name, cursor.clock, cursor.served)


async def token_waits(port: Port, queues: Iterable[Queue], headrooms: Headrooms | None = None) -> list[Duration]:
    """How long until limits that are out of tokens have one, if pending tasks need it."""
    limited = [queue for queue in queues if queue.settings.limits_starts]
    known = (headrooms or await headrooms_of(port, limited)).known
    waits: list[Duration] = []
    for queue in limited:
        empty = {
            whose: headroom.refills_in
            for (name, scope, whose), headroom in known.items()
            if name == queue.name and scope is not Scope.PARTITION and headroom.refills_in is not None
        }
        if empty:
            names = {track.name for track in await port.tracks_with_pending(queue.name)}
            waits += [wait for whose, wait in empty.items() if (whose in names if whose else names)]
        limit = queue.settings.per_partition
        if limit is not None and limit.rate is not None:
            refills_in = await next_refill(port, queue.name, limit)
            waits += [] if refills_in is None else [refills_in]
    return waits
