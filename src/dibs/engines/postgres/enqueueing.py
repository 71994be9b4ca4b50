"""enqueue: decide each item in order, then store what was accepted, in one transaction.

Tasks that need no decision are stored by `enqueue_fast`, in one statement.
"""

from __future__ import annotations

from collections import Counter as Totals
from collections.abc import Sequence

import msgspec
from msgspec import structs

from dibs.core.limits import Bucket, Scope
from dibs.core.states import ENDED, State
from dibs.core.task import NewTask, TaskRecord
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.enqueueing import HeldKey, Known, answer_all, replace_all
from dibs.engines.decisions.partition import Partition
from dibs.engines.port import Port
from dibs.engines.postgres.catalog import Missing
from dibs.engines.postgres.rows import columns, task_columns
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.sql_transaction import TaskMoved
from dibs.engines.unreadable import state_or
from dibs.engines.values import Counter, EnqueueAnswer, NewWorkflow
from dibs.engines.verbs.dependencies import inherit_again
from dibs.engines.verbs.records import Records

__all__ = ["decide", "enqueue", "enqueue_inside", "store"]

key_decoder = msgspec.json.Decoder(str)


async def enqueue(
    transaction: Transaction, tasks: Sequence[NewTask], atomic: bool, workflow: NewWorkflow | None = None
) -> list[EnqueueAnswer]:
    known, answers = await decide(transaction, tasks, atomic)
    if known.refused:
        return answers
    if workflow is not None:
        await transaction.write("add_workflow", workflow.id, workflow.name, transaction.now)
    await store(transaction, known)
    return answers


async def enqueue_inside(port: Port, tasks: Sequence[NewTask]) -> list[EnqueueAnswer]:
    """`enqueue` in the middle of another verb, all tasks or none."""
    assert isinstance(port, Transaction)
    await port.flush()  # counts decide whether a queue is full
    return await enqueue(port, tasks, atomic=True)


async def decide(transaction: Transaction, tasks: Sequence[NewTask], atomic: bool) -> tuple[Known, list[EnqueueAnswer]]:
    """What is known of these tasks, with what was decided about them, and the answers."""
    known = await known_about(transaction, tasks)
    answers = answer_all(transaction, known, atomic)
    if known.refused:
        await hold_keys(transaction, known, {})
    return known, answers


async def known_about(transaction: Transaction, tasks: Sequence[NewTask]) -> Known:
    """Lock and read what decides about these tasks: keys, prerequisites, clients' buckets."""
    for new in tasks:
        transaction.check_queue(new.queue)
    known = Known(tasks, transaction.catalog.queues, transaction.now)
    await lock_keys(transaction, known)
    needed = sorted({edge.id for new in tasks for edge in new.after})
    if needed:
        rows = await transaction.rows("lock_needed", needed)
        known.states = {str(row["id"]): state_or(row["state"], State.PENDING) for row in rows}
    found = await transaction.find_rows([new.id for new in tasks])
    known.know(transaction.decoded(row) for row in found.values())
    for queue in known.bounded():
        tracks = [track.number for track in transaction.catalog.of_queue(queue)]
        known.depths[queue] = await transaction.value("depth", tracks)
    for queue, client, limit in known.limited_clients():
        await transaction.write("make_bucket", queue, Scope.CLIENT, client)
        level, at = await transaction.row("lock_bucket", queue, Scope.CLIENT, client)
        known.know_bucket(queue, client, limit, None if level < 0 else Bucket(level, at))
    return known


async def lock_keys(transaction: Transaction, known: Known) -> None:
    """Lock the wanted keys. Free keys are held from here on, so that no other transaction takes them first."""
    wanted = sorted((queue, to_json(key)) for queue, key in known.wanted_keys())
    if not wanted:
        return
    for row in await transaction.rows("lock_keys", *columns(wanted, 2)):
        held = HeldKey(str(row["task"]), row["fingerprint"], row["held_until"])
        known.keys[row["queue"], key_decoder.decode(row["key"])] = held
    holders = Records(transaction)
    await holders.load(held.task for held in known.keys.values())
    known.records |= holders.current
    known.unreadable |= holders.unreadable


async def store(transaction: Transaction, known: Known) -> None:
    """Write what was decided."""
    staged = known.staged
    unmade = sorted({new.queue for new in staged.values()} - {*transaction.catalog.queues})
    if unmade:
        raise Missing(unmade, [])
    heirs = known.heirs()
    records = [known.admit(new, heirs) for new in staged.values()]
    await write_new(transaction, known, records)
    waiting = [new for new in staged.values() if new.after]
    if waiting:
        await write_edges(transaction, known, {record.id: record.urgency for record in records}, waiting)
    if known.replacements:
        replaced = Records(transaction)
        await replaced.load(task_id for _, task_id in known.replacements)
        replace_all(transaction, known, replaced)
        await replaced.flush()
    await hold_keys(transaction, known, known.held_keys())
    if spent := known.spent_buckets():
        await transaction.write("save_buckets", *columns(spent, 6))
    # Without ended ones: two transactions that share a lock on one would deadlock when both want it exclusively.
    if needed := known.needed():
        await inherit_again(transaction, needed)


async def write_new(transaction: Transaction, known: Known, records: list[TaskRecord]) -> None:
    """Store new tasks; those whose edges end them at once move to the ended ones."""
    doomed = Records(transaction)
    numbers = transaction.tracks_of(records)
    followed = {edge.id for new in known.staged.values() for edge in new.after}
    rows: list[tuple[object, ...]] = []
    transaction.place(records)
    members: Totals[str] = Totals()
    for record in records:
        new = known.staged[record.id]
        transaction.count_event(Counter.ENQUEUED, new.queue)
        transaction.tell(new.queue, known.states[new.id])
        if new.spec.workflow is not None:
            members[new.spec.workflow] += 1
        if known.states[new.id] in ENDED:
            doomed.put(*known.end(new, record))
            continue
        track = numbers[transaction.key_of(record)]
        gate = transaction.gate_of(record, track)
        rows.append((*task_columns(record, track, gate), record.id in followed))
        if record.state is State.PENDING:
            transaction.count_pending(track, record.share, 1)
        else:
            transaction.count(record.state, track, 1)
        if gate == 2 and record.spec.partition is not None:
            transaction.mark_changed(Partition(record.queue, record.spec.partition))
    if rows and await transaction.write("insert_tasks", rows) != len(rows):
        raise TaskMoved  # another transaction has stored the same task since
    await doomed.flush()
    if members:
        await transaction.write("count_members", list(members), list(members.values()))


async def write_edges(transaction: Transaction, known: Known, urgencies: dict[str, int], tasks: list[NewTask]) -> None:
    await transaction.write("save_edges", *columns(known.edges(tasks, urgencies), 6))
    prerequisites = sorted({edge.id for new in tasks for edge in new.after if edge.id not in known.staged})
    if prerequisites:
        await transaction.write("follow", prerequisites)


async def hold_keys(transaction: Transaction, known: Known, held: dict[tuple[str, str], HeldKey]) -> None:
    """Give the keys to the stored tasks; free those that were only held for the decision."""
    if held:
        rows = [(queue, to_json(key), *structs.astuple(each)) for (queue, key), each in held.items()]
        await transaction.write("save_keys", *columns(rows, 5))
    free = sorted((queue, to_json(key)) for queue, key in known.wanted_keys() - {*known.keys} - {*held})
    if free:
        await transaction.write("delete_keys", *columns(free, 2))
