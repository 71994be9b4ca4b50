"""Health checks and backups."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dibs.core.policy import CHECKED_MINUTES, CHECKED_ROWS
from dibs.core.states import State
from dibs.core.times import MINUTE
from dibs.engines.catalog import Catalog
from dibs.engines.port import at_once
from dibs.engines.sqlite.chores import CHORES
from dibs.engines.sqlite.connections import connect, connect_to_read, is_read_only, resting_state
from dibs.engines.sqlite.errors import translated
from dibs.engines.sqlite.retention import log_odd_days, pruned_queues
from dibs.engines.sqlite.row_decoder import RowDecoder
from dibs.engines.sqlite.rows import BEYOND
from dibs.engines.sqlite.snapshot import Snapshot, decoder_of
from dibs.engines.sqlite.statements import row_by_row
from dibs.engines.unreadable import UnreadableReport, readable
from dibs.engines.values import Finding, Level
from dibs.engines.verbs.chores import chores
from dibs.engines.verbs.dependencies import EDGES_OF
from dibs.engines.verbs.enqueueing import KEYS
from dibs.engines.verbs.reading import audit, decode_entry, stats
from dibs.engines.verbs.retention import BUCKETS_AFTER
from dibs.engines.verbs.schedules import schedules
from dibs.engines.verbs.searching import read_tasks
from dibs.engines.verbs.steps import read_steps
from dibs.engines.verbs.workers import workers
from dibs.engines.verbs.workflows import workflows
from dibs.errors import StoreBusy, UsageError

__all__ = ["backup", "check", "writable"]

BACKUP_PAGES = 1000
BACKUP_PAUSE = 0.005
LARGE_LOG = 64 * 1024 * 1024
CHUNK = 1000

DAYS = RowDecoder(tuple[int, str, str], "day")


def check(snapshot: Snapshot, path: Path, synchronous: str, durability: str, full: bool) -> list[Finding]:
    """The health of the store. `full` reads all of it."""
    snapshot.refresh()
    findings = [
        Finding(Level.OK, "durability", durability),
        Finding(Level.OK, "SQLite", f"{sqlite3.sqlite_version}, synchronous={synchronous}"),
        *log_size(path),
    ]
    findings += unreadable_rows(snapshot, full)
    if full:
        findings += [*integrity(snapshot.connection), *counts_agree(snapshot), *shares_agree(snapshot)]
    return findings


def writable(read_only: bool) -> Iterator[Finding]:
    if read_only:
        yield Finding(
            Level.WARNING, "read-only", "the file, or the directory it is in, can't be written: no task can run"
        )


def unreadable_rows(snapshot: Snapshot, full: bool) -> Iterator[Finding]:
    """Rows that can't be read: in small tables, and among the oldest unfinished tasks, or (`full`) everywhere."""
    found = UnreadableReport()
    look = Snapshot(snapshot.connection, Catalog(found), snapshot.now)
    look.refresh()
    at_once(read_tasks(look, full))
    at_once(workers(look))
    at_once(schedules(look))
    at_once(chores(look, CHORES))
    at_once(audit(look, CHECKED_ROWS))
    minute = look.now // MINUTE
    at_once(stats(look, None, 0 if full else minute - CHECKED_MINUTES, minute))
    at_once(workflows(look, None, CHECKED_ROWS, None))
    look_at_figures(look)
    at_once(read_steps(look, CHECKED_ROWS))
    if full:
        read_tables(look)
    yield from found.findings()


def look_at_figures(look: Snapshot) -> None:
    """Counts, days, and the clocks of fair queues; and ids that no search reaches."""
    look.all_counts()
    log_odd_days(look)
    for day, lowest, highest, pruned in look.each(row_by_row("days"), ()):
        DAYS.one_by_one([(day, lowest, highest)], look.aside)
        pruned_queues(look, day, pruned)
    for (task_id,) in look.each(row_by_row("ids_beyond"), (BEYOND, CHECKED_ROWS)):
        look.aside.log_once("id of a task", task_id, "it is not text")
    for queue in look.catalog.queues.values():
        if queue.settings.fair:
            at_once(look.clock(queue.name))


def read_tables(look: Snapshot) -> None:
    """Tables that may be long: history, edges, keys, token buckets."""
    for rows in all_rows(look, "all_history", "", -1):
        entries = [(f"{task} {n}", entry) for task, n, entry in rows]
        for _ in readable(look.aside, "history entry of task", entries, decode_entry):
            pass
    for rows in all_rows(look, "all_edges", "", -1):
        decoder_of(EDGES_OF).one_by_one(rows, look.aside)
    for rows in all_rows(look, "all_keys", "", ""):
        decoder_of(KEYS).one_by_one(rows, look.aside)
    for rows in all_rows(look, "buckets_after", "", "", ""):
        decoder_of(BUCKETS_AFTER).one_by_one(rows, look.aside)


def all_rows(snapshot: Snapshot, name: str, *after: Any) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of a table as stored, in chunks, by the first columns of each."""
    while rows := snapshot.each(row_by_row(name), (*after, CHUNK)):
        yield rows
        after = rows[-1][: len(after)]


def log_size(path: Path) -> Iterator[Finding]:
    log = path.with_name(path.name + "-wal")
    size = log.stat().st_size if log.exists() else 0
    level = Level.WARNING if size > LARGE_LOG else Level.OK
    hint = ": a long-running reader keeps it from being checkpointed" if level is Level.WARNING else ""
    yield Finding(level, "write-ahead log", f"{size / 2**20:.1f} MiB{hint}")


def integrity(connection: sqlite3.Connection) -> Iterator[Finding]:
    problems = [row[0] for row in connection.execute("PRAGMA integrity_check(20)").fetchall()]
    if problems == ["ok"]:
        yield Finding(Level.OK, "integrity", "the whole file was read and is sound")
    for problem in problems:
        if problem != "ok":
            yield Finding(Level.ERROR, "integrity", problem)


def counts_agree(snapshot: Snapshot) -> Iterator[Finding]:
    """Whether the counts kept with each move agree with counting."""
    states = set(State)
    kept = {(what, whose): n for what, whose, n in snapshot.all_counts() if what in states}
    places = ("dibs_unfinished", "dibs_dead", "dibs_finished")
    query = " UNION ALL ".join(f"SELECT state, track, count(*) FROM {place} GROUP BY 1, 2" for place in places)  # noqa: S608  # our own names
    counted = {(state, track): n for state, track, n in snapshot.each(query, ())}
    if kept == counted:
        yield Finding(Level.OK, "counts", f"{sum(counted.values()):,} tasks, as counted")
        return
    for key in sorted(kept.keys() | counted.keys(), key=str):
        if kept.get(key, 0) != counted.get(key, 0):
            track = snapshot.catalog.tracks.get(key[1]) if isinstance(key[1], int) else None
            queue = "an unknown queue" if track is None else track.queue
            detail = f"{queue}: {kept.get(key, 0):,} {key[0]} kept, {counted.get(key, 0):,} counted"
            yield Finding(Level.ERROR, "counts", detail)


def shares_agree(snapshot: Snapshot) -> Iterator[Finding]:
    """Whether the counts of fair queues agree with counting; reported only if they don't."""
    query = """
        SELECT s.queue, t.share, count(*) FROM dibs_pending AS t JOIN dibs_tracks AS s ON s.track = t.track
        WHERE s.fair = 1 GROUP BY 1, 2
    """
    counted = {(queue, share): n for queue, share, n in snapshot.each(query, ())}
    found = snapshot.each("SELECT queue, share, pending FROM dibs_shares WHERE pending <> 0", ())
    kept = {(queue, share): n for queue, share, n in found}
    for key in sorted(kept.keys() | counted.keys(), key=str):
        if kept.get(key, 0) != counted.get(key, 0):
            detail = f"{key[0]}: {kept.get(key, 0)} pending of tenant {key[1]!r} kept, {counted.get(key, 0):,} counted"
            yield Finding(Level.ERROR, "shares", detail)


def backup(path: Path, target: Path, busy_timeout: float) -> None:
    """A consistent copy, made in chunks while others write."""
    if target.exists() and (target.is_dir() or target.stat().st_size > 0):
        raise UsageError(f"{target} exists already. Give the backup a name of its own.")
    if not target.parent.is_dir():
        raise UsageError(f"the directory {target.parent} does not exist.")
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        with translated(path):
            copy_file(path, partial, busy_timeout)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def copy_file(path: Path, target: Path, busy_timeout: float) -> None:
    resting = resting_state(path) if is_read_only(path) else None
    source = connect_to_read(path, busy_timeout)
    copy = connect(target, busy_timeout)
    try:
        # One read transaction for the whole copy, so that it does not start over when others commit.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        source.backup(copy, pages=BACKUP_PAGES, sleep=BACKUP_PAUSE)
    finally:
        copy.close()
        source.close()
    if resting is not None and resting != resting_state(path):  # it was read without locks
        raise StoreBusy(f"{path} was written to by others while it was copied: try again.")
