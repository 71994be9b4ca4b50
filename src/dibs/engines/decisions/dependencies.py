"""Tasks that wait for others: the verdicts of edges when a task ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dibs.core.graph import Rule, Verdict, judge
from dibs.core.moves import ended_by, unblocked
from dibs.core.states import State
from dibs.core.task import EndedBy
from dibs.engines.decisions.records import Ledger
from dibs.engines.decisions.steps import Step
from dibs.engines.decisions.transaction import Transaction

ANY_WEIGHT = -1
"""No edge has it, so every edge differs from it."""

Ends = dict[str, tuple[Verdict, EndedBy]]


def judged(steps: list[Step], edges: Iterable[tuple[int, str, int, Rule]]) -> tuple[Ends, list[str]]:
    """Which dependents end, how and why; and which wait for one task less.

    An edge is (position in `steps` of its prerequisite's, dependent, slot, rule).
    """
    ends: Ends = {}
    goes: dict[str, None] = {}
    for position, dependent, _, rule in sorted(edges):
        step = steps[position]
        verdict = judge(rule, step.state)
        if verdict is Verdict.GO:
            goes[dependent] = None
        else:
            ends.setdefault(dependent, (verdict, EndedBy(step.about, step.state)))
    return ends, [each for each in goes if each not in ends]


def release(transaction: Transaction, records: Ledger, ends: Ends, needing: Collection[str]) -> None:
    """End blocked tasks as their edges say, and unblock those that are not `needing` anything else."""
    for record in list(records.current.values()):
        if record.state is not State.BLOCKED:
            continue
        if record.id in ends:
            records.put(*ended_by(record, *ends[record.id], transaction.now))
        elif record.id not in needing:
            records.put(unblocked(record, transaction.settings(record.queue), transaction.now))
        else:
            continue
        transaction.tell(record.queue, records.current[record.id].state)
