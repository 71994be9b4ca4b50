"""join: enqueue and complete inside a transaction of the user's own, on their connection.

Such a transaction may last. So nothing here takes the lock of a queue or does follow-ups: tasks of guarded queues are
stored as due at once but not promoted, and follow-ups are left to the next claim after the commit. Until then the
transaction holds the shared lock on settings, and the rows of the task, of its idempotency key, of its client's bucket
and of the tasks it waits for.

The user's connection is used on their thread or loop, the engine's own on the engine's loop. When the first needs
something of the second, it raises `Unready`; the caller, which can reach both, runs `prepare` there and starts over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from weakref import WeakSet

from msgspec import structs

from dibs.core.states import State
from dibs.core.task import NewTask, Settlement
from dibs.core.times import Instant
from dibs.engines.decisions.enqueueing import Known, like_runs, stored_answer
from dibs.engines.decisions.headroom import MOST_AHEAD
from dibs.engines.decisions.settling import is_plain
from dibs.engines.postgres.catalog import NO_SLOTS, Missing, Stale
from dibs.engines.postgres.enqueueing import (
    block_parameters,
    draft,
    first_day,
    is_ready,
    new_pairs,
)
from dibs.engines.postgres.notifier import channel_of, payloads
from dibs.engines.postgres.statements import statement
from dibs.engines.postgres.steps import defer
from dibs.engines.postgres.store import Store
from dibs.engines.postgres.transaction import Transaction
from dibs.engines.postgres.user_connections import DriverConnection, unwrap
from dibs.engines.topics import EVENTS, parse_topic, work_topic
from dibs.engines.user_connections import FAILED, UserConnection
from dibs.engines.values import EnqueueAnswer, SettleOutcome, Unready
from dibs.engines.verbs.enqueueing import decide, store
from dibs.engines.verbs.settling import settle_records
from dibs.errors import DibsError, StoreBusy, StoreError, StoreMismatch, StoreUnavailable, UsageError
from dibs.observe.events import EventType

__all__ = ["Joined", "Joiner"]

Answer = TypeVar("Answer")

READ_COMMITTED = ("read committed", "read uncommitted")
"""The server treats both alike."""

TRIES = 3
DEADLOCK = "40P01"
BUSY = ("40001", DEADLOCK, "55P03", "57014")
ELSEWHERE = ("3F000", "42P01", "42501", "42703")
"""No such schema, table or column, or no right to it."""


class NotCurrent(Exception):
    """The lease is not the current one. An exception, because it must roll back to the savepoint."""


class Joiner:
    """What one open store knows about connections of users."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.identity: str | None = None
        self.recognised: WeakSet[Any] = WeakSet()
        """Connections that lead to this store."""

    def join(self, connection: Any) -> Joined:
        return Joined(self, unwrap(connection))

    async def prepare(self, needs: Missing | Stale | None) -> None:
        """On the engine's own loop and connections: create what is missing, and load what exists."""
        if isinstance(needs, Missing):
            await self.store.add(needs)
        elif isinstance(needs, Stale):
            await self.store.catch_up(needs)
        else:
            await self.store.refresh()
        if self.identity is None:
            ((self.identity,),) = await self.store.rows("identity")


class Joined:
    """A transaction of the user's own."""

    def __init__(self, joiner: Joiner, connection: UserConnection[DriverConnection]) -> None:
        self.joiner = joiner
        self.store = joiner.store
        self.schema = joiner.store.schema
        self.connection = connection
        self.needs: Missing | Stale | None = None
        """What the verb that raised `Unready` lacked; None if the store was not known yet."""

    @property
    def waits(self) -> bool | None:
        return self.connection.waits

    async def enqueue(self, tasks: Sequence[NewTask], *, now: Instant | None = None) -> list[EnqueueAnswer]:
        return await self.inside(lambda driver: self.enqueue_on(driver, tasks, now)) if tasks else []

    async def complete(self, settlement: Settlement, *, now: Instant | None = None) -> SettleOutcome:
        return await self.inside(lambda driver: self.complete_on(driver, settlement, now))

    async def prepare(self) -> None:
        await self.joiner.prepare(self.needs)

    # Checks.

    async def inside(self, act: Callable[[DriverConnection], Awaitable[Answer]]) -> Answer:
        """Do something on the user's connection, after checking that it can be joined."""
        if self.joiner.identity is None:
            raise Unready
        driver = await self.connection.open()
        try:
            driver.check()
            if driver.key not in self.joiner.recognised:
                await self.recognise(driver)
            return await act(driver)
        except (Missing, Stale) as needs:
            self.needs = needs.with_traceback(None)  # which would keep the user's connection alive
            raise Unready from None
        except driver.errors as error:
            raise complaint(str(getattr(error, "sqlstate", None) or ""), str(error)) from error

    async def recognise(self, driver: DriverConnection) -> None:
        """Check that the connection leads to the store of this engine."""
        own = str(self.store.address)
        try:
            async with savepoint(driver):
                identity = await driver.fetchval(statement("identity", self.schema))
        except driver.errors as error:
            if getattr(error, "sqlstate", None) not in ELSEWHERE:
                raise
            raise UsageError(
                f"the connection can't see the tasks of this app, which are in {own}: {first_line(str(error))}. "
                "It must lead to the same database, as a user who has rights to the schema."
            ) from error
        if identity != self.joiner.identity:
            raise UsageError(
                f"the connection leads to another database than this app's, whose tasks are in {own}: one transaction "
                "can't span both."
            )
        self.joiner.recognised.add(driver.key)

    # enqueue.

    async def enqueue_on(
        self, driver: DriverConnection, tasks: Sequence[NewTask], now: Instant | None
    ) -> list[EnqueueAnswer]:
        if is_ready(self.store.catalog, tasks):
            answers = await self.enqueue_plainly(driver, tasks, now)
            if answers is not None:
                return answers
        return await self.in_savepoint(driver, now, lambda transaction: enqueue_decided(transaction, tasks))

    async def enqueue_plainly(
        self, driver: DriverConnection, tasks: Sequence[NewTask], now: Instant | None
    ) -> list[EnqueueAnswer] | None:
        """One statement, which affects nothing else if it fails; None if some of the tasks are known."""
        catalog = self.store.catalog
        runs = like_runs(tasks)
        drafted, pairs = draft(catalog, runs), new_pairs(catalog, runs, now)
        watched = catalog.watched(EventType.TASK_SUBMITTED, now)
        topics = {work_topic(new.queue) for new in tasks}
        row = await driver.fetchrow(
            statement("enqueue_in", self.schema),
            channel_of(self.schema),
            payloads(sorted(topics if watched is None else topics | {EVENTS})),
            now,
            catalog.generation,
            first_day(drafted[0], now),
            *drafted,
            *block_parameters(pairs, tasks),
            watched,
        )
        status = row["status"]
        if status == "known":
            return None
        if status == "stale":
            raise Stale
        if status == "unsuitable":
            raise unsuitable(row["told"])
        if status == "failed":
            raise complaint(row["code"], row["told"])
        return [stored_answer(new, row["now"]) for new in tasks]

    # complete.

    async def complete_on(self, driver: DriverConnection, settlement: Settlement, now: Instant | None) -> SettleOutcome:
        try:
            return await self.in_savepoint(driver, now, lambda transaction: complete(transaction, settlement))
        except NotCurrent:
            return SettleOutcome.REFUSED

    # Verbs of several statements.

    async def in_savepoint(
        self, driver: DriverConnection, now: Instant | None, verb: Callable[[Transaction], Awaitable[Answer]]
    ) -> Answer:
        """Run a verb as part of the user's transaction, as a whole or not at all.

        A deadlock releases all locks that were taken here, and the verb is tried again.
        """
        for _ in range(TRIES - 1):
            try:
                return await self.try_in_savepoint(driver, now, verb)
            except driver.errors as error:
                if getattr(error, "sqlstate", None) != DEADLOCK:
                    raise
        return await self.try_in_savepoint(driver, now, verb)

    async def try_in_savepoint(
        self, driver: DriverConnection, now: Instant | None, verb: Callable[[Transaction], Awaitable[Answer]]
    ) -> Answer:
        async with savepoint(driver):
            row = await driver.fetchrow(statement("join", self.schema), now)
            if row["isolation"] not in READ_COMMITTED or row["read_only"]:
                raise unsuitable("read-only" if row["read_only"] else row["isolation"])
            catalog = self.store.catalog
            if row["generation"] != catalog.generation:
                raise Stale
            transaction = Transaction(driver, self.schema, catalog, row["now"])
            answer = await verb(transaction)
            left = await defer(transaction)
            await self.notify(transaction, left)
            return answer

    async def notify(self, transaction: Transaction, left: bool) -> None:
        """Notify when the transaction commits; if follow-ups are left, also a worker that claims."""
        topics = transaction.topics
        if left:
            topics = topics | {work_topic(about) for _, about in map(parse_topic, topics) if about}
        if topics:
            await transaction.rows("notify", channel_of(self.schema), payloads(sorted(topics)))


@asynccontextmanager
async def savepoint(driver: DriverConnection) -> AsyncIterator[None]:
    """A failure inside leaves the transaction as it was."""
    await driver.execute("SAVEPOINT dibs_join")
    try:
        yield
    except BaseException:
        with suppress(*driver.errors):  # the first error matters
            await driver.execute("ROLLBACK TO SAVEPOINT dibs_join")
            await driver.execute("RELEASE SAVEPOINT dibs_join")
        raise
    await driver.execute("RELEASE SAVEPOINT dibs_join")


async def enqueue_decided(transaction: Transaction, tasks: Sequence[NewTask]) -> list[EnqueueAnswer]:
    """`enqueueing.enqueue`, all or none; tasks that could start at once in a guarded queue wait to be promoted."""
    known, answers = await decide(transaction, tasks, atomic=True)
    if not known.refused:
        put_off(transaction, known)
        await store(transaction, known)
    return answers


def put_off(transaction: Transaction, known: Known) -> None:
    """Store such tasks as due: making one pending needs the queue's lock, which claims hold when they promote."""
    guarded = {*transaction.catalog.guarded}
    at_once = transaction.now + 1
    for new in list(known.staged.values()):
        if new.queue in guarded and known.states[new.id] is State.PENDING:
            known.staged[new.id] = structs.replace(new, at=at_once, delay=0)
    for place, (new, task_id) in enumerate(known.replacements):
        old = known.records.get(task_id)  # None: it is one of the new tasks
        queue, was_pending = (new.queue, False) if old is None else (old.queue, old.state is State.PENDING)
        if queue in guarded and known.states[task_id] is State.PENDING and not was_pending:
            known.replacements[place] = (structs.replace(new, at=at_once, delay=0), task_id)


async def complete(transaction: Transaction, settlement: Settlement) -> SettleOutcome:
    """Complete the task if its lease is the current one; `NotCurrent` otherwise."""
    lease = settlement.lease
    if is_plain(settlement) and (track := await complete_plainly(transaction, settlement)) is not None:
        transaction.tell(transaction.catalog.track(track).queue, State.COMPLETED)
        return SettleOutcome.DONE
    (answer,) = await settle_records(transaction, [settlement])
    outcome = answer.outcome
    if outcome is SettleOutcome.DONE:
        return outcome
    # This lease may have settled it in another way: a run that timed out must not commit its work as completed.
    row = (await transaction.find_rows([lease.id])).get(lease.id)
    if outcome is SettleOutcome.REFUSED or row is None or row["state"] != State.COMPLETED:
        raise NotCurrent
    return outcome


async def complete_plainly(transaction: Transaction, settlement: Settlement) -> int | None:
    """Complete a task whose end concerns no other, if its lease is the current one; the track that it was in."""
    lease, catalog = settlement.lease, transaction.catalog
    watched = catalog.watched(EventType.TASK_COMPLETED, transaction.now)
    run = ([lease.id], [lease.number], [settlement.result])
    asked = (transaction.now, catalog.generation, *run, watched, *NO_SLOTS, MOST_AHEAD)
    row = await transaction.row("complete", *asked)
    if row["status"] == "stale":
        raise Stale
    if not row["tracks"]:
        return None
    if watched is not None:
        transaction.topics.add(EVENTS)
    return int(row["tracks"][0])


def unsuitable(what: str) -> UsageError:
    """The error for a transaction that can't be joined."""
    if what == "read-only":
        return UsageError("the transaction is read-only: begin one that may write.")
    return UsageError(
        f"the transaction is {what.upper()}. Dibs relies on each statement seeing what was committed before it: "
        "begin a READ COMMITTED transaction (the default) for this."
    )


def first_line(told: str) -> str:
    return next((line for line in told.strip().splitlines() if line), "the driver did not say why").rstrip(".")


def complaint(code: str, told: str) -> DibsError:
    """The Dibs error for a failed statement on the user's connection."""
    line = first_line(told)
    if code == "25P02":
        return UsageError(FAILED)
    if code == "25006":
        return unsuitable("read-only")
    if code in BUSY:
        return StoreBusy(f"others were in the way for too long ({line}). Roll your transaction back, and try again.")
    if code == "42501":
        return StoreUnavailable(f"the user of your connection lacks a right: {line}. Have the schema's owner grant it.")
    if code in ELSEWHERE or code == "42883":
        return StoreMismatch(f"the schema lacks something that Dibs made ({line}). Was it changed or dropped?")
    if code.startswith(("08", "53", "57P")) or not code:
        return StoreUnavailable(f"your connection failed: {line}. What your transaction has done is lost with it.")
    return StoreError(f"the store did not take it: {line} ({code}).")
