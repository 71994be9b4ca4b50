"""settle and extend: each write compares the lease number."""

from __future__ import annotations

from collections import Counter as Totals
from collections import defaultdict, deque
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from dibs.core.states import State
from dibs.core.task import Outcome, Settlement
from dibs.core.times import END, Instant, day_of
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.settling import Part, held_answer, without_repeats
from dibs.engines.decisions.steps import Step, StepKind
from dibs.engines.figures import Counter
from dibs.engines.port import at_once
from dibs.engines.sqlite.row_decoder import RowDecoder
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.values import COMPLETED, ExtendAnswer, ExtendOutcome, Extension, SettleAnswer
from dibs.engines.verbs.settling import settle_records
from dibs.observe.events import EventType

__all__ = ["extend", "settle"]


class Fenced(Struct, array_like=True, frozen=True):
    """A run whose lease is current."""

    key: int
    track: int
    partition: str | None
    id: str


class Held(Struct, array_like=True, frozen=True):
    """A current lease. `facts` are given only if the task has been asked to stop."""

    key: int
    facts: str | None
    batch: int | None
    id: str


class Size(Struct, array_like=True, frozen=True):
    batch: int
    tasks: int


class Kept(Struct, array_like=True):
    """What is written of a lease that is extended. It says itself when it ends, or its batch does."""

    id: str
    number: int
    expires_at: Instant | None
    batch: int | None
    progress: str | None


FENCED = RowDecoder(Fenced, "lease of task", 3)
HELD = RowDecoder(Held, "lease of task", 3)
SIZES = RowDecoder(Size, "size of batch", 0)
SMALLEST_BATCH = 4
"""Fewer leases are written one by one."""

texts_decoder = msgspec.json.Decoder(list[str])


def settle(transaction: Transaction, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
    generation, has_edges = transaction.row("settle_state")
    transaction.refresh(generation)
    answers: dict[int, SettleAnswer] = {}
    for part in without_repeats(settlements):
        settle_part(transaction, part, answers, bool(has_edges))
    if len(transaction.steps) > 1:  # in the order in which the ends were reported
        places = {settlement.lease.id: i for i, settlement in enumerate(settlements)}
        transaction.steps = deque(sorted(transaction.steps, key=lambda step: places.get(step.about, 0)))
    return [answers[i] for i in range(len(settlements))]


def settle_part(transaction: Transaction, part: Part, answers: dict[int, SettleAnswer], has_edges: bool) -> None:
    """Plain completions with a current lease are written in bulk, the rest record by record."""
    leases = [(settlement.lease.id, settlement.lease.number) for _, settlement in part]
    fenced = transaction.many(FENCED, "fence", to_json(leases))
    # `is_plain`, without a call for each.
    runs = [run for run in fenced if (each := part[run.key][1]).outcome is Outcome.COMPLETED and not each.metadata]
    if runs:
        completions = [part[run.key][1] for run in runs]
        complete(transaction, completions, Totals(run.track for run in runs))
        for key in {run.partition for run in runs if run.partition is not None}:
            transaction.mark_changed(Partition.parse(key))
        if has_edges:
            follow_up(transaction, [settlement.lease.id for settlement in completions])
        answers.update((part[run.key][0], COMPLETED) for run in runs)
    if len(runs) < len(part):
        bulk = {run.key for run in runs}
        others = [each for key, each in enumerate(part) if key not in bulk]
        found = at_once(settle_records(transaction, [settlement for _, settlement in others]))
        answers.update((place, answer) for (place, _), answer in zip(others, found, strict=True))


def follow_up(transaction: Transaction, completed: list[str]) -> None:
    """What `Records.flush` does for tasks that end one by one."""
    for task_id in texts_decoder.decode(transaction.value("followed", to_json(completed))):
        transaction.steps.append(Step(StepKind.RELEASE_DEPENDENTS, task_id, State.COMPLETED))


def complete(transaction: Transaction, settlements: list[Settlement], tracks: Totals[int]) -> None:
    """`moves.settled` for completions: rows move to the finished tasks."""
    results = [None if s.result is None else s.result.decode() for s in settlements]
    runs = to_json([(s.lease.id, s.lease.number, r) for s, r in zip(settlements, results, strict=True)])
    day = day_of(transaction.now)
    if transaction.catalog.watches:
        transaction.emit_tasks(EventType.TASK_COMPLETED, [settlement.lease.id for settlement in settlements])
    moved = transaction.run("complete", runs, day, transaction.now)
    assert moved == len(settlements), "a completed task did not move"
    deleted = transaction.run("complete_delete", runs)
    assert deleted == len(settlements), "a completed task stayed behind"
    ids = [settlement.lease.id for settlement in settlements]
    transaction.run("save_day", day, min(ids), max(ids))
    for track, count in tracks.items():
        transaction.count(State.RUNNING, track, -count)
        transaction.count(State.COMPLETED, track, count)
        transaction.count(Counter.COMPLETIONS, track, count)
        transaction.tell(transaction.catalog.tracks[track].queue, State.COMPLETED)


def extend(transaction: Transaction, extensions: Sequence[Extension]) -> list[ExtendAnswer]:
    answers = [ExtendAnswer(ExtendOutcome.LOST)] * len(extensions)
    leases = to_json([(each.lease.id, each.lease.number) for each in extensions])
    kept: dict[str, Kept] = {}
    for held in transaction.many(HELD, "current_leases", leases):
        extension = extensions[held.key]
        answer = held_answer(extension, transaction.now, held.facts)
        progress = None if extension.progress is None else to_json((extension.progress, extension.message))
        task_id, number = extension.lease.id, extension.lease.number
        if progress is None and task_id in kept:  # the same lease twice: the later one wins, progress stays
            progress = kept[task_id].progress
        kept[task_id] = Kept(task_id, number, answer.expires_at, held.batch, progress)
        answers[held.key] = answer
    if kept:
        changes = by_batch(transaction, list(kept.values()))
        if changes:
            transaction.run("extend", to_json(changes))
    return answers


def by_batch(transaction: Transaction, kept: list[Kept]) -> list[Kept]:
    """Extends the leases that have their end in common; returns what is to be written of tasks.

    Leases that are extended together by the same span are a batch from then on: one row says when they end, and the
    next time only that is written. A batch is extended if half of it or more is asked for: the others leave it, with
    the end that they had. Else those that are asked for leave it, for a new one, as if they had been in none.
    """
    members: defaultdict[int, list[Kept]] = defaultdict(list)
    loose: defaultdict[Instant | None, list[Kept]] = defaultdict(list)
    for each in kept:
        if each.batch is None:
            loose[each.expires_at].append(each)
        else:
            members[each.batch].append(each)
    extended: list[tuple[int, Instant | None]] = []
    changes: list[Kept] = []
    if members:
        for size in transaction.many(SIZES, "batch_sizes", to_json(list(members))):
            tasks = members[size.batch]
            ends = {each.expires_at for each in tasks}
            if 2 * len(tasks) >= size.tasks and len(tasks) >= SMALLEST_BATCH and len(ends) == 1:
                if len(tasks) < size.tasks:
                    transaction.run("leave_batch", size.batch, to_json([each.id for each in tasks]))
                extended.append((size.batch, ends.pop()))
                changes += [each for each in tasks if each.progress is not None]
            else:
                for each in tasks:
                    loose[each.expires_at].append(each)
    if extended:
        transaction.run("extend_batches", to_json(extended))
    for each in changes:
        each.expires_at = END
    for expires_at, tasks in loose.items():
        batch = transaction.value("new_batch", expires_at) if len(tasks) >= SMALLEST_BATCH else None
        for each in tasks:
            each.batch, each.expires_at = batch, expires_at if batch is None else END
        changes += tasks
    return changes
