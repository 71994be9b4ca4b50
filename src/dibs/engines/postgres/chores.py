"""Leadership, and the leader's chores: each step is bounded and checks the term in its own transaction."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import structs

from dibs.core.policy import CHORE_BATCH, KEEP_AUDIT, KEEP_MINUTES, KEEP_WORKERS, TERM
from dibs.core.times import MINUTE
from dibs.engines.decisions.encoding import encode
from dibs.engines.postgres import reranking, retention
from dibs.engines.postgres.retention import Step
from dibs.engines.postgres.transaction import Snapshot, Transaction
from dibs.engines.unreadable import readable
from dibs.engines.values import ChoreRecord, Term

__all__ = ["CHORES", "chores", "do_chore", "fold_counts", "identity_and_chores", "lead", "resign"]

FOLD_BATCH = 50_000

decode_record = msgspec.json.Decoder(ChoreRecord).decode


async def lead(transaction: Transaction, worker: str) -> Term | None:
    """Take or renew the term; a new one has the next number."""
    row = await transaction.row("lead", worker, transaction.now, TERM)
    return None if row is None else Term(row["number"], row["worker"], row["expires_at"])


async def resign(transaction: Transaction, term: Term) -> None:
    await transaction.write("resign", term.number)


async def do_chore(transaction: Transaction, name: str, term: Term) -> ChoreRecord:
    """One step of a chore, unless a later term has begun. The term's row stays locked until the step is done."""
    stored = await transaction.row("term")
    if stored is None or (stored["number"], stored["worker"]) != (term.number, term.worker):
        return ChoreRecord(name=name, refused=True)
    began = time.perf_counter_ns()
    step = await CHORES[name](transaction)
    stored = await transaction.rows("chore", name)
    before = dict(readable(transaction.aside, "chore", [(name, row["record"]) for row in stored], decode_record))
    record = ChoreRecord(
        name=name,
        at=transaction.now,
        took=(time.perf_counter_ns() - began) // 1000,
        done=step.done,
        more=step.more,
        total=step.done + (before[name].total if before else 0),
    )
    await transaction.write("save_chore", name, encode(record))
    return record


async def chores(snapshot: Snapshot) -> list[ChoreRecord]:
    """Each chore's last run, including chores that have not run yet."""
    records = dict(readable(snapshot.aside, "chore", await snapshot.rows("chores"), decode_record))
    return [structs.replace(records.get(name, ChoreRecord(name=name))) for name in CHORES]


async def identity_and_chores(snapshot: Snapshot) -> tuple[str, list[ChoreRecord]]:
    """What `about` reads."""
    return str(await snapshot.value("identity")), await chores(snapshot)


async def fold_counts(transaction: Transaction) -> Step:
    """Add up the changes of counts."""
    folded = await transaction.value("fold", FOLD_BATCH)
    return Step(folded, folded == FOLD_BATCH)


async def prune_workers(transaction: Transaction) -> Step:
    return limited(await transaction.write("prune_workers", transaction.now - KEEP_WORKERS, CHORE_BATCH))


async def prune_audit(transaction: Transaction) -> Step:
    return limited(await transaction.write("prune_audit", transaction.now - KEEP_AUDIT, CHORE_BATCH))


async def prune_stats(transaction: Transaction) -> Step:
    return limited(await transaction.write("prune_stats", transaction.now // MINUTE - KEEP_MINUTES, CHORE_BATCH))


def limited(done: int) -> Step:
    return Step(done, done >= CHORE_BATCH)


CHORES: dict[str, Callable[[Transaction], Awaitable[Step]]] = {
    "rerank": reranking.rerank,
    "fold_counts": fold_counts,
    "make_days": retention.make_days,
    "prune_finished": retention.prune_finished,
    "prune_dead": retention.prune_dead,
    "prune_keys": retention.prune_keys,
    "prune_workers": prune_workers,
    "prune_audit": prune_audit,
    "prune_stats": prune_stats,
    "prune_workflows": retention.prune_workflows,
    "prune_buckets": retention.prune_buckets,
    "prune_orphans": retention.prune_orphans,
}
