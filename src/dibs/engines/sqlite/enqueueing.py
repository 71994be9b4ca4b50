"""enqueue: decide each item in order, then store what was accepted, in one transaction."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import cast

from dibs.core.graph import Edge, Verdict, inherited_within
from dibs.core.limits import Scope, spend
from dibs.core.moves import admit, replaced
from dibs.core.priority import rank
from dibs.core.settings import FALLBACK, resolve
from dibs.core.states import ENDED, State
from dibs.core.task import NewTask, QueueState
from dibs.engines.base import (
    ACCEPTED,
    REJECTED,
    Counter,
    EnqueueAnswer,
    EnqueueOutcome,
    NewWorkflow,
    work_topic,
)
from dibs.engines.sqlite.catalog import Queue
from dibs.engines.sqlite.deciding import Known, decide, due_at_first, worst_verdict
from dibs.engines.sqlite.records import Records
from dibs.engines.sqlite.rows import Facts, partition_key, to_json
from dibs.engines.sqlite.transaction import ROWS, Transaction
from dibs.engines.sqlite.waiting import end, inherit_anew

__all__ = ["enqueue", "store"]

EDGES = 1000
"""Edges that are written together."""


def enqueue(
    transaction: Transaction, tasks: Sequence[NewTask], atomic: bool, workflow: NewWorkflow | None = None
) -> list[EnqueueAnswer]:
    generation, highest = transaction.row("enqueue_look")
    transaction.refresh(generation)
    if workflow is None and all_plain(transaction, tasks, highest):
        rows = write_plain(transaction, tasks)
        return [EnqueueAnswer(EnqueueOutcome.ENQUEUED, cast(str, row[0]), cast(State, row[2])) for row in rows]
    known = Known(transaction, tasks, highest)
    answers = [decide(known, new, transaction.now) for new in tasks]
    if len(known.staged) < len(tasks) and refused(transaction, tasks, answers, atomic):
        abandoned = EnqueueOutcome.ABANDONED
        return [a if a.outcome not in ACCEPTED else EnqueueAnswer(abandoned, a.id) for a in answers]
    if workflow is not None:
        transaction.write("add_workflow", workflow.id, workflow.name, transaction.now)
    store(known)
    return answers


def all_plain(transaction: Transaction, tasks: Sequence[NewTask], highest: str) -> bool:
    """Whether nothing can stand in the way of any of the tasks. Most calls are of this kind, and spared the rest."""
    for new in tasks:
        if new.key is not None or new.id <= highest or new.after or has_more(new):
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
    """Whether a task needs columns that most tasks leave empty."""
    return new.partition is not None or new.expires_at is not None or new.workflow is not None


def refused(transaction: Transaction, tasks: Sequence[NewTask], answers: list[EnqueueAnswer], atomic: bool) -> bool:
    """Count what was not simply stored; True if the whole batch is refused for it."""
    gives_up = atomic and any(answer.outcome not in ACCEPTED for answer in answers)
    for new, answer in zip(tasks, answers, strict=True):
        if answer.outcome in REJECTED:
            transaction.count(Counter.REJECTED, new.queue, 1)
        elif answer.outcome is EnqueueOutcome.DUPLICATE and not gives_up:
            transaction.count(Counter.DUPLICATES, new.queue, 1)
    return gives_up


def store(known: Known) -> None:
    """Write what has been decided."""
    transaction, staged = known.transaction, known.staged
    waiting = [new for new in staged.values() if new.after]
    heirs = heirs_of(known) if waiting else {}
    plain: list[NewTask] = []
    wide: list[NewTask] = []
    linked: list[NewTask] = []
    for new in staged.values():
        is_wide = has_more(new) or transaction.settings(new.queue).fair
        (linked if new.after or new.id in heirs else wide if is_wide else plain).append(new)
    write_plain(transaction, plain)
    transaction.save_tasks([widened(transaction, new) for new in wide])
    write_linked(known, linked, heirs)
    count_members(transaction, [*wide, *linked])
    replace(known)
    hold_keys(known)
    spend_tokens(known)
    needed = {edge.id: None for new in waiting for edge in new.after if edge.id not in staged}
    if needed:
        inherit_anew(transaction, list(needed))


def write_plain(transaction: Transaction, tasks: Sequence[NewTask]) -> list[tuple[object, ...]]:
    """Tasks that need few columns; their rows as they were written."""
    rows = [admitted(transaction, tasks[0])] if len(tasks) == 1 else rows_of(transaction, tasks)
    whole = len(rows) - len(rows) % ROWS
    for start in range(0, whole, ROWS):
        transaction.write("enqueue_many", *chain.from_iterable(rows[start : start + ROWS]))
    for row in rows[whole:]:
        transaction.write("enqueue_one", *row)
    return rows


def rows_of(transaction: Transaction, tasks: Iterable[NewTask]) -> list[tuple[object, ...]]:
    """The row of each task. Batches are mostly of one kind: what follows from it is worked out once for each run."""
    rows: list[tuple[object, ...]] = []
    last: tuple[object, ...] = ()
    for new in tasks:
        kind = (
            new.queue, new.name, new.requires, new.priority, new.delay, new.at, new.deadline, new.options,
            new.app_options, new.key, new.parent, new.metadata, new.headers, new.tenant, new.takes,
        )  # fmt: skip
        if kind == last:
            before = rows[-1]
            rows.append((new.id, *before[1:8], new.args.decode(), before[9]))
            transaction.changes[str(before[2]), cast(int, before[1])] += 1
            transaction.changes[Counter.ENQUEUED, new.queue] += 1
        else:
            rows.append(admitted(transaction, new))
            last = kind
    return rows


def admitted(transaction: Transaction, new: NewTask) -> tuple[object, ...]:
    """`moves.admit` straight to the columns that `enqueue_one.sql` takes, without a record in between."""
    catalog, now = transaction.catalog, transaction.now
    queue = catalog.queues.get(new.queue) or transaction.make_queue(new.queue)
    settings = queue.settings
    due_at = due_at_first(new, now)
    later = due_at > now
    ready_at = due_at if later else now
    state = State.SCHEDULED if later else State.PENDING
    if new.deadline is None:
        ranking = catalog.ranking(queue, new.priority, now)
    else:
        ranking = rank(settings, priority=new.priority, deadline=new.deadline, ready_at=ready_at, now=now)
    stream = transaction.stream(new.queue, new.name, new.requires, ranking.lane, queue.epoch, settings.fair)
    options = resolve(new.options, new.app_options, settings, new.priority)
    if settings.fair and state is State.PENDING:
        transaction.count_pending(stream, new.tenant, 1)
    else:
        transaction.changes[state, stream] += 1
    transaction.changes[Counter.ENQUEUED, new.queue] += 1
    transaction.topics.add(work_topic(new.queue))
    facts = Facts(
        priority=new.priority,
        created_at=now,
        options=None if options is FALLBACK else options,
        deadline=new.deadline,
        key=new.key,
        metadata=new.metadata,
        headers=new.headers,
        parent=new.parent,
        partition=new.partition,
        tenant=new.tenant,
        expires_at=new.expires_at,
        workflow=new.workflow,
        takes=new.takes,
    )
    return (
        new.id,
        stream,
        state,
        ready_at + ranking.offset,
        ready_at,
        due_at if later else None,
        None if ranking.rerank_in is None else ready_at + ranking.rerank_in,
        options.lease,
        new.args.decode(),
        to_json(facts),
    )


def heirs_of(known: Known) -> dict[str, int]:
    """What new tasks inherit from each other."""
    staged, states = known.staged, known.states
    edges = {new.id: [edge.id for edge in new.after] for new in staged.values() if states[new.id] is State.BLOCKED}
    priorities = {new.id: new.priority for new in staged.values() if states[new.id] not in ENDED}
    return inherited_within(list(priorities), edges, priorities)


def widened(transaction: Transaction, new: NewTask) -> tuple[object, ...]:
    """The row of a new task with all columns, as `save_tasks` takes it."""
    task_id, stream, state, rank, ready_at, due_at, rerank_at, lease_for, args, facts = admitted(transaction, new)
    settings = transaction.settings(new.queue)
    partition = None if new.partition is None else partition_key(new.queue, new.partition)
    gated = partition is not None and state is State.PENDING and settings.per_partition is not None
    if partition is not None and gated:
        transaction.touch(new.queue, partition)
    share = new.tenant if settings.fair else ""
    return (
        task_id, stream, state, rank, ready_at, due_at, rerank_at, 0, lease_for, None, None, None, 0, 0,
        share, int(gated), partition, new.expires_at, new.workflow, None, args, facts,
    )  # fmt: skip


def write_linked(known: Known, tasks: list[NewTask], heirs: dict[str, int]) -> None:
    """Tasks that wait for others, or that others of the batch wait for."""
    transaction, now = known.transaction, known.transaction.now
    records = Records(transaction)
    for new in tasks:
        settings = transaction.make_queue(new.queue).settings
        verdict, note = worst_verdict(known, new)
        record = admit(new, settings, now, blocked=verdict is not Verdict.GO, inherited=heirs.get(new.id, 0))
        if verdict in (Verdict.CANCEL, Verdict.BURY):
            end(transaction, records, record, verdict, note)
        else:
            records.put(record)
        transaction.count(Counter.ENQUEUED, new.queue, 1)
        transaction.tell(new.queue, known.states[new.id])
    edges: list[tuple[object, ...]] = [
        (new.id, slot, edge.id, edge.rule, records.current[new.id].urgency, int(is_open(known, new, edge)))
        for new in tasks
        for slot, edge in enumerate(new.after)
    ]
    records.flush()
    for start in range(0, len(edges), EDGES):
        transaction.write("save_edges", to_json(edges[start : start + EDGES]))


def is_open(known: Known, new: NewTask, edge: Edge) -> bool:
    """Whether a new task waits for a prerequisite: those that are ended at once wait for nothing."""
    return known.states[new.id] is State.BLOCKED and known.states[edge.id] not in ENDED


def count_members(transaction: Transaction, tasks: list[NewTask]) -> None:
    members = Tally(new.workflow for new in tasks if new.workflow is not None)
    if members:
        transaction.write("count_members", to_json(list(members.items())))


def replace(known: Known) -> None:
    """Waiting tasks get the content of newer ones with their key."""
    if not known.replacements:
        return
    transaction = known.transaction
    records = Records(transaction, [task_id for _, task_id in known.replacements])
    for new, task_id in known.replacements:
        record = records.get(task_id)
        assert record is not None
        records.put(*replaced(record, new, transaction.settings(record.queue), transaction.now))
        transaction.tell(record.queue, record.state)
    records.flush()


def hold_keys(known: Known) -> None:
    holders = [(new, new.id) for new in known.staged.values() if new.key is not None] + known.replacements
    now = known.transaction.now
    keys = [(new.queue, to_json(new.key), task_id, new.fingerprint, now + new.window) for new, task_id in holders]
    if keys:
        known.transaction.write("save_keys", to_json(keys))


def spend_tokens(known: Known) -> None:
    """What clients have enqueued counts against what they may."""
    if not known.buckets:
        return
    spent = {whose: spend(bucket, known.spent[whose]) for whose, bucket in known.buckets.items() if known.spent[whose]}
    rows = [(queue, Scope.CLIENT, client, each.level, each.at, None) for (queue, client), each in spent.items()]
    known.transaction.write("save_buckets", to_json(rows))
