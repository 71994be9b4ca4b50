"""`complete_in`: a task's own writes and its completion in one transaction."""

from __future__ import annotations

from typing import Any

from dibs.attempt import outcome
from dibs.core.reference import result_of
from dibs.core.task import LeasedTask, Settlement
from dibs.engines.values import SettleOutcome
from dibs.errors import LeaseLost
from dibs.runtime.hub import Hub
from dibs.runtime.joining import ainside, inside

__all__ = ["acomplete_in", "complete_in"]


def complete_in(hub: Hub, task: LeasedTask, connection: Any, result: object) -> Settlement:
    """Write the completion into the transaction, blocking; raises `LeaseLost` if the run has lost its lease."""
    payload = encoded(hub, task, result)
    if payload is not None:
        payload = hub.payloads.stored(payload, task.id, result_of(task.lease), name_of_result(task))
    settlement, now = outcome.completed(task, payload), hub.clock.store_now()
    check(task, inside(hub, connection, lambda joined: joined.complete(settlement, now=now)))
    return settlement


async def acomplete_in(hub: Hub, task: LeasedTask, connection: Any, result: object) -> Settlement:
    """`complete_in` for async code."""
    payload = encoded(hub, task, result)
    if payload is not None:
        payload = await hub.payloads.astored(payload, task.id, result_of(task.lease), name_of_result(task))
    settlement, now = outcome.completed(task, payload), hub.clock.store_now()
    check(task, await ainside(hub, connection, lambda joined: joined.complete(settlement, now=now)))
    return settlement


def encoded(hub: Hub, task: LeasedTask, result: object) -> bytes | None:
    definition = hub.definitions.get(task.name)
    if definition is None:
        return None if result is None else hub.codec.encode(result, name_of_result(task))
    return definition.signature.encode_result(result, hub.codec, task.id) if definition.keep_result else None


def name_of_result(task: LeasedTask) -> str:
    return f"the result of {task.name}"


def check(task: LeasedTask, answer: SettleOutcome) -> None:
    """Raise if the completion was refused; `already` means that this run has completed the task before."""
    if answer is SettleOutcome.REFUSED:
        raise LeaseLost(
            f"the lease of task {task.id} is not the current one: another worker may be running it, or it has ended. "
            "Let this error roll your transaction back."
        )
