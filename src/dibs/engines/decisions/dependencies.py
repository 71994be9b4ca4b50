"""Tasks that wait for others: what edges say when a task ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dibs.core.graph import Rule, Verdict, judge
from dibs.core.moves import buried, cancelled, unblocked
from dibs.core.states import Reason, State
from dibs.core.task import TaskRecord
from dibs.core.times import Instant
from dibs.engines.decisions.follow_ups import FollowUp
from dibs.engines.decisions.records import Ledger
from dibs.engines.decisions.transaction import Transaction

__all__ = ["ANY_WEIGHT", "end", "judged", "release"]

ANY_WEIGHT = -1
"""No edge has it, so every edge differs from it."""

Ends = dict[str, tuple[Verdict, str]]


def judged(follow_ups: list[FollowUp], edges: Iterable[tuple[int, str, int, Rule]]) -> tuple[Ends, list[str]]:
    """Which dependents end, how and why, and which wait for one task less.

    An edge is the position of the errand about the task that it leads to, the dependent, the slot and the rule.
    """
    ends: Ends = {}
    goes: dict[str, None] = {}
    for position, dependent, _, rule in sorted(edges):
        follow_up = follow_ups[position]
        verdict = judge(rule, follow_up.state)
        if verdict is Verdict.GO:
            goes[dependent] = None
        else:
            ends.setdefault(dependent, (verdict, f"{follow_up.about} is {follow_up.state}"))
    return ends, [each for each in goes if each not in ends]


def release(transaction: Transaction, records: Ledger, ends: Ends, needing: Collection[str]) -> None:
    """Blocked tasks end as their edges say, or are unblocked if they are not `needing` anything else."""
    for record in list(records.current.values()):
        if record.state is not State.BLOCKED:
            continue
        if record.id in ends:
            end(records, record, *ends[record.id], transaction.now)
        elif record.id not in needing:
            records.put(unblocked(record, transaction.settings(record.queue), transaction.now))
        else:
            continue
        transaction.tell(record.queue, records.current[record.id].state)


def end(records: Ledger, record: TaskRecord, verdict: Verdict, note: str, now: Instant) -> None:
    """A blocked task ends because of what it waited for."""
    if verdict is Verdict.CANCEL:
        records.put(*cancelled(record, note, "", now, Reason.DEPENDENCY))
    else:
        records.put(*buried(record, Reason.DEPENDENCY, "", now, note))
