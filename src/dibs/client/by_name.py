"""A task by its name alone, for producers that don't have its code: the worker that runs it checks the arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from dibs.client.options import Options
from dibs.core.codec import fingerprint
from dibs.core.options import check_name
from dibs.core.task import NewTask
from dibs.runtime.hub import Hub

__all__ = ["draft_by_name", "new_by_name"]


def draft_by_name(hub: Hub, name: str, options: Options) -> NewTask:
    """What is the same for every task of this name with these options, among which is its queue."""
    return options.draft(hub, check_name(name, "a task's name"))


def new_by_name(
    hub: Hub, name: str, arguments: Mapping[str, Any], options: Options, draft: NewTask | None = None
) -> NewTask:
    """The task to enqueue. `draft` saves making it again for each of many."""
    return structs.replace(
        draft_by_name(hub, name, options) if draft is None else draft,
        id=options.id or hub.new_id(),
        args=hub.codec.encode(arguments, f"the arguments of {name}"),
        fingerprint="" if options.key is None else fingerprint(name, arguments),
    )
