"""`app.queues`: settings and states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Unpack

from msgspec import Struct

from dibs.client.blocking import Admin, blocking
from dibs.client.info import snapshot
from dibs.client.options import SharedOptions, Span, check_known
from dibs.core.fairness import weight
from dibs.core.limits import LimitState
from dibs.core.options import PAGE_LIMIT, check_flag, check_name, check_number
from dibs.core.priority import Bound
from dibs.core.settings import Limit, Policy, QueueSettings, change_settings
from dibs.core.states import State
from dibs.core.task import QueueRecord, QueueState
from dibs.engines.values import Changed
from dibs.errors import InvalidOption, QueueNotEmpty, StoreBusy, UnknownQueue
from dibs.runtime.definition import QueueDefinition
from dibs.runtime.environment import actor
from dibs.runtime.hub import Hub

__all__ = ["QueueChanges", "QueueInfo", "Queues", "TenantInfo", "declare_queue"]

AnyLimit = int | Limit | Mapping[str, Any]
TRIES = 10
NEXT = 20
"""The next tasks of a queue, whose limits are shown."""


class QueueChanges(SharedOptions, total=False):
    """What can be set for a queue; durations in seconds or as timedelta.

    A limit of `per_task` and `per_partition` is the number that may run at once, or a mapping with `max_concurrent`,
    `rate` (starts per second) and `burst`.
    """

    policy: Policy | Literal["aging", "tiers", "strict"]
    """How it orders its tasks: "aging" (default; waiting raises the priority), "tiers" (four bands, with promotion),
    "strict"."""
    aging: Span
    """Seconds of waiting that are worth one point of priority. Default: 600."""
    max_aging_bonus: int | None
    """The most points that waiting can add; None: no cap, so that nothing waits for ever."""
    retry_penalty: int
    """Points that each failed attempt costs. Default: 2."""
    deadline_weight: int
    """Points that a deadline adds when it is reached. Default: 30."""
    deadline_horizon: Span
    """Seconds before the deadline at which its steps begin. Default: an hour."""
    promote_low: Span
    """With "tiers": seconds after which a task of the low tier counts as medium. Default: 600."""
    promote_medium: Span
    """With "tiers": seconds after which a medium task counts as high. Default: 1200."""
    tiers: Mapping[str, Mapping[str, Any]]
    """With "tiers": retries, timeout and the like per tier, `{'low': {'retries': 2}}`."""
    max_depth: int | None
    """Pending tasks at which new ones are refused with `QueueFull`."""
    max_concurrent: int | None
    """Tasks that may run at once, over all workers."""
    rate: float | None
    """Starts per second, over all workers."""
    burst: int | None
    """Starts that may come at once after a pause; None: one second's worth."""
    per_task: Mapping[str, AnyLimit]
    """Limits by task name."""
    per_partition: AnyLimit | None
    """A limit for each partition (`per=`)."""
    enqueue_rate: float | None
    """Tasks per second that each client may enqueue, else `RateLimited`."""
    enqueue_burst: int | None
    """Tasks that a client may enqueue at once after a pause; None: one second's worth."""
    fair: bool
    """Share the queue between tenants. Default: False."""
    weights: Mapping[str, float]
    """Shares of tenants; 1 where none is given."""
    keep: Span
    """Seconds for which completed and cancelled tasks are kept. Default: 7 days."""
    keep_dead: Span
    """Seconds for which dead tasks are kept. Default: 30 days."""


class QueueInfo(Struct, frozen=True, kw_only=True):
    """A queue as it was when it was read."""

    name: str
    """Its name."""
    state: QueueState
    """active, paused or draining."""
    settings: QueueSettings
    """All its settings, as they are stored: durations in microseconds."""
    counts: dict[State, int]
    """Tasks by state; exact."""
    stale: int
    """Waiting tasks that are still ranked by earlier settings."""
    bound: Bound
    """How long a task can be overtaken."""


class TenantInfo(Struct, frozen=True, kw_only=True):
    """A tenant of a fair queue that has pending tasks."""

    tenant: str
    """Whose share of a fair queue it is charged to."""
    pending: int
    """Its pending tasks in this queue."""
    weight: float
    """Its share, beside those of others."""


QueueInfos = list[QueueInfo]
TenantInfos = list[TenantInfo]
LimitStates = list[LimitState]
"""Named here, because inside the class `list` is a method."""


class Queues(Admin):
    """Reading and changing queues."""

    async def alist(self) -> QueueInfos:
        """All queues by name, with exact counts."""
        counts = (await self._ask(self.hub.engine.counts())).tasks
        zeros = dict.fromkeys(State, 0)
        return [
            queue_info(record, counts.get(record.name, zeros)) for record in await self._ask(self.hub.engine.queues())
        ]

    list = blocking(alist)

    async def aget(self, name: str) -> QueueInfo:
        """One queue."""
        check_name(name, "queue")
        for info in await self.alist():
            if info.name == name:
                return info
        raise UnknownQueue(f"no queue is called {name!r}.")

    get = blocking(aget)

    async def aset(self, name: str, **changes: Unpack[QueueChanges]) -> QueueInfo:
        """Change a queue's settings, making it if there is none. None goes back to no limit, or to the default."""
        check_name(name, "queue")
        engine = self.hub.engine
        for _ in range(TRIES):
            known = {record.name: record for record in await self._ask(engine.queues())}
            old = known[name].settings if name in known else QueueSettings()
            new = change_settings(old, changes)
            expected = old.version if name in known else 0
            asked = engine.set_queue(name, new, expected=expected, actor=actor(), now=self._now)
            if (record := await self._ask(asked)) is not None:
                counts = (await self._ask(engine.counts())).tasks
                return queue_info(record, counts.get(name, dict.fromkeys(State, 0)))
        raise StoreBusy(f"queue {name!r} is being changed too often by others: try again.")

    set = blocking(aset)

    async def atenants(self, name: str, limit: int = 100) -> TenantInfos:
        """Tenants of a fair queue that have pending tasks, in the order in which they are served."""
        check_number(limit, "limit", 1, PAGE_LIMIT)
        settings = (await self.aget(name)).settings
        found = (await self._ask(self.hub.engine.standing(name, tenants=limit))).tenants
        return [snapshot(TenantInfo, each, weight=weight(settings, each.tenant)) for each in found]

    tenants = blocking(atenants)

    async def afull_limits(self, name: str) -> LimitStates:
        """Limits that hold back some of the queue's next tasks now."""
        engine, now = self.hub.engine, self._now
        peeked = await self._ask(engine.peek(check_name(name, "queue"), NEXT, now=now))
        kinds = {(task.name, task.spec.partition): task.id for task in peeked.tasks}
        standing = await self._ask(engine.standing(name, list(kinds.values()), now=now))
        found = [state for states in standing.limits for state in states]
        return [*{(state.scope, state.whose): state for state in found if state.is_full}.values()]

    full_limits = blocking(afull_limits)

    async def apause(self, name: str) -> bool:
        """Hand out nothing; tasks are still enqueued and age. False if it was paused."""
        return await self._state(name, QueueState.PAUSED)

    pause = blocking(apause)

    async def aresume(self, name: str) -> bool:
        """Make it active again. False if it was active."""
        return await self._state(name, QueueState.ACTIVE)

    resume = blocking(aresume)

    async def adrain(self, name: str) -> bool:
        """Take no new tasks, finish the existing ones. False if it was draining."""
        return await self._state(name, QueueState.DRAINING)

    drain = blocking(adrain)

    async def _state(self, name: str, state: QueueState) -> bool:
        check_name(name, "queue")
        answer = await self._ask(self.hub.engine.set_queue_state(name, state, actor=actor(), now=self._now))
        if answer is Changed.UNKNOWN:
            raise UnknownQueue(f"no queue is called {name!r}.")
        return answer is Changed.DONE

    async def adelete(self, name: str, *, force: bool = False) -> None:
        """Delete a queue. If it has unfinished tasks, `force` is needed: waiting ones become dead, to be replayed."""
        check_name(name, "queue")
        check_flag(force, "force")
        answer = await self._ask(self.hub.engine.delete_queue(name, force=force, actor=actor(), now=self._now))
        if answer is Changed.UNKNOWN:
            raise UnknownQueue(f"no queue is called {name!r}.")
        if answer is Changed.WRONG_STATE:
            raise QueueNotEmpty(
                f"queue {name!r} has unfinished tasks. Drain it first, or delete it with force: "
                "waiting tasks then become dead and can be replayed into another queue."
            )

    delete = blocking(adelete)


def queue_info(record: QueueRecord, counts: dict[State, int]) -> QueueInfo:
    return snapshot(QueueInfo, record, counts=counts, bound=Bound(record.settings))


def declare_queue(hub: Hub, name: str, settings: QueueChanges) -> None:
    """Add settings of a queue to the app: its workers declare them in the store."""
    chosen = check_name(name, "queue")
    if chosen in hub.queues:
        raise InvalidOption(f"the settings of queue {chosen!r} are declared twice: give them all in one place.")
    check_known(settings, QueueChanges.__annotations__, "a queue")
    code = change_settings(QueueSettings(), settings)
    hub.queues[chosen] = QueueDefinition(name=chosen, settings=code, given=tuple(settings))
