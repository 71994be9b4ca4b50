"""enqueue: decide each item in order, then store what was accepted, in one transaction."""

from __future__ import annotations

from collections import Counter as Totals
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import msgspec
from msgspec import Struct, structs

from dibs.core.limits import Scope
from dibs.core.priority import rank
from dibs.core.settings import resolve
from dibs.core.states import ENDED, State
from dibs.core.task import NewTask, QueueState, is_like
from dibs.core.times import Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.enqueueing import (
    HeldKey,
    Known,
    answer_all,
    due_at_first,
    replace_all,
    unreadable_key,
)
from dibs.engines.decisions.facts import MIXED, facts_for
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.transaction import Queue
from dibs.engines.port import Port, at_once
from dibs.engines.sql_transaction import TaskMoved
from dibs.engines.sqlite.headroom import find_buckets
from dibs.engines.sqlite.row_decoder import BATCH_ERRORS, RowDecoder, is_spoiled
from dibs.engines.sqlite.rows import BEYOND
from dibs.engines.sqlite.statements import statement
from dibs.engines.sqlite.transaction import ROWS, Transaction
from dibs.engines.topics import work_topic
from dibs.engines.unreadable import state_or
from dibs.engines.values import Counter, EnqueueAnswer, EnqueueOutcome, NewWorkflow
from dibs.engines.verbs.dependencies import inherit_again
from dibs.engines.verbs.records import Records

__all__ = ["KEYS", "enqueue", "enqueue_inside"]

EDGES = 1000
"""Edges that are written together."""


class StoredKey(Struct, array_like=True, frozen=True):
    """A row of dibs_keys. The key is JSON text, because users choose it and it may contain anything."""

    queue: str
    key: str
    task: str
    fingerprint: str
    held_until: Instant


KEYS = RowDecoder(StoredKey, "key", 0, 1)
key_decoder = msgspec.json.Decoder(str)
states_decoder = msgspec.json.Decoder(list[tuple[str, object]])


def enqueue(
    transaction: Transaction, tasks: Sequence[NewTask], atomic: bool, workflow: NewWorkflow | None = None
) -> list[EnqueueAnswer]:
    generation, highest = look(transaction)
    transaction.refresh(generation)
    if transaction.catalog.unreadable:
        for new in tasks:
            transaction.check_queue(new.queue)
    if workflow is None and all_plain(transaction, tasks, highest):
        rows = write_plain(transaction, tasks)
        return [EnqueueAnswer(EnqueueOutcome.ENQUEUED, cast(str, row[0]), cast(State, row[2])) for row in rows]
    known = known_about(transaction, tasks, highest)
    answers = answer_all(transaction, known, atomic)
    if known.refused:
        return answers
    if workflow is not None:
        transaction.run("add_workflow", workflow.id, workflow.name, transaction.now)
    store(transaction, known)
    return answers


async def enqueue_inside(port: Port, tasks: Sequence[NewTask]) -> list[EnqueueAnswer]:
    """`enqueue` in the middle of another verb, all tasks or none."""
    assert isinstance(port, Transaction)
    port.write_counts()  # they decide whether a queue is full
    return enqueue(port, tasks, atomic=True)


def look(transaction: Transaction) -> tuple[int, str]:
    """The generation, and the highest id in the store; if that can't be read, every id is looked up."""
    try:
        generation, highest = transaction.row("enqueue_state")
    except BATCH_ERRORS as error:
        if not is_spoiled(error):
            raise
        generation, highest = transaction.each(statement("enqueue_state"), ())[0]
    return generation, highest if isinstance(highest, str) else BEYOND


def all_plain(transaction: Transaction, tasks: Sequence[NewTask], highest: str) -> bool:
    """Whether every task can be stored without a decision. That is so in most calls, and saves them the rest."""
    for new in tasks:
        if new.spec.key is not None or new.id <= highest or new.after or has_more(new):
            return False
    queues = transaction.catalog.queues
    if len(tasks) == 1:
        return is_open_to_all(queues.get(tasks[0].queue))
    distinct = len({new.id for new in tasks}) == len(tasks)
    return distinct and all(is_open_to_all(queues.get(name)) for name in {new.queue for new in tasks})


def is_open_to_all(queue: Queue | None) -> bool:
    if queue is None:
        return True
    settings = queue.settings
    is_limited = settings.max_depth is not None or settings.enqueue_rate is not None
    return queue.state is not QueueState.DRAINING and not is_limited and not settings.fair


def has_more(new: NewTask) -> bool:
    """Whether a task needs columns that are empty for most tasks."""
    return new.spec.partition is not None or new.spec.expires_at is not None or new.spec.workflow is not None


def known_about(transaction: Transaction, tasks: Sequence[NewTask], highest: str) -> Known:
    """Read what decides about these tasks. An id above `highest` is new: that saves nearly all lookups."""
    known = Known(tasks, transaction.catalog.queues, transaction.now)
    if wanted := known.wanted_keys():
        known.keys = find_keys(transaction, [(queue, to_json(key)) for queue, key in wanted])
    ids = [new.id for new in tasks if new.id <= highest]
    ids += [held.task for held in known.keys.values()]
    if ids:
        known.know(transaction.decoded(row) for row in transaction.find_rows(ids).values())
    if needed := {edge.id: None for new in tasks for edge in new.after if edge.id <= highest}:
        places = transaction.row("states", to_json(list(needed)))
        for place, otherwise in zip(places, (State.PENDING, State.DEAD, State.COMPLETED), strict=True):
            known.states |= {task_id: state_or(state, otherwise) for task_id, state in states_decoder.decode(place)}
    if bounded := known.bounded():
        pending = transaction.pending_by_track()
        for queue in bounded:
            tracks = transaction.catalog.by_queue[queue]
            known.depths[queue] = sum(pending.get(track.number, 0) for track in tracks)
    for queue, client, limit in known.limited_clients():
        key = (queue, Scope.CLIENT, client)
        known.know_bucket(queue, client, limit, find_buckets(transaction, [key]).get(key))
    return known


def find_keys(transaction: Transaction, wanted: list[tuple[str, str]]) -> dict[tuple[str, str], HeldKey]:
    asked = to_json(wanted)
    unreadable: list[tuple[Any, ...]] = []

    def one_by_one(rows: list[tuple[Any, ...]]) -> list[StoredKey]:
        found = KEYS.one_by_one(rows, transaction.aside)
        readable = {(each.queue, each.key) for each in found}
        unreadable.extend(row for row in rows if row[:2] not in readable)
        return found

    found = transaction.together_or_each(KEYS.decode, one_by_one, "find_keys", asked)
    held = {(queue, key_decoder.decode(key)): unreadable_key(str(task)) for queue, key, task, *_ in unreadable}
    for each in found:
        held[each.queue, key_decoder.decode(each.key)] = HeldKey(each.task, each.fingerprint, each.held_until)
    return held


def store(transaction: Transaction, known: Known) -> None:
    """Write what was decided."""
    heirs = known.heirs()
    plain: list[NewTask] = []
    wide: list[NewTask] = []
    linked: list[NewTask] = []
    for new in known.staged.values():
        is_wide = has_more(new) or transaction.settings(new.queue).fair
        (linked if new.after or new.id in heirs else wide if is_wide else plain).append(new)
    write_plain(transaction, plain)
    if transaction.run_each("insert_task", [widened(transaction, new) for new in wide]) != len(wide):
        raise TaskMoved
    if linked:
        write_linked(transaction, known, linked, heirs)
    count_members(transaction, [*wide, *linked])
    if known.replacements:
        records = Records(transaction)
        at_once(records.load(task_id for _, task_id in known.replacements))
        replace_all(transaction, known, records)
        at_once(records.flush())
    if held := known.held_keys():
        keys = [(queue, to_json(key), *structs.astuple(each)) for (queue, key), each in held.items()]
        transaction.run("save_keys", to_json(keys))
    if spent := known.spent_buckets():
        transaction.run("save_buckets", to_json(spent))
    if needed := known.needed():
        at_once(inherit_again(transaction, needed))


def write_plain(transaction: Transaction, tasks: Sequence[NewTask]) -> list[tuple[object, ...]]:
    """Store tasks that need few columns; returns their rows."""
    rows = [admitted(transaction, tasks[0])] if len(tasks) == 1 else rows_of(transaction, tasks)
    whole = len(rows) - len(rows) % ROWS
    for start in range(0, whole, ROWS):
        transaction.run("enqueue_many", *chain.from_iterable(rows[start : start + ROWS]))
    for row in rows[whole:]:
        transaction.run("enqueue_one", *row)
    return rows


def rows_of(transaction: Transaction, tasks: Iterable[NewTask]) -> list[tuple[object, ...]]:
    """The row of each task. Most batches are of one kind: shared columns are computed once for each run of tasks."""
    rows: list[tuple[object, ...]] = []
    last: NewTask | None = None
    for new in tasks:
        if last is not None and is_like(new, last):
            before = rows[-1]
            rows.append((new.id, *before[1:8], new.args.decode(), before[9]))
            transaction.changes[str(before[2]), cast(int, before[1])] += 1
            transaction.changes[Counter.ENQUEUED, new.queue] += 1
        else:
            rows.append(admitted(transaction, new))
            last = new
    return rows


def admitted(transaction: Transaction, new: NewTask) -> tuple[object, ...]:
    """`moves.admit` directly to the columns of `enqueue_one`, without building a record."""
    catalog, now = transaction.catalog, transaction.now
    queue = catalog.queues.get(new.queue) or transaction.make_queue(new.queue)
    settings = queue.settings
    due_at = due_at_first(new, now)
    later = due_at > now
    ready_at = due_at if later else now
    state = State.SCHEDULED if later else State.PENDING
    if new.spec.deadline is None:
        ranking = catalog.ranking(queue, new.spec.priority)
    else:
        ranking = rank(settings, priority=new.spec.priority, deadline=new.spec.deadline, ready_at=ready_at, now=now)
    track = transaction.track(new.queue, new.name, new.requires, ranking.lane, queue.epoch, settings.fair, MIXED)
    options = resolve(new.options, new.app_options, settings, new.spec.priority)
    if settings.fair and state is State.PENDING:
        transaction.count_pending(track, new.spec.tenant, 1)
    else:
        transaction.changes[state, track] += 1
    transaction.changes[Counter.ENQUEUED, new.queue] += 1
    transaction.topics.add(work_topic(new.queue))
    return (
        new.id,
        track,
        state,
        ready_at + ranking.offset,
        ready_at,
        due_at if later else None,
        None if ranking.rerank_in is None else ready_at + ranking.rerank_in,
        options.lease,
        new.args.decode(),
        to_json(facts_for(new, options, now)),
    )


def widened(transaction: Transaction, new: NewTask) -> tuple[object, ...]:
    """The row of a new task with all columns, for `insert_task`."""
    task_id, track, state, rank, ready_at, due_at, rerank_at, lease_for, args, facts = admitted(transaction, new)
    settings = transaction.settings(new.queue)
    partition = None if new.spec.partition is None else Partition(new.queue, new.spec.partition)
    gated = partition is not None and state is State.PENDING and settings.per_partition is not None
    if partition is not None and gated:
        transaction.mark_changed(partition)
    key = None if partition is None else partition.key
    share = new.spec.tenant if settings.fair else ""
    return (
        task_id, track, state, rank, ready_at, due_at, rerank_at, 0, lease_for, None, None, None, 0, 0,
        share, int(gated), key, new.spec.expires_at, new.spec.workflow, None, args, facts,
    )  # fmt: skip


def write_linked(transaction: Transaction, known: Known, tasks: list[NewTask], heirs: Mapping[str, int]) -> None:
    """Store tasks that wait for others, or that others of the batch wait for."""
    records = Records(transaction)
    for new in tasks:
        transaction.make_queue(new.queue)
        record = known.admit(new, heirs)
        if known.states[new.id] in ENDED:
            records.put(*known.end(new, record))
        else:
            records.put(record)
        transaction.count_event(Counter.ENQUEUED, new.queue)
        transaction.tell(new.queue, known.states[new.id])
    edges = known.edges(tasks, {new.id: records.current[new.id].urgency for new in tasks})
    at_once(records.flush())
    for start in range(0, len(edges), EDGES):
        transaction.run("save_edges", to_json(edges[start : start + EDGES]))


def count_members(transaction: Transaction, tasks: list[NewTask]) -> None:
    members = Totals(new.spec.workflow for new in tasks if new.spec.workflow is not None)
    if members:
        transaction.run("count_members", to_json(list(members.items())))
