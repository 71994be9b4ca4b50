"""From a function to a task definition."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, get_type_hints

from dibs.attempt.context import Context
from dibs.attempt.hooks import check_hook
from dibs.client.options import Span, check_requires, label_of
from dibs.core.codec import Signature
from dibs.core.options import check_choice, check_flag, check_name, check_number, is_several, nearest, shown
from dibs.core.priority import parse_priority
from dibs.core.retry import ExceptionTypes, check_backoff
from dibs.core.settings import Defaults
from dibs.errors import InvalidOption
from dibs.runtime.definition import ExecutorKind, Hook, TaskDefinition

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
    keep_result: bool = True,
    backoff: Sequence[Span] | Callable[..., Span] | None = None,
    on_success: Hook | None = None,
    on_failure: Hook | None = None,
) -> TaskDefinition:
    """The definition of a task, with everything checked."""
    check_function(function)
    task_name = chosen_name(function) if name is None else check_name(name, "a task's name")
    takes_context = wants_context(function, task_name)
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
        keep_result=check_flag(keep_result, "keep_result"),
        backoff=None if backoff is None else check_backoff(backoff),
        on_success=None if on_success is None else check_hook(on_success, "on_success"),
        on_failure=None if on_failure is None else check_hook(on_failure, "on_failure"),
    )


def check_function(function: Callable[..., Any]) -> None:
    """Refuse what can't be a task, though Python can call it."""
    if isinstance(function, type | staticmethod | classmethod) or not hasattr(function, "__qualname__"):
        raise InvalidOption(f"a task is made from a function, not from {shown(function)}.")
    name = function.__qualname__
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidOption(
            f"{name} yields, so calling it runs nothing and it has no result: a task is a function that returns. For "
            "many values, return a list, or enqueue a task for each."
        )
    owner = name.rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters), None)
    is_method = bool(owner) and not owner.endswith("<locals>") and first in ("self", "cls")
    if inspect.ismethod(function) or is_method:
        raise InvalidOption(
            f"{name} is a method, and a worker has no object to call it on: make a function a task, and have it make "
            "or load the object."
        )


def chosen_name(function: Callable[..., Any]) -> str:
    """The name that a function gives its task."""
    name = default_name(function)
    if "<" in name:  # a lambda, or code that was typed in or piped
        raise InvalidOption(f"{shown(name)} can't be a task's name, as no worker could find it again: give name=….")
    return check_name(name, "a task's name")


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
    return f"{module}.{function.__qualname__.rpartition('<locals>.')[2]}"


def wants_context(function: Callable[..., Any], name: str) -> bool:
    """Whether the first parameter is annotated as Context; no other may be."""
    parameters = list(inspect.signature(function).parameters.values())
    wanting = [place for place, each in enumerate(parameters) if is_context(each, function)]
    if not wanting:
        return False
    first = parameters[0]
    if wanting != [0] or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        wrong = parameters[wanting[-1]].name
        raise InvalidOption(
            f"task {name} takes its Context as {wrong!r}: it must be the first parameter, and the only one, as in "
            f"def {function.__name__}({wrong}: Context, …)."
        )
    return True


def is_context(parameter: inspect.Parameter, function: Callable[..., Any]) -> bool:
    annotation = parameter.annotation
    if isinstance(annotation, str):
        try:
            annotation = get_type_hints(function).get(parameter.name)
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
