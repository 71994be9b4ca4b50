"""Where an executor process imports the app from: `MODULE:APP`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from typing import Any

from dibs.errors import UsageError
from dibs.runtime.hub import Hub

__all__ = ["find_app_path", "hub_at"]


def find_app_path(hub: Hub, given: str | None = None) -> str:
    """The path that was `given`; else that of the variable that holds the app in a module that defines its tasks.

    A given path may lack the variable: then its module is looked at first.
    """
    module, _, attribute = (given or "").partition(":")
    if attribute:
        return f"{module}:{attribute}"
    for name in dict.fromkeys([module, *(each.function.__module__ for each in hub.definitions.values())]):
        for variable in variables_holding(hub, name):
            return f"{name}:{variable}"
    raise UsageError(
        'tasks with executor="process" run in processes that import the app, but none of the modules that define its '
        "tasks has it in a variable: import it there by name (from myproject import app), or start the worker with "
        "dibs worker MODULE:APP."
    )


def variables_holding(hub: Hub, module_name: str) -> Iterator[str]:
    module = sys.modules.get(module_name)
    if module is None or (module_name == "__main__" and not hasattr(module, "__file__")):  # nothing to import again
        return
    for name, value in tuple(vars(module).items()):
        try:  # read from the instance's own dictionary: attribute access on foreign objects may have side effects
            if object.__getattribute__(value, "__dict__").get("hub") is hub:
                yield name
        except (AttributeError, TypeError):
            continue


def hub_at(path: str) -> Hub:
    """Import the app at a path."""
    module, _, attribute = path.partition(":")
    app: Any = reduce(getattr, attribute.split("."), import_module(module))
    hub: Hub = app.hub
    return hub
