"""settle and extend: each write compares the lease number."""

from __future__ import annotations

from collections import Counter as Totals
from collections import deque
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from dibs.core.states import State
from dibs.core.task import Outcome, Settlement
from dibs.core.times import Instant, day_of
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
    id: str


FENCED = RowDecoder(Fenced, "lease of task", 3)
HELD = RowDecoder(Held, "lease of task", 2)
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
    changes: dict[str, tuple[str, int, Instant | None, str | None]] = {}
    for held in transaction.many(HELD, "current_leases", leases):
        extension = extensions[held.key]
        answer = held_answer(extension, transaction.now, held.facts)
        progress = None if extension.progress is None else to_json((extension.progress, extension.message))
        task_id, number = extension.lease.id, extension.lease.number
        if progress is None and task_id in changes:  # the same lease twice: the later one wins, progress stays
            progress = changes[task_id][3]
        changes[task_id] = (task_id, number, answer.expires_at, progress)
        answers[held.key] = answer
    if changes:
        transaction.run("extend", to_json(list(changes.values())))
    return answers
