"""What an app calls when a task has ended: `on_success` and `on_failure`, once the store has taken the outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import iscoroutinefunction, isfunction, signature
from typing import Any

from msgspec import Struct

from dibs.core.options import shown
from dibs.core.states import Reason, State
from dibs.core.task import Failure, LeasedTask, Outcome, Settlement
from dibs.errors import InvalidOption
from dibs.runtime.definition import Hook, TaskDefinition
from dibs.runtime.hub import Hub

__all__ = ["TaskEnd", "call_hooks", "check_hook", "end_of", "hooks_for"]

log = logging.getLogger("dibs.worker")


class TaskEnd(Struct, frozen=True, kw_only=True):
    """The end of a task, as hooks see it."""

    id: str
    """Its id."""
    name: str
    """The name of its task definition."""
    queue: str
    """Its queue."""
    attempt: int
    """The number of its last attempt, from 1."""
    state: State
    """`completed` or `dead`."""
    reason: Reason | None = None
    """Why it is dead: `exhausted` (no attempt was left) or `permanent` (not to be retried)."""
    error: Failure | None = None
    """What its last attempt raised: `type`, `message` and `traceback`, as texts."""
    metadata: Mapping[str, Any] = {}
    """Its labels."""
    headers: Mapping[str, str] = {}
    """Texts that travel with it."""


def check_hook(hook: object, what: str) -> Hook:
    """A plain or async function of one argument."""
    if callable(hook):
        try:
            signature(hook).bind(None)
            return hook
        except TypeError:
            pass
        except ValueError:  # a builtin that does not tell
            return hook
    raise InvalidOption(f"{what} must be a function of one argument, the end of the task, not {shown(hook)}.")


def hooks_for(hub: Hub, definition: TaskDefinition, state: State | None) -> list[Hook]:
    """What to call for a task that has come to this state: the task's own hook first, then the app's."""
    if state is State.COMPLETED:
        own, others = definition.on_success, hub.on_success
    elif state is State.DEAD:
        own, others = definition.on_failure, hub.on_failure
    else:
        return []
    return others if own is None else [own, *others]


def end_of(task: LeasedTask, settlement: Settlement, state: State) -> TaskEnd:
    is_dead = state is State.DEAD
    reason = Reason.PERMANENT if settlement.outcome is Outcome.PERMANENT else Reason.EXHAUSTED
    return TaskEnd(
        id=task.id,
        name=task.name,
        queue=task.queue,
        attempt=task.attempt,
        state=state,
        reason=reason if is_dead else None,
        error=settlement.failure if is_dead else None,
        metadata=task.spec.metadata,
        headers=task.spec.headers,
    )


async def call_hooks(
    hooks: list[Hook], end: TaskEnd, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread
) -> None:
    """Call each, plain functions in a thread. What they raise is logged, and harms nothing."""
    for hook in hooks:
        try:
            if iscoroutinefunction(hook):
                await hook(end)
            else:
                await in_thread(partial(hook, end))
        except (Exception, SystemExit, KeyboardInterrupt):
            name = hook.__qualname__ if isfunction(hook) else shown(hook)
            log.exception("The hook %s failed for %s %s, whose outcome stands.", name, end.name, end.id)
