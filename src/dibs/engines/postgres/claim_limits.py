"""Limits and shares as the function `claim` takes them, and whether it can.

It can where nothing but ranks and slots decides what queues give, or the turns of one fair queue, or the rate of one
queue. It does not where that rate, or in a fair queue the slots of a partition, leave no more than is wanted. Other
rates and floors are for `dibs.engines.verbs.claiming`. So are limits of names beside limits of partitions or shares,
and two lanes: there, what may start depends on what else does, which one statement can't say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dibs.core.fairness import COST, stride
from dibs.core.limits import refill
from dibs.core.settings import Limit
from dibs.engines.decisions.facts import Track
from dibs.engines.decisions.headroom import MOST_AHEAD
from dibs.engines.decisions.transaction import Queue
from dibs.engines.postgres.catalog import Catalog
from dibs.engines.values import ClaimRequest

__all__ = ["ClaimLimits", "is_chosen_from", "limits_of", "reads_from_the_start", "takes_one_statement"]


class ClaimLimits(NamedTuple):
    """The parameters of `claim` that say what limits and shares allow, in its order."""

    queues: Sequence[str] = ()
    """Those with limits or shares, in order."""
    is_alone: bool = True
    """Whether the claim serves one queue only."""
    wanted: int = 0
    """How many tasks of these queues are wanted."""
    owners: Sequence[int] = ()
    """Of each track, the place of its queue in `queues`, from 1; 0: it is not there."""
    slots: Sequence[int | None] = ()
    """Of each track, how many of a partition may run at once; None: any number."""
    wholes: Sequence[int] = ()
    """Of each track, the group whose slots its tasks take because of their queue, from 1; 0: none."""
    names: Sequence[int] = ()
    """The same because of their name."""
    group_slots: Sequence[int] = ()
    counted_tracks: Sequence[int] = ()
    counted_groups: Sequence[int] = ()
    """Beside `counted_tracks`: in which groups the running tasks of these tracks count."""
    ahead: int = MOST_AHEAD
    """How many tasks of a partition, track and share to ungate at a time, at most."""
    fair_tracks: Sequence[int] = ()
    """All fair tracks of the only queue, if it is fair."""
    stride: int | None = None
    """How far a start advances a share without a weight; None: the queue is not fair."""
    weighted: Sequence[str] = ()
    strides: Sequence[int] = ()
    """The strides of the `weighted` shares."""
    rate: float | None = None
    """Start tokens of the only queue a second."""
    full_level: int | None = None
    """What the bucket of the only queue holds."""


def is_chosen_from(catalog: Catalog, queue: Queue) -> bool:
    """Whether more than ranks decides what a queue gives."""
    return queue.settings.limits_starts or queue.name in catalog.guarded


def takes_one_statement(catalog: Catalog, request: ClaimRequest, queues: Sequence[Queue]) -> bool:
    """Whether `claim` can choose what these queues give."""
    chosen_from = [queue for queue in queues if is_chosen_from(catalog, queue)]
    if not chosen_from:
        return not request.floors
    if request.floors or catalog.aside.tasks:
        return False
    is_alone = len(request.queues) == 1
    return all(each.settings.rate is None or is_alone for each in chosen_from) and (
        (is_alone and has_turns(catalog, queues[0])) or all(has_slots_only(catalog, each) for each in chosen_from)
    )


def reads_from_the_start(catalog: Catalog, queue: Queue) -> bool:
    """Whether claims from a queue read all that is dead there while a transaction holds an old snapshot."""
    return queue.settings.max_aging_bonus is not None or is_chosen_from(catalog, queue)


def has_slots_only(catalog: Catalog, queue: Queue) -> bool:
    """Whether nothing but ranks, slots and the rate of the whole queue decides what it gives."""
    settings = queue.settings
    limits = [*settings.per_task.values(), settings.per_partition]
    return (
        all(limit is None or limit.rate is None for limit in limits)
        and not (settings.per_task and settings.per_partition)
        and settings.max_aging_bonus is None
        and not settings.fair
        and not any(track.fair for track in catalog.open_tracks(queue.name))
    )


def has_turns(catalog: Catalog, queue: Queue) -> bool:
    """Whether a queue is fair, and no name in it has limits of its own."""
    settings = queue.settings
    return (
        settings.fair
        and not settings.per_task
        and (settings.per_partition is None or settings.per_partition.rate is None)
        and settings.max_aging_bonus is None
        and all(track.fair for track in catalog.open_tracks(queue.name))
    )


def limits_of(catalog: Catalog, request: ClaimRequest, queues: Sequence[Queue], tracks: Sequence[Track]) -> ClaimLimits:
    """What `claim` must know of the limits and shares of these queues to choose from these tracks."""
    names = sorted(queue.name for queue in queues if is_chosen_from(catalog, queue))
    if not names:
        return ClaimLimits()
    found = ClaimLimits(
        queues=names,
        is_alone=len(request.queues) == 1,  # even if the others are empty or don't exist yet
        wanted=request.limit,
        owners=[names.index(track.queue) + 1 if track.queue in names else 0 for track in tracks],
    )
    settings = queues[0].settings
    if found.is_alone and settings.rate is not None:
        full = refill(None, Limit(None, settings.rate, settings.burst), 0)
        found = found._replace(rate=settings.rate, full_level=full.level)
    if found.is_alone and has_turns(catalog, queues[0]):
        found = found._replace(
            wanted=request.limit + (0 if settings.limits_starts else request.prefetch),
            fair_tracks=[track.number for track in catalog.of_queue(names[0]) if track.fair],
            stride=COST,
            weighted=list(settings.weights),
            strides=[stride(settings, share) for share in settings.weights],
        )
    return with_slots(found, catalog, tracks)


def with_slots(limits: ClaimLimits, catalog: Catalog, tracks: Sequence[Track]) -> ClaimLimits:
    settings = [catalog.settings(track.queue) for track in tracks]
    groups: dict[tuple[str, str], int] = {}
    group_slots: list[int] = []

    def group(queue: str, name: str, slots: int | None) -> int:
        if slots is None:
            return 0
        if (queue, name) not in groups:
            group_slots.append(slots)
            groups[queue, name] = len(group_slots)
        return groups[queue, name]

    wholes, by_name = [], []
    for track, each in zip(tracks, settings, strict=True):
        limit = each.per_task.get(track.name)
        wholes.append(group(track.queue, "", each.max_concurrent))
        by_name.append(group(track.queue, track.name, None if limit is None else limit.max_concurrent))
    counted = [
        (track.number, number)
        for (queue, name), number in groups.items()
        for track in catalog.of_queue(queue)
        if name in ("", track.name)
    ]
    return limits._replace(
        slots=[None if each.per_partition is None else each.per_partition.max_concurrent for each in settings],
        wholes=wholes,
        names=by_name,
        group_slots=group_slots,
        counted_tracks=[track for track, _ in counted],
        counted_groups=[number for _, number in counted],
    )
