"""enqueue: decide each item in order, then store what was accepted, in one transaction.

Tasks that nothing can stand in the way of are stored by one statement (`functions/enqueue.sql`).
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence

from dibs.core.graph import Verdict, inherited_within
from dibs.core.limits import Scope, spend
from dibs.core.moves import admit, replaced
from dibs.core.states import ENDED, State
from dibs.core.task import NewTask, TaskRecord
from dibs.engines.base import (
    ACCEPTED,
    REJECTED,
    Counter,
    EnqueueAnswer,
    EnqueueOutcome,
    NewWorkflow,
)
from dibs.engines.postgres.catalog import Missing, Stale
from dibs.engines.postgres.deciding import Known, decide, worst_verdict
from dibs.engines.postgres.records import TASK_WIDTH, Records, gate_of
from dibs.engines.postgres.rows import columns, partition_key, task_columns, to_json
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.postgres.waiting import end, inherit_anew

__all__ = ["enqueue"]


async def enqueue(
    transaction: Transaction, tasks: Sequence[NewTask], atomic: bool, workflow: NewWorkflow | None = None
) -> list[EnqueueAnswer]:
    known = await Known.about(transaction, tasks)
    answers = [decide(known, new, transaction.now) for new in tasks]
    if refused(transaction, tasks, answers, atomic):
        await hold_keys(known, [])
        abandoned = EnqueueOutcome.ABANDONED
        return [a if a.outcome not in ACCEPTED else EnqueueAnswer(abandoned, a.id) for a in answers]
    if workflow is not None:
        await transaction.write("add_workflow", workflow.id, workflow.name, transaction.now)
    await store(known)
    return answers


def refused(transaction: Transaction, tasks: Sequence[NewTask], answers: list[EnqueueAnswer], atomic: bool) -> bool:
    """Count what was not simply stored; True if the whole batch is refused for it."""
    gives_up = atomic and any(answer.outcome not in ACCEPTED for answer in answers)
    for new, answer in zip(tasks, answers, strict=True):
        if answer.outcome in REJECTED:
            transaction.tally(Counter.REJECTED, new.queue)
        elif answer.outcome is EnqueueOutcome.DUPLICATE and not gives_up:
            transaction.tally(Counter.DUPLICATES, new.queue)
    return gives_up


async def store(known: Known) -> None:
    """Write what has been decided."""
    transaction, staged = known.transaction, known.staged
    unmade = sorted({new.queue for new in staged.values()} - {*transaction.catalog.queues})
    if unmade:
        raise Missing(unmade, [])
    waiting = [new for new in staged.values() if new.after]
    heirs = heirs_of(known) if waiting else {}
    records = [admit_new(known, new, heirs.get(new.id, 0)) for new in staged.values()]
    await write_new(known, records)
    if waiting:
        await write_edges(known, {record.id: record.urgency for record in records}, waiting)
    await replace(known)
    holders = [(new, new.id) for new in staged.values() if new.key is not None] + known.replacements
    await hold_keys(known, holders)
    await spend_tokens(known)
    # Ended ones inherit nothing, and two who share the lock on one would each wait for the other to have it alone.
    unended = {each for each, state in known.states.items() if state not in ENDED}
    needed = {edge.id: None for new in waiting for edge in new.after if edge.id not in staged and edge.id in unended}
    if needed:
        await inherit_anew(transaction, list(needed))


def heirs_of(known: Known) -> dict[str, int]:
    """What new tasks inherit from each other."""
    staged, states = known.staged, known.states
    edges = {new.id: [edge.id for edge in new.after] for new in staged.values() if states[new.id] is State.BLOCKED}
    priorities = {new.id: new.priority for new in staged.values() if states[new.id] not in ENDED}
    return inherited_within(list(staged), edges, priorities)


def admit_new(known: Known, new: NewTask, inherited: int) -> TaskRecord:
    blocked = bool(new.after) and worst_verdict(known, new)[0] is not Verdict.GO
    settings = known.transaction.settings(new.queue)
    return admit(new, settings, known.transaction.now, blocked=blocked, inherited=inherited)


async def write_new(known: Known, records: list[TaskRecord]) -> None:
    """Store new tasks; those whose edges end them at once go on to where ended ones are kept."""
    transaction = known.transaction
    doomed = Records(transaction)
    numbers = transaction.streams_of(records)
    followed = {edge.id for new in known.staged.values() for edge in new.after}
    rows: list[tuple[object, ...]] = []
    members: Tally[str] = Tally()
    for record in records:
        new = known.staged[record.id]
        transaction.tally(Counter.ENQUEUED, new.queue)
        transaction.tell(new.queue, known.states[new.id])
        if new.workflow is not None:
            members[new.workflow] += 1
        if known.states[new.id] in ENDED:
            end(transaction, doomed, record, *worst_verdict(known, new))
            continue
        stream = numbers[transaction.key_of(record)]
        gate = gate_of(transaction, record, stream)
        rows.append((*task_columns(record, stream, gate), record.id in followed))
        if record.state is State.PENDING:
            transaction.count_pending(stream, record.share, 1)
        else:
            transaction.count(record.state, stream, 1)
        if gate == 2 and record.partition is not None:
            transaction.touch(record.queue, partition_key(record.queue, record.partition))
    if rows and await transaction.write("insert_tasks", *columns(rows, TASK_WIDTH + 1)) != len(rows):
        raise Stale  # somebody has stored the same task since we looked
    await doomed.flush()
    if members:
        await transaction.write("count_members", list(members), list(members.values()))


async def write_edges(known: Known, urgencies: dict[str, int], tasks: list[NewTask]) -> None:
    """The edges of new tasks; open are those of tasks that wait, to prerequisites that have not ended."""
    states = known.states
    edges = [
        (
            new.id, slot, edge.id, edge.rule, urgencies[new.id],
            states[new.id] is State.BLOCKED and states[edge.id] not in ENDED,
        )
        for new in tasks
        for slot, edge in enumerate(new.after)
    ]  # fmt: skip
    await known.transaction.write("save_edges", *columns(edges, 6))
    prerequisites = sorted({edge.id for new in tasks for edge in new.after if edge.id not in known.staged})
    if prerequisites:
        await known.transaction.write("follow", prerequisites)


async def replace(known: Known) -> None:
    """Waiting tasks get the content of newer ones with their key."""
    if not known.replacements:
        return
    transaction = known.transaction
    records = Records(transaction)
    await records.load(task_id for _, task_id in known.replacements)
    for new, task_id in known.replacements:
        record = records.get(task_id)
        assert record is not None
        records.put(*replaced(record, new, transaction.settings(record.queue), transaction.now))
        transaction.tell(record.queue, record.state)
    await records.flush()


async def hold_keys(known: Known, holders: list[tuple[NewTask, str]]) -> None:
    """Keys stand for the tasks that were stored; those that were only held while we decided are free again."""
    now = known.transaction.now
    rows = {(new.queue, to_json(new.key)): (task_id, new.fingerprint, now + new.window) for new, task_id in holders}
    if rows:
        await known.transaction.write("save_keys", *columns([(*key, *row) for key, row in rows.items()], 5))
    free = known.new_keys - {*rows}
    if free:
        await known.transaction.write("delete_keys", *columns(sorted(free), 2))


async def spend_tokens(known: Known) -> None:
    """What clients have enqueued counts against what they may."""
    rows = []
    for (queue, client), full in known.buckets.items():
        bucket = spend(full, known.spent[queue, client])
        rows.append((queue, Scope.CLIENT, client, bucket.level, bucket.at, None))
    if rows:
        await known.transaction.write("save_buckets", *columns(rows, 6))
