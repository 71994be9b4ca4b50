"""Leadership, and the leader's chores: each step is bounded and checks the term in its own transaction."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from msgspec import structs

from dibs.core.policy import CHORE_BATCH, KEEP_AUDIT, KEEP_MINUTES, KEEP_WORKERS, TERM
from dibs.core.times import MINUTE
from dibs.engines.decisions.encoding import to_json
from dibs.engines.sqlite import reranking, retention
from dibs.engines.sqlite.retention import Step
from dibs.engines.sqlite.statements import statement
from dibs.engines.sqlite.transaction import Snapshot, Transaction
from dibs.engines.unreadable import readable
from dibs.engines.values import ChoreRecord, Term

__all__ = ["CHORES", "chores", "do_chore", "identity_and_chores", "is_current", "lead", "record_chore", "resign"]

VACUUM_PAGES = 1000
FREE_SHARE = 0.25
"""A file returns pages only when more than this share of it is free: pages are soon needed again."""

decode_record = msgspec.json.Decoder(ChoreRecord).decode


def lead(transaction: Transaction, worker: str) -> Term | None:
    """Take or renew the term; a new one has the next number."""
    now = transaction.now
    stored = transaction.row("term")
    current = None if stored is None else Term(*stored)
    holds = current is not None and current.expires_at > now
    if current is not None and holds and current.worker != worker:
        return None
    number = 1 if current is None else current.number + (0 if holds else 1)
    term = Term(number, worker, now + TERM)
    transaction.run("save_term", term.number, term.worker, term.expires_at)
    return term


def resign(transaction: Transaction, term: Term) -> None:
    transaction.run("resign", term.number)


def is_current(transaction: Snapshot, term: Term) -> bool:
    """Whether no later term has begun."""
    stored = transaction.row("term")
    return stored is not None and tuple(stored[:2]) == (term.number, term.worker)


def do_chore(transaction: Transaction, name: str, term: Term) -> ChoreRecord:
    """One step of a chore, unless a later term has begun."""
    if not is_current(transaction, term):
        return ChoreRecord(name=name, refused=True)
    transaction.refresh()
    began = time.perf_counter_ns()
    step = CHORES[name](transaction)
    return record_chore(transaction, name, step, time.perf_counter_ns() - began)


def record_chore(transaction: Transaction, name: str, step: Step, nanoseconds: int) -> ChoreRecord:
    stored = transaction.each(statement("chore"), (name,))
    kept = dict(readable(transaction.aside, "chore", [(name, row[0]) for row in stored], decode_record))
    before = kept.get(name, ChoreRecord(name=name))
    record = ChoreRecord(
        name=name,
        at=transaction.now,
        took=nanoseconds // 1000,
        done=step.done,
        more=step.more,
        total=before.total + step.done,
    )
    transaction.run("save_chore", name, to_json(record))
    return record


def chores(snapshot: Snapshot) -> list[ChoreRecord]:
    """Each chore's last run, including chores that have not run yet."""
    records = dict(snapshot.documents("chore", decode_record, "chores"))
    return [structs.replace(records.get(name, ChoreRecord(name=name))) for name in CHORES]


def identity_and_chores(snapshot: Snapshot) -> tuple[str, list[ChoreRecord]]:
    """What `about` reads."""
    return str(snapshot.value("identity")), chores(snapshot)


def prune_workers(transaction: Transaction) -> Step:
    return limited(transaction.run("prune_workers", transaction.now - KEEP_WORKERS, CHORE_BATCH))


def prune_audit(transaction: Transaction) -> Step:
    return limited(transaction.run("prune_audit", transaction.now - KEEP_AUDIT, CHORE_BATCH))


def prune_stats(transaction: Transaction) -> Step:
    return limited(transaction.run("prune_stats", transaction.now // MINUTE - KEEP_MINUTES, CHORE_BATCH))


def limited(done: int) -> Step:
    return Step(done, done >= CHORE_BATCH)


def vacuum(transaction: Transaction) -> Step:
    """Return pages to the filesystem when much of the file is free."""
    execute = transaction.connection.execute
    free = execute("PRAGMA freelist_count").fetchone()[0]
    enough = max(VACUUM_PAGES, FREE_SHARE * execute("PRAGMA page_count").fetchone()[0])
    if free <= enough:
        return Step(0, False)
    execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
    left = execute("PRAGMA freelist_count").fetchone()[0]
    return Step(free - left, left > enough)


def checkpoint(transaction: Transaction) -> Step:
    raise AssertionError("checkpoints can't be made in a transaction: see Store.checkpoint")


CHORES: dict[str, Callable[[Transaction], Step]] = {
    "rerank": reranking.rerank,
    "prune_finished": retention.prune_finished,
    "prune_dead": retention.prune_dead,
    "prune_keys": retention.prune_keys,
    "prune_workers": prune_workers,
    "prune_audit": prune_audit,
    "prune_stats": prune_stats,
    "prune_workflows": retention.prune_workflows,
    "prune_buckets": retention.prune_buckets,
    "prune_shares": retention.prune_shares,
    "checkpoint": checkpoint,
    "vacuum": vacuum,
}
