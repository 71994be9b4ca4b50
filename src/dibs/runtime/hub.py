"""The parts of one app: its engine, loop, clock, codec, blob store, definitions and coalescers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from typing import Any

from dibs.core.backpressure import FullQueue
from dibs.core.codec import Codec
from dibs.core.options import brief, nearest, shown
from dibs.core.settings import Defaults
from dibs.core.task import NewTask, Settlement
from dibs.engines.base import Engine, MayBlock
from dibs.engines.open import shown_url
from dibs.engines.port import at_once
from dibs.engines.values import EnqueueAnswer, Feature, SettleAnswer
from dibs.errors import InvalidOption
from dibs.observe.meters import Meters
from dibs.observe.tracing import Tracing
from dibs.runtime.breaker import Breaker
from dibs.runtime.clock import Clock
from dibs.runtime.coalesce import Coalescer
from dibs.runtime.definition import Hook, QueueDefinition, ScheduleDefinition, TaskDefinition
from dibs.runtime.ids import IdMaker
from dibs.runtime.instrument import instrumented
from dibs.runtime.loop import LoopRunner
from dibs.runtime.payloads import Payloads

__all__ = ["Hub", "Lifespan"]

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


class Hub:
    """The parts of an app that client and worker share. Two hubs in one process are independent."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock,
        codec: Codec,
        defaults: Defaults,
        url: str,
        payloads: Payloads | None = None,
    ) -> None:
        self.meters = Meters()
        self.breaker = Breaker()
        self.engine = instrumented(engine, self.meters, self.breaker)
        self.features = engine.features
        self.clock = clock
        self.codec = codec
        self.defaults = defaults
        self.url = url
        self.store_name = shown_url(url)
        """The store's URL for people, without passwords."""
        self.client = ""
        """The name of this client, for limits on enqueueing."""
        self.payloads = payloads or Payloads()
        self.new_id = IdMaker()
        self.definitions: dict[str, TaskDefinition] = {}
        self.schedules: dict[str, ScheduleDefinition] = {}
        self.queues: dict[str, QueueDefinition] = {}
        self.on_success: list[Hook] = []
        self.on_failure: list[Hook] = []
        self.load_allowed: Callable[[], None] = lambda: None
        """Defines the functions of allowed modules; workers call it before they report the tasks that they know."""
        self.full_queues: dict[str, tuple[float, FullQueue]] = {}
        """What was last read of full queues, and when."""
        self.middleware: list[Any] = []
        self.tracing: Tracing | None = None
        self.log_facts: Callable[[], dict[str, str]] | None = None
        """What log records inside a task also say, such as the current span."""
        self.lifespan: Lifespan | None = None
        self.creates = True
        """Whether opening the store creates it where there is none."""
        self.runner = LoopRunner(self.open, self.forget)
        self.enqueuer: Coalescer[NewTask, EnqueueAnswer] = Coalescer(self.runner, self._flush_enqueues)
        self.settler: Coalescer[Settlement, SettleAnswer] = Coalescer(self.runner, self._flush_settlements)

    def seen_through(self, engine: Engine, client: str, enqueuer: Any, settler: Any) -> Hub:
        """The same parts, but for these: what others are allowed to do with them."""
        found = copy(self)
        found.engine, found.client, found.enqueuer, found.settler = engine, client, enqueuer, settler
        return found

    async def open(self, may_block: MayBlock) -> None:
        await self.engine.open(may_block, create=self.creates)

    def forget(self) -> None:
        """In a forked child: reset, without closing what belongs to the parent."""
        self.engine.forget()
        self.meters.forget()
        self.breaker.forget()
        self.enqueuer.forget()
        self.settler.forget()

    def enqueue_at_once(self, new: NewTask) -> EnqueueAnswer | None:
        """On this thread, without the loop, if the engine can and no other call is under way; otherwise None.

        For a lone caller, driving the loop would cost more than all else that an enqueue does in Python.
        """
        if Feature.INLINE not in self.features or not self.runner.take():
            return None
        try:
            return at_once(self.engine.enqueue([new], now=self.clock.store_now()))[0]
        finally:
            self.runner.give_back()

    async def _flush_enqueues(self, tasks: Sequence[NewTask]) -> list[EnqueueAnswer]:
        return await self.engine.enqueue(tasks, now=self.clock.store_now())

    async def _flush_settlements(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        return await self.engine.settle(settlements, now=self.clock.store_now())

    def define(self, definition: TaskDefinition) -> None:
        """Add a task; names are unique."""
        there = self.definitions.get(definition.name)
        if there is not None and there.function is not definition.function:
            raise InvalidOption(
                f"two tasks are called {definition.name!r}: {there.function.__module__}.{there.function.__qualname__} "
                f"and {definition.function.__module__}.{definition.function.__qualname__}. Give one of them name=…"
            )
        self.definitions[definition.name] = definition

    def definition(self, name: str) -> TaskDefinition:
        """The task of this name; the last part of the name will do if it is unique."""
        if not isinstance(name, str):
            raise InvalidOption(f"a task's name must be a text, not {shown(name)}.")
        if name not in self.definitions:
            self.load_allowed()
        if name in self.definitions:
            return self.definitions[name]
        ending = [each for each in self.definitions if each.endswith((f".{name}", f":{name}"))]
        if len(ending) == 1:
            return self.definitions[ending[0]]
        known = f" Several are: {brief(', '.join(ending), 300)}." if ending else nearest(name, self.definitions)
        raise InvalidOption(f"no task is called {shown(name)} here.{known}")
