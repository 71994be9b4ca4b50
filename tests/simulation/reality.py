"""The same arrivals on a real engine: workers that never pause for thought, in virtual time."""

from __future__ import annotations

from heapq import heappop, heappush

from dibs.core.ids import uuid7
from dibs.core.settings import QueueSettings
from dibs.core.task import Lease, Outcome, Settlement
from dibs.core.times import SECOND, Duration, Instant
from dibs.engines.base import Engine
from dibs.engines.values import ClaimRequest, EnqueueOutcome, Term
from dibs.simulation.arrivals import Arrivals
from dibs.testing.tasks import new_task

__all__ = ["START", "arrivals_of", "work_off"]

START: Instant = 1_760_000_000 * SECOND
QUEUE = "queue"


def arrivals_of(
    ready: list[Duration],
    priority: list[int] | None = None,
    duration: list[Duration] | None = None,
    *,
    delay: list[Duration] | None = None,
    tenant: list[str] | None = None,
    name: list[str] | None = None,
    partition: list[str | None] | None = None,
    deadline: list[Duration | None] | None = None,
) -> Arrivals:
    """Arrivals whose instants count from `START`; what is not given is the same for all."""
    count = len(ready)
    delays = delay or [0] * count
    deadlines = deadline or [None] * count
    return Arrivals(
        created=[START + at - wait for at, wait in zip(ready, delays, strict=True)],
        ready=[START + at for at in ready],
        priority=priority or [50] * count,
        duration=duration or [SECOND] * count,
        tenant=tenant or [""] * count,
        name=name or ["work"] * count,
        partition=partition or [None] * count,
        deadline=[None if due is None else START + due for due in deadlines],
    )


async def work_off(
    engine: Engine, arrivals: Arrivals, settings: QueueSettings, slots: int
) -> list[tuple[Instant, int]]:
    """When the engine started which task, in its order."""
    await engine.open()
    worker = Slots(engine, arrivals)
    await engine.set_queue(QUEUE, settings, expected=0, now=START)
    coming = sorted(range(len(arrivals)), key=lambda task: (arrivals.created[task], task), reverse=True)
    free, wake = slots, None
    while coming or worker.ends or wake is not None:
        instants = [arrivals.created[coming[-1]]] if coming else []
        instants += [worker.ends[0][0]] if worker.ends else []
        now = min(instants if wake is None else [*instants, wake])
        free += await worker.settle(now)
        while coming and arrivals.created[coming[-1]] == now:
            await worker.enqueue(coming.pop(), now)
        await worker.rerank(now)
        wake = None
        if free:
            given, wake = await worker.claim(free, now)
            free -= given
    await engine.close()
    return worker.starts


class Slots:
    """All slots together."""

    def __init__(self, engine: Engine, arrivals: Arrivals) -> None:
        self.engine = engine
        self.arrivals = arrivals
        self.ids = [uuid7(START // 1000 + number, 0, number) for number in range(len(arrivals))]
        self.ends: list[tuple[Instant, int, Lease]] = []
        self.starts: list[tuple[Instant, int]] = []
        self.sequence = 0

    async def enqueue(self, task: int, now: Instant) -> None:
        arrivals = self.arrivals
        new = new_task(
            id=self.ids[task],
            queue=QUEUE,
            name=arrivals.name[task],
            priority=arrivals.priority[task],
            at=arrivals.ready[task],
            deadline=arrivals.deadline[task],
            tenant=arrivals.tenant[task],
            partition=arrivals.partition[task],
        )
        (answer,) = await self.engine.enqueue([new], now=now)
        assert answer.outcome in (EnqueueOutcome.ENQUEUED, EnqueueOutcome.FULL)

    async def settle(self, now: Instant) -> int:
        done = []
        while self.ends and self.ends[0][0] <= now:
            done.append(Settlement(lease=heappop(self.ends)[2], outcome=Outcome.COMPLETED))
        await self.engine.settle(done, now=now)
        return len(done)

    async def rerank(self, now: Instant) -> None:
        term = await self.engine.lead("worker", now=now)
        assert isinstance(term, Term)
        while (await self.engine.chore("rerank", term, now=now)).more:
            pass

    async def claim(self, free: int, now: Instant) -> tuple[int, Instant | None]:
        """How many were given, and when to look again although no run has ended."""
        self.sequence += 1
        request = ClaimRequest(worker="worker", sequence=self.sequence, queues=(QUEUE,), limit=free)
        claimed = await self.engine.claim(request, now=now)
        for leased in claimed.tasks:
            task = self.ids.index(leased.id)
            self.starts.append((now, task))
            heappush(self.ends, (now + self.arrivals.duration[task], task, Lease(leased.id, leased.lease)))
        left = free - len(claimed.tasks)
        return len(claimed.tasks), now + claimed.next_due_in if left and claimed.next_due_in is not None else None
