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

    id: str
    track: int
    partition: str | None
    batch: int


class Held(Struct, array_like=True, frozen=True):
    """A current lease. `facts` are given only if the task has been asked to stop."""

    key: int
    facts: str | None
    id: str


FENCED = RowDecoder(Fenced, "lease of task")
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
    leases = {settlement.lease.id: settlement.lease.number for _, settlement in part}
    # `is_plain`, without a call for each.
    plain = {
        each.lease.id: (place, each) for place, each in part if each.outcome is Outcome.COMPLETED and not each.metadata
    }
    runs = [run for run in transaction.many(FENCED, "fence", to_json(leases)) if run.id in plain]
    if runs:
        complete(transaction, [plain[run.id][1] for run in runs], runs)
        for key in {run.partition for run in runs if run.partition is not None}:
            transaction.mark_changed(Partition.parse(key))
        if has_edges:
            follow_up(transaction, [run.id for run in runs])
        answers.update((plain[run.id][0], COMPLETED) for run in runs)
    if len(runs) < len(part):
        bulk = {run.id for run in runs}
        others = [each for each in part if each[1].lease.id not in bulk]
        found = at_once(settle_records(transaction, [settlement for _, settlement in others]))
        answers.update((place, answer) for (place, _), answer in zip(others, found, strict=True))


def follow_up(transaction: Transaction, completed: list[str]) -> None:
    """What `Records.flush` does for tasks that end one by one."""
    for task_id in texts_decoder.decode(transaction.value("followed", to_json(completed))):
        transaction.steps.append(Step(StepKind.RELEASE_DEPENDENTS, task_id, State.COMPLETED))


def complete(transaction: Transaction, settlements: list[Settlement], runs: list[Fenced]) -> None:
    """`moves.settled` for completions: rows move to the finished tasks."""
    results = {s.lease.id: (s.lease.number, None if s.result is None else s.result.decode()) for s in settlements}
    ids, day = to_json([*results]), day_of(transaction.now)
    if transaction.catalog.watches:
        transaction.emit_tasks(EventType.TASK_COMPLETED, [*results])
    moved = transaction.run("complete", to_json(results), day, transaction.now)
    assert moved == len(runs), "a completed task did not move"
    deleted = transaction.run("end_runs", ids), transaction.run("purge_tasks", ids)
    assert deleted == (moved, moved), "a completed task stayed behind"
    transaction.release(Totals(run.batch for run in runs))
    transaction.run("save_day", day, min(results), max(results))
    for track, count in Totals(run.track for run in runs).items():
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
        extended = to_json(list(changes.values()))
        transaction.run("extend_leases", extended)
        transaction.run("extend", extended)
    return answers
