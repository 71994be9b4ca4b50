"""cancel, edit, replay and purge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from msgspec import Struct, structs

from dibs.core.moves import cancelled, edited, replayed
from dibs.core.states import ENDED, WAITING, State
from dibs.core.task import Edit, QueueState, TaskRecord
from dibs.core.times import Instant
from dibs.engines.decisions.audits import Difference
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.records import Ledger, Place
from dibs.engines.decisions.steps import Step, StepKind
from dibs.engines.decisions.transaction import Transaction
from dibs.engines.topics import work_topic, worker_topic
from dibs.engines.values import Act, Changed, Replay

__all__ = [
    "Acted",
    "PurgeRow",
    "act_on_each",
    "alike",
    "cancel_one",
    "edit_one",
    "key_holders",
    "purge_one",
    "replay_one",
]


Acted = tuple[list[Changed], list[Difference]]
"""The answers to acts, and what has changed: a repeat changes nothing."""


def alike(acts: Sequence[Act]) -> Iterator[list[Act]]:
    """Consecutive acts that differ only in their task: they are done together, and are one entry in the audit log."""
    whatever = Edit(id="")
    same = groupby(acts, lambda act: whatever if isinstance(act, Edit) else structs.replace(act, id=""))
    return (list(group) for _, group in same)


def act_on_each(
    records: Ledger,
    acts: Sequence[Any],
    one: Callable[[Any], Changed],
    compare: Callable[[str, TaskRecord | None, TaskRecord | None], Difference],
) -> Acted:
    """Do `one` for each act; `compare` says what that has changed."""
    answers, changed = [], []
    for act in acts:
        before = records.get(act.id)
        answers.append(one(act))
        after = records.get(act.id)
        if after is not before:
            changed.append(compare(act.id, before, after))
    return answers, changed


def cancel_one(transaction: Transaction, records: Ledger, task_id: str, note: str, actor: str) -> Changed:
    record = records.get(task_id)
    if record is None:
        return missing(records, task_id)
    if record.state in ENDED:
        return Changed.WRONG_STATE
    if record.state is State.RUNNING:
        if record.cancel_reason is None:
            records.put(*cancelled(record, note, actor, transaction.now))
        transaction.topics.add(worker_topic(record.worker or ""))
        return Changed.REQUESTED
    after, entry = cancelled(record, note, actor, transaction.now)
    records.put(after, entry)
    transaction.tell(record.queue, after.state)
    return Changed.DONE


def edit_one(transaction: Transaction, records: Ledger, change: Edit, actor: str) -> Changed:
    record = records.get(change.id)
    if record is None:
        return missing(records, change.id)
    if record.state not in WAITING:
        return Changed.WRONG_STATE
    after, entry = edited(record, change, transaction.settings(record.queue), actor, transaction.now)
    if entry is None:
        return Changed.UNCHANGED
    records.put(after, entry)
    transaction.topics.add(work_topic(record.queue))
    return Changed.DONE


def replay_one(transaction: Transaction, records: Ledger, act: Replay, actor: str) -> Changed:
    record = records.get(act.id)
    if record is None:
        return missing(records, act.id)
    if record.state is not State.DEAD:
        return Changed.WRONG_STATE
    target = transaction.make_queue(act.queue or record.queue)
    if target.state is QueueState.DRAINING:
        return Changed.DRAINING
    records.put(*replayed(record, target.settings, act.queue, act.reset, actor, transaction.now))
    transaction.topics.add(work_topic(target.name))
    return Changed.DONE


def key_holders(records: Ledger) -> dict[str, tuple[str, str, str]]:
    """By id, the (queue, key, id) of the tasks that have a key."""
    keys = ((record.queue, record.spec.key, record.id) for record in records.current.values())
    return {task_id: (queue, key, task_id) for queue, key, task_id in keys if key is not None}


def purge_one(records: Ledger, task_id: str) -> Changed:
    record = records.get(task_id)
    if record is None:
        return missing(records, task_id)
    if record.state not in ENDED:
        return Changed.WRONG_STATE
    records.remove(task_id)
    return Changed.DONE


def missing(records: Ledger, task_id: str) -> Changed:
    """The answer about a task that has no record."""
    return Changed.UNREADABLE if task_id in records.unreadable else Changed.UNKNOWN


class PurgeRow(Struct, array_like=True, frozen=True):
    """What the columns tell of a task that is to be purged although it can't be read."""

    id: str
    place: Place
    state: object
    track: object
    share: str
    partition: object
    day: int
    lease_expires_at: object

    def may_go(self, now: Instant) -> bool:
        """False while a process that can read it may be running it."""
        held = self.lease_expires_at
        return not (self.state == State.RUNNING and isinstance(held, int) and held > now)

    def follow_ups(self) -> list[Step]:
        """Its dependents continue as if it had been cancelled."""
        left = [Step(StepKind.DELETE_EDGES, to_json([self.id]))]
        return (
            left
            if self.place is not Place.TASKS
            else [Step(StepKind.RELEASE_DEPENDENTS, self.id, State.CANCELLED), *left]
        )
