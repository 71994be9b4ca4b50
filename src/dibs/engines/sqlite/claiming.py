"""claim: expire, promote, continue follow-ups; then choose tasks and lease them."""

from __future__ import annotations

from collections import Counter as Totals

import msgspec
from msgspec import Struct

from dibs.core.policy import PROMOTE_BATCH
from dibs.core.states import State
from dibs.core.times import Duration, Instant
from dibs.engines.decisions.encoding import to_json
from dibs.engines.decisions.partition import Partition
from dibs.engines.decisions.transaction import Queue
from dibs.engines.sqlite.row_decoder import TaskDecoder
from dibs.engines.sqlite.transaction import Transaction
from dibs.engines.values import Claimed, ClaimRequest
from dibs.engines.verbs.claiming import Given, give, given_before, served_queues, token_waits
from dibs.engines.verbs.partitions import open_refilled, pass_over, promote_heads
from dibs.engines.verbs.steps import resume
from dibs.engines.verbs.upkeep import expire
from dibs.observe.events import EventType

__all__ = ["claim"]


class Due(Struct, array_like=True, frozen=True):
    """A task that is due."""

    id: str
    track: int
    state: State
    share: str
    partition: str | None


PROMOTED = (State.SCHEDULED, State.RETRYING)

TRIES = 50
"""How often one claim chooses again because chosen tasks can't be read."""

DUE = TaskDecoder(Due, "task")

pending_decoder = msgspec.json.Decoder(list[tuple[int, int]])


class Upkeep:
    """What there is to do before a claim. Most claims have nothing to do."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.generation = self.look()

    def look(self) -> int:
        """Read what upkeep is due and how many tasks are pending; returns the generation."""
        transaction = self.transaction
        if transaction.aside.is_empty:
            found = transaction.row("claim_state")
        else:
            steps = to_json(list(transaction.aside.steps))
            found = transaction.row("claim_state_past", to_json(transaction.passed_over), steps)
        generation, due, expiry, self.has_steps, pending = found
        self.next_due, self.next_expiry = instant_or_none(due), instant_or_none(expiry)
        transaction.pending = dict(pending_decoder.decode(pending))
        return int(generation)

    def is_due(self, at: Instant | None) -> bool:
        return at is not None and at <= self.transaction.now

    async def do(self) -> None:
        transaction = self.transaction
        expires, promotes = self.is_due(self.next_expiry), self.is_due(self.next_due)
        if expires:
            await expire(transaction, 0)
        if promotes:
            self.promote()
        if transaction.steps or self.has_steps:
            await resume(transaction)
        elif not expires and not promotes and not transaction.partitions:
            return
        if transaction.partitions:
            await promote_heads(transaction)
        await transaction.flush()
        self.look()

    def promote(self) -> None:
        """Make a bounded number of due tasks pending. Their ranks were computed for this moment."""
        transaction, tracks = self.transaction, self.transaction.catalog.tracks
        found = transaction.many(DUE, "due_tasks", transaction.now, PROMOTE_BATCH, to_json(transaction.passed_over))
        due = [each for each in found if self.can_be_promoted(each)]
        if not due:
            return
        transaction.run("promote", to_json([each.id for each in due]))
        limited = {name for name, queue in transaction.catalog.queues.items() if queue.settings.per_partition}
        transaction.join_order(
            {each.id: each.partition is not None and tracks[each.track].queue in limited for each in due}
        )
        for (track, state, share), n in Totals((each.track, each.state, each.share) for each in due).items():
            transaction.count(state, track, -n)
            transaction.count_pending(track, share, n)
        for each in due:
            if each.partition is not None:
                transaction.mark_changed(Partition.parse(each.partition))
        if transaction.catalog.watches:
            transaction.emit_tasks(EventType.TASK_PROMOTED, [each.id for each in due])

    def can_be_promoted(self, due: Due) -> bool:
        """Whether a due task can become pending; if not, it is set aside."""
        if due.track not in self.transaction.catalog.tracks:
            problem = f"it is in track {due.track}, which does not exist"
        elif due.state not in PROMOTED:
            problem = "it is due, but its state is not one that waits"
        else:
            return True
        self.transaction.set_aside(due.id, due.track, due.state, False, None, problem)
        return False

    def next_in(self) -> Duration | None:
        """In how long a waiting task or an expiry is due; 0 if follow-ups are left."""
        if self.has_steps:
            return 0
        now = self.transaction.now
        return min((max(0, at - now) for at in (self.next_due, self.next_expiry) if at is not None), default=None)


async def claim(transaction: Transaction, request: ClaimRequest) -> Claimed:
    upkeep = Upkeep(transaction)
    transaction.refresh(upkeep.generation)
    transaction.look_again()
    queues = served_queues(transaction.queues, request)
    more = await open_refilled(transaction, queues)
    if request.repeat and (again := await given_before(transaction, request)):
        return Claimed(again, 0 if more else await next_due_in(transaction, upkeep, queues, Given([])))
    await pass_over(transaction, queues)
    await upkeep.do()
    given, more = await give_readable(transaction, request, queues, more)
    if given.tasks and upkeep.next_expiry is not None:  # it may have been claimed just now
        upkeep.next_expiry = instant_or_none(transaction.value("next_expiry", to_json(transaction.passed_over)))
    due_in = 0 if more else await next_due_in(transaction, upkeep, queues, given)
    return transaction.aside.paced(Claimed(given.tasks, due_in))


async def give_readable(
    transaction: Transaction, request: ClaimRequest, queues: list[Queue], more: bool
) -> tuple[Given, bool]:
    """Tasks that can be read, and whether to claim again at once. Those that can't be read are set aside."""
    aside = transaction.aside
    for _ in range(TRIES):
        size, number = aside.size, len(aside.tasks)
        given = await give(transaction, request, queues)
        if given is not None:
            return given, more or given.more
        if aside.size == size:
            break  # no more tasks can be skipped
        more = more or len(aside.tasks) > number  # there may be others behind them
    return Given([]), more


async def next_due_in(transaction: Transaction, upkeep: Upkeep, queues: list[Queue], given: Given) -> Duration | None:
    """In how long a waiting task, an expiry or a start token is due; 0 if upkeep is left."""
    waits = await token_waits(transaction, queues, given.headrooms)
    due_in = upkeep.next_in()
    return min(waits if due_in is None else [due_in, *waits], default=None)


def instant_or_none(stored: object) -> Instant | None:
    """The first entry of an index of instants, None if it is something else."""
    return int(stored) if isinstance(stored, int | float) else None
