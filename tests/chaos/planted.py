"""Bugs to be found: a check that finds none of them is not worth its time.

Each is switched on in the processes of a run by `CHAOS_PLANT`, and damages Dibs from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from dibs.core.task import Lease, Settlement
from dibs.engines.values import Extension

__all__ = ["PLANTS", "plant"]


def without_fence() -> None:
    """Settling and extending work with any lease."""

    def lenient(verb: Any) -> Any:
        async def believe(self: Any, reports: Sequence[Settlement | Extension], **more: Any) -> Any:
            records = await self.get([each.lease.id for each in reports])
            current = [
                each if record is None else structs.replace(each, lease=Lease(each.lease.id, record.lease))
                for each, record in zip(reports, records, strict=True)
            ]
            return await verb(self, current, **more)

        return believe

    for engine in engines():
        engine.settle = lenient(engine.settle)
        engine.extend = lenient(engine.extend)


def without_wake_ups() -> None:
    """Nobody hears that there is work."""

    class Deaf:
        async def wait(self, timeout: float) -> bool:
            await asyncio.sleep(timeout)
            return False

        def close(self) -> None: ...

    for engine in engines():
        engine.subscribe = lambda *_: Deaf()


def without_hold_off() -> None:
    """Who was away takes what others hold as soon as it is back, and asks for it without saying what it knows."""
    from dibs.runtime.rescue import Rescue

    Rescue.holds_off = lambda *_: False  # type: ignore[method-assign]
    Rescue.look = lambda self: self._hub.engine.rescue()  # type: ignore[method-assign]


def engines() -> list[Any]:
    from dibs.engines.postgres import PostgresEngine
    from dibs.engines.redis import RedisEngine
    from dibs.engines.sqlite import SqliteEngine

    return [SqliteEngine, PostgresEngine, RedisEngine]


PLANTS: dict[str, Callable[[], None]] = {
    "no-fence": without_fence,
    "no-wake-ups": without_wake_ups,
    "no-hold-off": without_hold_off,
}


def plant(name: str) -> None:
    if name:
        PLANTS[name]()
