"""enqueue: the short way into the store, without records. What is decided, `dibs.engines.verbs` decides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from dibs.core.priority import rank
from dibs.core.settings import resolve
from dibs.core.states import State
from dibs.core.task import NewTask
from dibs.engines.decisions.blocks import blocks_of, traits_of
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.enqueueing import all_plain, due_at_first, like_runs
from dibs.engines.decisions.facts import facts_for, mixed_band
from dibs.engines.decisions.partition import Partition
from dibs.engines.figures import Counter
from dibs.engines.port import at_once
from dibs.engines.sqlite.row_decoder import BATCH_ERRORS, is_spoiled
from dibs.engines.sqlite.rows import BEYOND
from dibs.engines.sqlite.statements import statement
from dibs.engines.sqlite.transaction import ROWS, Transaction
from dibs.engines.topics import work_topic
from dibs.engines.values import EnqueueAnswer, EnqueueOutcome, NewWorkflow
from dibs.engines.verbs.enqueueing import decide, store
from dibs.observe.events import EventType

__all__ = ["enqueue"]


def enqueue(
    transaction: Transaction, tasks: Sequence[NewTask], atomic: bool, workflow: NewWorkflow | None = None
) -> list[EnqueueAnswer]:
    generation, highest = look(transaction)
    transaction.refresh(generation)
    if workflow is None and are_new(tasks, highest) and all_plain(tasks, transaction.catalog.queues, guarded=True):
        stored = write_plain(transaction, tasks)
        return [EnqueueAnswer(EnqueueOutcome.ENQUEUED, task_id, state) for task_id, state in stored]
    known, answers = at_once(decide(transaction, tasks, atomic, highest))
    if not known.refused:
        write_plain(transaction, known.take_plain())
        at_once(store(transaction, known, workflow))
    return answers


def look(transaction: Transaction) -> tuple[int, str]:
    """The generation, and the highest id in the store; if that can't be read, every id is looked up."""
    try:
        generation, highest = transaction.row("enqueue_state")
    except BATCH_ERRORS as error:
        if not is_spoiled(error):
            raise
        generation, highest = transaction.each(statement("enqueue_state"), ())[0]
    return generation, highest if isinstance(highest, str) else BEYOND


def are_new(tasks: Sequence[NewTask], highest: str) -> bool:
    """Whether no stored task has one of these ids, and no two of them the same."""
    if len(tasks) == 1:
        return tasks[0].id > highest
    ids = {new.id for new in tasks}
    return len(ids) == len(tasks) and min(ids, default=highest) > highest


def write_plain(transaction: Transaction, tasks: Sequence[NewTask]) -> list[tuple[str, State]]:
    """Store tasks that need few columns, with counts and topics; returns their ids and states."""
    stored: list[tuple[str, State]] = []
    others: list[tuple[Any, ...]] = []
    for alike in like_runs(tasks):
        shared = admitted(transaction, alike[0])
        rows = [(new.id, new.args.decode()) for new in alike]
        ids = [new.id for new in alike]
        stored += [(task_id, shared[1]) for task_id in ids]
        note(transaction, alike[0], shared, ids)
        whole = len(rows) - len(rows) % ROWS
        for start in range(0, whole, ROWS):
            transaction.run("enqueue_alike", *shared, *chain.from_iterable(rows[start : start + ROWS]))
        others += [(*row, *shared) for row in rows[whole:]]
    whole = len(others) - len(others) % ROWS
    for start in range(0, whole, ROWS):
        transaction.run("enqueue_many", *chain.from_iterable(others[start : start + ROWS]))
    for row in others[whole:]:
        transaction.run("enqueue_one", *row)
    if transaction.catalog.watches:
        transaction.emit_tasks(EventType.TASK_SUBMITTED, [task_id for task_id, _ in stored])
    return stored


def note(transaction: Transaction, like: NewTask, shared: tuple[Any, ...], ids: list[str]) -> None:
    """What is to be written and told besides the rows of a run of like tasks."""
    track, state, *_ = shared
    if state is State.PENDING:
        transaction.count_pending(track, like.spec.tenant, len(ids))
        if like.spec.partition is not None:
            transaction.mark_changed(Partition(like.queue, like.spec.partition))
    else:
        transaction.changes[state, track] += len(ids)
    transaction.changes[Counter.ENQUEUED, track] += len(ids)
    transaction.topics.add(work_topic(like.queue))
    if len(ids) == 1 and transaction.catalog.known_blocks.covers(like, transaction.now):
        return
    blocks = blocks_of(ids)
    transaction.note_blocks(traits_of(like), blocks)
    transaction.note_creation(blocks, transaction.now)


def admitted(transaction: Transaction, new: NewTask) -> tuple[Any, ...]:
    """`moves.admit` directly to the columns of `enqueue_one` after id and arguments, without building a record."""
    catalog, now = transaction.catalog, transaction.now
    queue = catalog.queues.get(new.queue) or transaction.make_queue(new.queue)
    settings, spec = queue.settings, new.spec
    due_at = due_at_first(new, now)
    later = due_at > now
    ready_at = due_at if later else now
    if spec.deadline is None:
        ranking = catalog.ranking(queue, spec.priority)
    else:
        ranking = rank(settings, priority=spec.priority, deadline=spec.deadline, ready_at=ready_at, now=now)
    options, band = resolve(new.options, new.app_options, settings, spec.priority), mixed_band(spec.priority)
    return (
        transaction.track(new.queue, new.name, new.requires, ranking.lane, queue.epoch, settings.fair, band),
        State.SCHEDULED if later else State.PENDING,
        ready_at + ranking.offset,
        ready_at,
        due_at if later else None,
        None if ranking.rerank_in is None else ready_at + ranking.rerank_in,
        options.lease,
        spec.tenant if settings.fair else "",
        int(spec.partition is not None and settings.per_partition is not None and not later),
        None if spec.partition is None else Partition(new.queue, spec.partition).key,
        spec.expires_at,
        now,
        to_json(facts_for(new, options)),
    )
