"""counts and backlog: figures that are kept with every move, and the first entries of the pending index."""

from __future__ import annotations

from collections import Counter as Totals
from collections.abc import Iterable, Sequence
from typing import Any

from dibs.core.settings import Tier
from dibs.core.states import State
from dibs.core.times import Instant
from dibs.engines.decisions.counting import type_counted
from dibs.engines.decisions.facts import Track
from dibs.engines.figures import Backlog, Counter, Counts, KindCounts
from dibs.engines.port import View
from dibs.engines.verbs.candidates import LOWEST, LOWEST_ID
from dibs.engines.verbs.reading import TENANTS

__all__ = ["backlog", "counts"]

STATES = frozenset(State)
COUNTERS = frozenset(Counter)
EveryCount = Sequence[tuple[str, Track | str, int]]

MOST_SHARES = 100
"""Shares of a fair queue whose tasks are looked at, in the order of their turns."""
MOST_ENTRIES = 2000
"""Entries of the pending index that one `backlog` reads, unless there are more tracks and shares."""
DEEPEST = 100
"""Entries of one track and share that it reads."""


async def counts(view: View) -> Counts:
    found = await view.every_count()
    tasks = {name: dict.fromkeys(State, 0) for name in view.queues}
    for what, whose, n in found:
        if what in STATES:
            tasks.setdefault(queue_of(whose), dict.fromkeys(State, 0))[State(what)] += n
    counters = sums((queue_of(whose), Counter(what), n) for what, whose, n in found if what in COUNTERS)
    errors = sums((queue_of(whose), kind, n) for what, whose, n in found if (kind := type_counted(what)) is not None)
    return Counts(dict(sorted(tasks.items())), counters, by_kind(found), errors)


def queue_of(whose: Track | str) -> str:
    return whose.queue if isinstance(whose, Track) else whose


def by_kind(found: EveryCount) -> list[KindCounts]:
    """The counts of tracks, added up by what people know of them: queue, name and tier."""
    of_tracks = [
        ((whose.queue, whose.name, whose.tier), what, n) for what, whose, n in found if isinstance(whose, Track)
    ]
    states = sums((kind, State(what), n) for kind, what, n in of_tracks if what in STATES)
    counters = sums((kind, Counter(what), n) for kind, what, n in of_tracks if what in COUNTERS)
    return [
        KindCounts(
            queue=kind[0], name=kind[1], tier=kind[2], states=states.get(kind, {}), counters=counters.get(kind, {})
        )
        for kind in sorted({*states, *counters})
    ]


def sums(rows: Iterable[tuple[Any, Any, int]]) -> dict[Any, dict[Any, int]]:
    """Numbers by their two labels, added up, in order and without zeros."""
    totals: dict[Any, Totals[Any]] = {}
    for outer, inner, n in rows:
        totals.setdefault(outer, Totals())[inner] += n
    found = {outer: {inner: n for inner, n in each.items() if n} for outer, each in sorted(totals.items())}
    return {outer: each for outer, each in found.items() if each}


async def backlog(view: View) -> list[Backlog]:
    """Reads no task: only counts, and entries of the pending index."""
    waiting = [(track, n) for state, track, n in await view.counts_by_track() if state is State.PENDING and n > 0]
    pending: Totals[tuple[str, Tier]] = Totals()
    for track, n in waiting:
        pending[track.queue, track.tier] += n
    oldest = await oldest_entries(view, [track for track, _ in waiting])
    return [
        Backlog(queue=queue, tier=tier, pending=n, oldest=oldest.get((queue, tier)))
        for (queue, tier), n in sorted(pending.items())
    ]


async def oldest_entries(view: View, tracks: Sequence[Track]) -> dict[tuple[str, Tier], Instant]:
    """Since when tasks have been ready, the longest by queue and tier, among the next ones of each track."""
    shares = {track.queue: await shares_of(view, track.queue) for track in tracks if track.fair}
    keys = [(track, share) for track in tracks for share in (shares[track.queue] if track.fair else [""])]
    if not keys:
        return {}
    asked = [(track.number, share, LOWEST, LOWEST_ID) for track, share in keys]
    most = min(max(1, MOST_ENTRIES // len(keys)), DEEPEST)
    oldest: dict[tuple[str, Tier], Instant] = {}
    for (track, _), found in zip(keys, await view.read_tracks(asked, most, True), strict=True):
        for head in found.rows:
            kind = (track.queue, track.tier)
            oldest[kind] = min(oldest.get(kind, head.ready_at), head.ready_at)
    return oldest


async def shares_of(view: View, queue: str) -> list[str]:
    """The shares of a fair queue that are served next."""
    clock, _ = await view.clock(queue)
    return [each.share for each in await view.read(TENANTS, queue, clock, MOST_SHARES)]
