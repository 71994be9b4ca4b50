"""From a function to a task definition."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, get_type_hints

from dibs.attempt.context import Context
from dibs.client.options import check_requires, label_of
from dibs.core.codec import Signature
from dibs.core.options import check_choice, check_name, check_number, is_several, nearest, shown
from dibs.core.priority import parse_priority
from dibs.core.retry import ExceptionTypes
from dibs.core.settings import Defaults
from dibs.errors import InvalidOption
from dibs.runtime.definition import ExecutorKind, TaskDefinition

__all__ = ["define", "functions_of", "importable"]

MIB = 1024 * 1024


def define(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    queue: str = "default",
    priority: int | str = 50,
    options: Defaults = Defaults(),
    requires: Iterable[str] = (),
    retry_on: ExceptionTypes | type[BaseException] = (Exception,),
    no_retry: ExceptionTypes | type[BaseException] = (),
    executor: str | None = None,
    memory_limit: int | None = None,
    per: str | None = None,
) -> TaskDefinition:
    """The definition of a task, with everything checked."""
    if isinstance(function, type) or not hasattr(function, "__qualname__"):
        raise InvalidOption(f"a task is made from a function, not from {shown(function)}.")
    task_name = check_name(default_name(function) if name is None else name, "a task's name")
    takes_context = wants_context(function)
    signature = Signature(function, task_name, takes_context)
    return TaskDefinition(
        name=task_name,
        function=function,
        signature=signature,
        takes_context=takes_context,
        executor=executor_for(function, executor, task_name),
        queue=check_name(queue, "queue"),
        priority=parse_priority(priority),
        options=options,
        requires=check_requires(requires),
        retry_on=exception_types(retry_on, "retry_on"),
        no_retry=exception_types(no_retry, "no_retry"),
        memory_limit=None if memory_limit is None else check_number(memory_limit, "memory_limit", 16 * MIB, 2**50),
        per=None if per is None else check_per(per, signature),
    )


def check_per(per: object, signature: Signature) -> str:
    """The name of a parameter; its default must be a valid partition."""
    if not isinstance(per, str) or per not in signature.known:
        raise InvalidOption(
            f"per={shown(per)} must be the name of a parameter of {signature.name}.{nearest(per, signature.known)} "
            f"Its parameters: {signature.parameter_names}. "
            "To give the partition itself, use .using(per=…)."
        )
    default = signature.defaults.get(per)
    if default is not None:
        label_of(default, f"{signature.name} is limited per {per}, whose default")
    return per


def default_name(function: Callable[..., Any]) -> str:
    """`module.function`; for the main program the name that others would import it by."""
    module = function.__module__
    if module in ("__main__", "__mp_main__"):  # the second in a process that was spawned by the main program
        main = sys.modules[module]
        spec = getattr(main, "__spec__", None)
        file = getattr(main, "__file__", None)
        module = spec.name if spec else Path(file).stem if file else "main"
    name = f"{module}.{function.__qualname__.rpartition('<locals>.')[2]}"
    if "<" in name:
        raise InvalidOption(f"{name} is no name by which a task can be found: give one, @app.task(name=…).")
    return name


def wants_context(function: Callable[..., Any]) -> bool:
    """Whether the first parameter is annotated as Context."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        return False
    annotation = parameters[0].annotation
    if isinstance(annotation, str):
        try:
            annotation = get_type_hints(function).get(parameters[0].name)
        except NameError:  # another annotation can't be resolved yet: there is only the text
            return str(annotation).rpartition(".")[2] == "Context"
    return annotation is Context


def executor_for(function: Callable[..., Any], executor: str | None, name: str) -> ExecutorKind:
    is_async = inspect.iscoroutinefunction(function)
    if executor is None:
        return ExecutorKind.LOOP if is_async else ExecutorKind.THREAD
    kind = check_choice(ExecutorKind, executor, "executor")
    if kind is ExecutorKind.LOOP and not is_async:
        raise InvalidOption(f"task {name} is a plain function: only async functions run on the loop.")
    if kind is ExecutorKind.THREAD and is_async:
        raise InvalidOption(f"task {name} is async: it runs on the loop, or in a process.")
    return kind


def exception_types(value: ExceptionTypes | type[BaseException], option: str) -> tuple[type[BaseException], ...]:
    types: tuple[Any, ...] = tuple(value) if is_several(value) else (value,)
    for each in types:
        if not isinstance(each, type) or not issubclass(each, BaseException):
            raise InvalidOption(f"{option} must be exception classes, and {shown(each)} is none.")
    return types


def importable(function: Callable[..., Any], allowed: Iterable[str]) -> str:
    """The name of a plain function that workers may import, if its module is allowed."""
    module = getattr(function, "__module__", None)
    qualname = getattr(function, "__qualname__", "")
    if not isinstance(function, FunctionType) or module is None or "<" in qualname or "." in qualname:
        raise InvalidOption(
            f"{shown(function)} can't be imported by a worker: use a function at the top level of a module."
        )
    if module not in set(allowed):
        raise InvalidOption(
            f"functions of {module} are not allowed as tasks: decorate {qualname} with @app.task, "
            f"or make the app with Dibs(…, allow=[{module!r}])."
        )
    return f"{module}:{qualname}"


def functions_of(module_name: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The plain functions that a module defines, by the names that `importable` gives them."""
    module: ModuleType = import_module(module_name)
    for name, value in vars(module).items():
        if isinstance(value, FunctionType) and value.__module__ == module_name and not name.startswith("_"):
            yield f"{module_name}:{name}", value
