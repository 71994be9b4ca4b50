"""Writes the settings of queues that an app's code declares: in a worker when it starts, in a sandbox."""

from __future__ import annotations

import logging

from dibs.core.settings import QueueSettings, declare_settings
from dibs.errors import InvalidOption
from dibs.runtime.definition import QueueDefinition
from dibs.runtime.environment import actor
from dibs.runtime.hub import Hub

__all__ = ["declare_queues"]

log = logging.getLogger("dibs.queues")

TRIES = 10


async def declare_queues(hub: Hub) -> None:
    """Write what has changed in the code since it was last written; what operators have set stays."""
    for mine in list(hub.queues.values()):
        for _ in range(TRIES):
            if await is_declared(hub, mine):
                break
        else:
            log.warning("The settings of queue %s are being changed too often by others to declare them.", mine.name)


async def is_declared(hub: Hub, mine: QueueDefinition) -> bool:
    """Whether the store has what the code declares, after writing it if need be; False if others were faster."""
    known = {record.name: record for record in await hub.engine.queues()}
    old = known[mine.name].settings if mine.name in known else QueueSettings()
    try:
        new = declare_settings(old, mine.settings, mine.given)
    except InvalidOption as error:
        log.error("The settings of queue %s in the code contradict what an operator has set: %s", mine.name, error)
        return True
    if new is old:
        return True
    expected = old.version if mine.name in known else 0
    now = hub.clock.store_now()
    return await hub.engine.set_queue(mine.name, new, expected=expected, actor=actor(), now=now) is not None
