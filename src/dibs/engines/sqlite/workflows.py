"""Workflows as a whole: what they are made of, and cancelling and replaying all of it."""

from __future__ import annotations

from heapq import merge
from itertools import islice

import msgspec
from msgspec import Struct

from dibs.core.graph import Rule, Verdict, judge
from dibs.core.moves import reblocked, replayed, unblocked
from dibs.core.states import Reason, State
from dibs.core.task import QueueState, TaskRecord
from dibs.core.times import Instant
from dibs.engines.base import Changed, Counter, WorkflowRecord, work_topic
from dibs.engines.sqlite.admin import cancel_one
from dibs.engines.sqlite.pruning import CHORE_BATCH, Step
from dibs.engines.sqlite.records import Records
from dibs.engines.sqlite.rows import decode_rows, to_json
from dibs.engines.sqlite.transaction import Errand, Snapshot, Transaction, What
from dibs.engines.sqlite.waiting import Done, inherit_anew

__all__ = [
    "cancel_members",
    "cancel_workflow",
    "prune_workflows",
    "replay_members",
    "replay_workflow",
    "workflow",
    "workflows",
]

REPLAY_BATCH = 100
"""Members that are replayed together; each may have many edges."""


class StoredWorkflow(Struct, array_like=True, frozen=True):
    """A row of dibs_workflows, and its members by state in each of the three places."""

    id: str
    name: str
    created_at: Instant
    total: int
    counts: list[tuple[State, int]]


class Outgoing(Struct, array_like=True, frozen=True):
    """An edge of a member, open or closed."""

    dependent: str
    slot: int
    prerequisite: str
    rule: Rule


workflows_decoder = msgspec.json.Decoder(list[StoredWorkflow])
outgoing_decoder = msgspec.json.Decoder(list[Outgoing])
texts_decoder = msgspec.json.Decoder(list[str])


def workflows(snapshot: Snapshot, limit: int, before: str | None) -> list[WorkflowRecord]:
    found = workflows_decoder.decode(snapshot.value("workflows", before, limit))
    return [as_record(each) for each in found]


def workflow(snapshot: Snapshot, workflow_id: str) -> WorkflowRecord | None:
    found = workflows_decoder.decode(snapshot.value("workflow", workflow_id))
    return as_record(found[0]) if found else None


def as_record(stored: StoredWorkflow) -> WorkflowRecord:
    counts = dict.fromkeys(State, 0)
    for state, count in stored.counts:
        counts[state] += count
    return WorkflowRecord(
        id=stored.id, name=stored.name, created_at=stored.created_at, total=stored.total, counts=counts
    )


def cancel_workflow(transaction: Transaction, workflow_id: str, note: str, actor: str) -> Changed:
    errand = Errand(What.CANCEL, workflow_id, note=note, actor=actor)
    return begin(transaction, errand, "cancel workflow", transaction.value("has_cancellable", workflow_id))


def replay_workflow(transaction: Transaction, workflow_id: str, actor: str) -> Changed:
    errand = Errand(What.REPLAY, workflow_id, actor=actor)
    return begin(transaction, errand, "replay workflow", transaction.value("has_replayable", workflow_id))


def begin(transaction: Transaction, errand: Errand, act: str, concerns_any: int) -> Changed:
    transaction.refresh()
    if transaction.row("has_workflow", errand.about) is None:
        return Changed.UNKNOWN
    if not concerns_any:
        return Changed.UNCHANGED
    transaction.errands.append(errand)
    transaction.remember(errand.actor, act, errand.about, errand.note)
    return Changed.DONE


def cancel_members(transaction: Transaction, errands: list[Errand], most: int) -> Done:
    """Cancel the unfinished members of a workflow, by id."""
    errand = errands[0]
    rows = decode_rows(transaction.value("members", errand.about, errand.after, most))
    records = Records(transaction)
    for record in records.see(rows):
        cancel_one(transaction, records, record.id, errand.note, errand.actor)
    records.flush()
    return gone_on(errands, [row.id for row in rows], most)


def gone_on(errands: list[Errand], ids: list[str], most: int) -> Done:
    """How far a walk through the members has come."""
    if len(ids) < most:
        return max(1, len(ids)), errands[1:]
    errands[0].after = ids[-1]
    return len(ids), errands


def replay_members(transaction: Transaction, errands: list[Errand], most: int) -> Done:
    """Run the dead members of a workflow again, and let those wait again that ended because of a dependency."""
    errand, most = errands[0], min(most, REPLAY_BATCH)
    asked = (errand.about, errand.after, most)
    dead = texts_decoder.decode(transaction.value("dead_members", *asked))
    stopped = texts_decoder.decode(transaction.value("cancelled_members", *asked))
    ids = list(islice(merge(dead, stopped), most))
    replay = Replay(transaction, ids, errand.actor)
    for task_id in ids:
        replay.one(task_id)
    replay.finish()
    return gone_on(errands, ids, most)


class Replay:
    """Some members of a workflow at work: their records, their edges, and the tasks these lead to."""

    def __init__(self, transaction: Transaction, ids: list[str], actor: str) -> None:
        self.transaction = transaction
        self.actor = actor
        self.edges: dict[str, list[Outgoing]] = {}
        for edge in outgoing_decoder.decode(transaction.value("edges_of", to_json(ids))):
            self.edges.setdefault(edge.dependent, []).append(edge)
        needed = [edge.prerequisite for edges in self.edges.values() for edge in edges]
        self.records = Records(transaction, [*ids, *needed])
        self.opened: list[tuple[str, int, int]] = []
        self.heirs: list[str] = []

    def one(self, task_id: str) -> None:
        record = self.records.get(task_id)
        if record is None or not is_replayable(record):
            return
        queue = self.transaction.make_queue(record.queue)
        if record.reason is Reason.DEPENDENCY:
            verdicts = [self.judge_anew(record, edge) for edge in self.edges.get(record.id, ())]
            stays = Verdict.CANCEL in verdicts or Verdict.BURY in verdicts
            if not stays:
                self.wait_again(record, verdicts)
        elif not (stays := queue.state is QueueState.DRAINING):
            self.records.put(*replayed(record, queue.settings, None, True, self.actor, self.transaction.now))
        if stays:  # others may wait for it again, and must not do so for ever
            self.transaction.errands.append(Errand(What.ENDED, record.id, record.state))
            return
        self.heirs.append(record.id)
        self.transaction.count(Counter.REPLAYED, record.queue, 1)
        self.transaction.topics.add(work_topic(record.queue))

    def judge_anew(self, dependent: TaskRecord, edge: Outgoing) -> Verdict:
        """An edge's verdict when its workflow is replayed: what is replayed as well is waited for."""
        record = self.records.get(edge.prerequisite)
        if record is None:
            return Verdict.GO
        if record.workflow == dependent.workflow and is_replayable(record):
            return Verdict.WAIT
        return judge(edge.rule, record.state)

    def wait_again(self, record: TaskRecord, verdicts: list[Verdict]) -> None:
        settings, now = self.transaction.settings(record.queue), self.transaction.now
        waiting, entry = reblocked(record, settings, self.actor, now)
        self.records.put(waiting, entry)
        for edge, verdict in zip(self.edges.get(record.id, ()), verdicts, strict=True):
            if verdict is Verdict.WAIT:
                self.opened.append((edge.dependent, edge.slot, waiting.urgency))
                self.heirs.append(edge.prerequisite)
        if Verdict.WAIT not in verdicts:
            self.records.put(unblocked(waiting, settings, now))

    def finish(self) -> None:
        self.records.flush()
        if self.opened:
            self.transaction.write("open_edges", to_json(self.opened))
        if self.heirs:
            inherit_anew(self.transaction, self.heirs)


def is_replayable(record: TaskRecord) -> bool:
    """Whether replaying its workflow touches a task."""
    by_dependency = record.state is State.CANCELLED and record.reason is Reason.DEPENDENCY
    return record.state is State.DEAD or by_dependency


def prune_workflows(transaction: Transaction) -> Step:
    """Forget workflows of which nothing is left: looks at a bounded number, from where the last step stopped."""
    stored = transaction.row("chore", "prune_workflows")
    after = "" if stored is None or stored[1] is None else str(stored[1])
    looked, last, empty = transaction.row("empty_workflows", after, CHORE_BATCH)
    doomed = texts_decoder.decode(empty)
    if doomed:
        transaction.write("delete_workflows", empty)
    more = looked == CHORE_BATCH
    transaction.write("save_cursor", "prune_workflows", last if more else None)
    return Step(len(doomed), more)
