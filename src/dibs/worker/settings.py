"""The settings of one worker, checked when they are made."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from dibs.core.options import (
    CAPABILITIES,
    QUEUES,
    check_flag,
    check_mapping,
    check_name,
    check_names,
    check_number,
    check_real,
)
from dibs.core.times import DAY, SECOND, Duration
from dibs.engines.values import Floor
from dibs.errors import InvalidOption
from dibs.runtime.environment import host, worker_name
from dibs.runtime.hub import Hub


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """What a worker takes and how much of it at once.

    `queues` empty: all queues of the app's tasks. `reserve={80: 2}` keeps two slots for work whose effective priority
    is at least 80. `lease` (seconds) overrides what tasks and queues say. `shutdown_timeout` is how long running tasks
    may take to finish once the worker has been asked to stop. `until_idle` makes it stop by itself when nothing that
    it could run is waiting or running.
    """

    queues: tuple[str, ...] = ()
    """The queues to serve; empty: all queues of the app's tasks."""
    concurrency: int = 10
    """Tasks that run at once."""
    capabilities: tuple[str, ...] = ()
    """What it offers to tasks that require something; `host:NAME` is always offered."""
    reserve: Mapping[int, int] = {}
    """Slots that are kept for urgent work, by effective priority."""
    in_order: bool = False
    """Serve the queues strictly in turn, and don't merge them by priority."""
    name: str | None = None
    """Unique among the workers of a store; None: host, process and a random part."""
    lease: float | None = None
    """Seconds; None: what tasks and queues say."""
    shutdown_timeout: float = 30.0
    """Seconds that running tasks may take to finish once it is asked to stop."""
    prefetch: bool = True
    """Whether to claim a little more than there are free slots."""
    until_idle: bool = False
    """Stop when nothing that it could run is waiting or running."""

    def __post_init__(self) -> None:
        check_number(self.concurrency, "concurrency", 1, 10_000)
        check_names(self.queues, "queues", QUEUES)
        check_names(self.capabilities, "capabilities", CAPABILITIES)
        for flag in ("in_order", "prefetch", "until_idle"):
            check_flag(getattr(self, flag), flag)
        if self.name is not None:
            check_name(self.name, "a worker's name")
        for priority, slots in check_mapping(self.reserve, "reserve", "{80: 2}").items():
            check_number(priority, "the priority in reserve", 1, 100)
            check_number(slots, "the slots in reserve", 1, 10_000)
        if self.reserved >= self.concurrency:
            raise InvalidOption(
                f"reserve keeps {self.reserved} of {self.concurrency} slots for urgent work, which leaves none for the "
                "rest. Reserve fewer, or raise concurrency."
            )
        if self.lease is not None:
            check_real(self.lease, "lease", 1, DAY / SECOND)
        check_real(self.shutdown_timeout, "shutdown_timeout", 0, DAY / SECOND)

    @property
    def reserved(self) -> int:
        """Slots that are kept for urgent work."""
        return sum(self.reserve.values())

    def lease_span(self) -> Duration | None:
        """The lease to ask for; None: what the task says."""
        return None if self.lease is None else round(self.lease * SECOND)

    def worker_id(self) -> str:
        """The worker's name, or a unique one."""
        return self.name or worker_name()

    def served(self, hub: Hub) -> tuple[str, ...]:
        """The queues to claim from, in order."""
        known = dict.fromkeys(definition.queue for definition in hub.definitions.values())
        return self.queues or tuple(known) or ("default",)

    def offered(self) -> tuple[str, ...]:
        """The capabilities, and the one that every worker has: its host."""
        return tuple(dict.fromkeys((*self.capabilities, f"host:{host()}")))

    def ceilings(self) -> tuple[Floor, ...]:
        """Per reserved priority, how many slots work below it may hold: each level keeps its own and those above it."""
        levels = sorted(self.reserve)
        return tuple(
            Floor(level, self.concurrency - sum(self.reserve[each] for each in levels if each >= level))
            for level in levels
        )
