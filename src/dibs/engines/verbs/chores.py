"""Leadership, and the leader's chores: each step is bounded and checks the term in its own transaction."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from dibs.core.policy import CHORE_BATCH, TERM
from dibs.core.times import Instant
from dibs.engines.decisions.steps import Done, Step, StepKind
from dibs.engines.port import Port, Read, View
from dibs.engines.unreadable import readable
from dibs.engines.values import ChoreRecord, Term
from dibs.engines.verbs import events, retention
from dibs.engines.verbs.steps import go_on

__all__ = [
    "CHORES",
    "GO_ON",
    "Chore",
    "chores",
    "do_chore",
    "identity_and_chores",
    "is_current",
    "lead",
    "record_chore",
    "resign",
]

Chore = Callable[..., Awaitable[Done]]
"""A `StepFunction` that may need a store's own port: it goes on with a chore."""

GO_ON = "background_steps"
"""The chore that goes on with the steps for which nobody may be waiting."""

CURRENT_TERM = Read("term", tuple[int, str, Instant], "term")
"""Takes nothing: the current term, if there is any. No other begins before this transaction ends."""
CHORE = Read("chore", tuple[str, object, object], "chore")
"""Takes a name: the last run of that chore, if there is any, as (name, record, cursor)."""
STORED_CHORES = Read("chores", tuple[str, object], "chore")
"""Takes nothing: the last runs of all chores, as (name, record)."""
IDENTITY = Read("identity", str, "identity")
"""Takes nothing: the random id of this store."""

decode_record = msgspec.json.Decoder(ChoreRecord).decode


async def lead(port: Port, worker: str) -> Term | None:
    """Take or renew the term; a new one has the next number."""
    if not await port.write("lead", worker, port.now, TERM):
        return None
    ((number, leader, expires_at),) = await port.read(CURRENT_TERM)
    return Term(number, leader, expires_at)


async def resign(port: Port, term: Term) -> None:
    await port.write("resign", term.number)


async def is_current(view: View, term: Term) -> bool:
    """Whether no later term has begun."""
    found = await view.read(CURRENT_TERM)
    return [(number, worker) for number, worker, _ in found] == [(term.number, term.worker)]


async def do_chore(port: Port, name: str, term: Term, chores: Mapping[str, Chore]) -> ChoreRecord:
    """One step of a chore, unless a later term has begun."""
    if not await is_current(port, term):
        return ChoreRecord(name=name, refused=True)
    began = time.perf_counter_ns()
    cursors = [cursor for _, _, cursor in await port.read(CHORE, name) if isinstance(cursor, str)]
    step = Step(StepKind.CHORE, name, after="".join(cursors))
    done = await chores[name](port, [step], CHORE_BATCH)
    return await record_chore(port, name, done, time.perf_counter_ns() - began)


async def record_chore(port: Port, name: str, done: Done, nanoseconds: int) -> ChoreRecord:
    number, unfinished = done
    stored = [(name, record) for _, record, _ in await port.read(CHORE, name)]
    before = dict(decoded(port, stored)).get(name, ChoreRecord(name=name))
    record = ChoreRecord(
        name=name,
        at=port.now,
        took=nanoseconds // 1000,
        done=number,
        more=bool(unfinished),
        behind_since=(before.behind_since or port.now) if unfinished else 0,
        total=before.total + number,
    )
    await port.write("save_chore", name, record, "".join(step.after for step in unfinished))
    return record


async def chores(view: View, names: Iterable[str]) -> list[ChoreRecord]:
    """Each chore's last run, including chores that have not run yet."""
    records = dict(decoded(view, await view.read(STORED_CHORES)))
    return [records.get(name, ChoreRecord(name=name)) for name in names]


def decoded(view: View, stored: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, ChoreRecord]]:
    return readable(view.aside, "chore", stored, decode_record)


async def identity_and_chores(view: View, names: Iterable[str]) -> tuple[str, list[ChoreRecord]]:
    """What `about` reads."""
    return (await view.read(IDENTITY))[0], await chores(view, names)


CHORES: dict[str, Chore] = {
    GO_ON: partial(go_on, None),
    "prune_finished": retention.prune_finished,
    "prune_dead": retention.prune_dead,
    "prune_keys": retention.prune_keys,
    "prune_workers": retention.prune_workers,
    "prune_audit": retention.prune_audit,
    "prune_stats": retention.prune_stats,
    "prune_steps": retention.prune_steps,
    "prune_events": events.prune_events,
    "prune_workflows": retention.prune_workflows,
    "prune_buckets": retention.prune_buckets,
    "prune_shares": retention.prune_shares,
    "prune_blocks": retention.prune_blocks,
}
"""The chores that every store has. Each adds its own, and may do some of these in its own way."""
