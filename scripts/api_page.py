"""The pages of the Python API, read from signatures, annotations and docstrings.

A page has roots, and everything public that its roots take and give, unless another page has it as a root.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import FunctionType
from typing import Any, get_args

from dibs import Call, Context, Dibs, Filter, Handle, Permanent, Retry, State, Task, chain, group, take
from dibs.client.consumer import Consumer
from dibs.client.events import EventFeed, EventInfo
from dibs.client.flow import Chain, Group
from dibs.client.info import TaskInfo
from dibs.client.options import CallOptions, RecurrenceOptions, SharedOptions, TaskOptions
from dibs.client.queues import QueueChanges, Queues
from dibs.client.schedules import Schedules
from dibs.client.stats import QueueStats
from dibs.client.steps import Steps
from dibs.client.tasks import Tasks
from dibs.client.workers import Workers
from dibs.client.workflows import Workflow, Workflows
from dibs.core.codec import PayloadCodec
from dibs.core.retry import TRANSIENT
from dibs.integrations.django import use_django
from dibs.integrations.opentelemetry import use_opentelemetry
from dibs.integrations.prometheus import register_metrics, serve_metrics
from dibs.testing import ManualClock
from dibs.testing.sandbox import Sandbox
from dibs.worker import Worker, WorkerSettings

__all__ = ["api_pages", "wordless"]

Words = Mapping[str, str]

PUBLIC = ("dibs.client.", "dibs.attempt.", "dibs.worker.", "dibs.testing.", "dibs.core.", "dibs.runtime.clock")
INTERNAL = """
    After AsyncTask CatchUp ChildLink Codec Decorator Defaults Edge Flow Hub LeasedTask Link Map Named NewTask
    Options Overlap Placeholder Reason Result ResultWaiter ScheduleDecorator Settlement Shape Signature Source
    TaskDefinition TaskRecord TaskSpec Expected Ranking Tier Policy Outcome QueueSettings Recurrence
"""
"""Types behind the API that no page explains: they are texts or values that one never makes."""
HIDDEN = """
    Bound.settings Call.first_tasks Call.last_tasks Call.new Call.shape Chain.first_tasks Chain.last_tasks
    Chain.shape Consumer.prepare Consumer.worker Group.shape Handle.last_tasks Handle.shape ManualClock.now
    ManualClock.move_to_instant ManualClock.store_now Schedules.put
"""
"""Public for other parts of Dibs only."""
ATTRIBUTES = {
    "Handle": ("id", "queue", "duplicate", "info"),
    "Claim": ("id", "name", "queue", "args", "attempt", "lease", "expires_at", "cancelled", "exhausted"),
}
"""What instances have besides what the body of their class says."""
FIELDS_ONLY = frozenset({"WorkerSettings"})
CALLED = {
    "Dibs": "app",
    "Consumer": "app",
    "Tasks": "app.tasks",
    "Queues": "app.queues",
    "Schedules": "app.schedules",
    "Workers": "app.workers",
    "Workflows": "app.workflows",
    "Steps": "app.steps",
    "Task": "task",
    "Handle": "handle",
    "Context": "ctx",
    "Workflow": "workflow",
    "Worker": "worker",
    "Sandbox": "sandbox",
    "ManualClock": "clock",
    "EventFeed": "feed",
}
"""What an instance is called on the pages."""


@dataclass(frozen=True)
class Page:
    """One page: its name and title, what it says first, what it explains, and links to read on."""

    name: str
    title: str
    says: str
    roots: tuple[Any, ...]
    guides: tuple[str, ...] = field(default=())


PAGES = (
    Page(
        "app",
        "The app",
        "`from dibs import Dibs`. Methods that talk to the store have an async twin that begins with `a`.",
        (Dibs, Consumer, EventFeed, EventInfo, QueueStats, PayloadCodec),
        ("configuration", "middleware-and-lifespan", "own-loop", "events"),
    ),
    Page(
        "tasks",
        "Tasks",
        "`from dibs import Task, Call, chain, group, take`. `@app.task` makes a `Task`; `using(…)` gives the same task "
        "with options of the call.",
        (Task, TaskOptions, CallOptions, SharedOptions, RecurrenceOptions, Call, chain, group, take, Chain, Group),
        ("retries-and-failures", "delays-and-deadlines", "idempotency", "workflows"),
    ),
    Page(
        "handles",
        "Handles and snapshots",
        "`from dibs import Handle, Filter, State`. A handle leads to one task; a `TaskInfo` is what was read of it.",
        (Handle, TaskInfo, Filter, State, Workflow),
        ("context", "workflows"),
    ),
    Page(
        "context",
        "Inside a task",
        "`from dibs import Context, Permanent, Retry, TRANSIENT`. What a task can ask and say.",
        (Context, Retry, Permanent),
        ("context", "retries-and-failures", "transactions"),
    ),
    Page(
        "administration",
        "Administration",
        "What `app.tasks`, `app.queues`, `app.schedules`, `app.workers`, `app.workflows` and `app.steps` can do.",
        (Tasks, Queues, QueueChanges, Schedules, Workers, Workflows, Steps),
        ("on-call", "limits-and-fairness", "schedules"),
    ),
    Page(
        "workers",
        "Workers",
        "`app.worker(…)` gives a `Worker`; `from dibs.worker import Worker, WorkerSettings` for settings that it does "
        "not take.",
        (Worker, WorkerSettings),
        ("production", "routing"),
    ),
    Page(
        "testing",
        "Testing",
        "`from dibs.testing import Sandbox, ManualClock`. Fixtures: `dibs_sandbox`, `dibs_clock`.",
        (Sandbox, ManualClock),
        ("testing",),
    ),
    Page(
        "integrations",
        "Integrations",
        "Each is one call, imported from its module of `dibs.integrations`.",
        (use_django, use_opentelemetry, register_metrics, serve_metrics),
        ("django", "tracing", "metrics"),
    ),
)


# Reading the code.


@dataclass(frozen=True)
class Member:
    """A method, property or field of a class."""

    name: str
    kind: str
    signature: str
    words: str
    twin: str = ""
    default: str = ""


def tree_of(thing: Any) -> ast.ClassDef | ast.FunctionDef:
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]  # type: ignore[return-value]


def words_in(node: ast.AST | None) -> str:
    """A text that stands for itself below a field."""
    found = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else ""
    return found if isinstance(found, str) else ""


def decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [ast.unparse(each) for each in node.decorator_list]


def signature_of(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    """As one calls it; a long one has a line for each parameter."""
    gives = "" if node.returns is None or node.name == "__init__" else f" -> {ast.unparse(node.returns)}"
    parts = [part for part in parameters(node.args) if part not in ("self", "cls")]
    if parts[:1] == ["/"]:
        parts = parts[1:]
    line = f"{name}({', '.join(parts)}){gives}"
    return line if len(line) <= 100 else f"{name}(\n" + "".join(f"    {each},\n" for each in parts) + f"){gives}"


def parameters(arguments: ast.arguments) -> Iterator[str]:
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    for number, (each, value) in enumerate(zip(plain, defaults, strict=True), 1):
        yield parameter(each, value)
        if number == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg is not None:
        yield "*" + ast.unparse(arguments.vararg)
    elif arguments.kwonlyargs:
        yield "*"
    yield from map(parameter, arguments.kwonlyargs, arguments.kw_defaults)
    if arguments.kwarg is not None:
        yield "**" + ast.unparse(arguments.kwarg)


def parameter(each: ast.arg, value: ast.expr | None) -> str:
    equals = " = " if each.annotation is not None else "="
    return ast.unparse(each) + ("" if value is None else f"{equals}{ast.unparse(value)}")


def members(thing: type) -> Iterator[Member]:
    """What a class has, in the order of its source."""
    own = CALLED.get(thing.__name__, "")
    tree = tree_of(thing)
    assert isinstance(tree, ast.ClassDef)
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    targets = [each for node in tree.body if isinstance(node, ast.Assign) for each in node.targets]
    names |= {each.id for each in targets if isinstance(each, ast.Name)}
    yield from (Member(name, "field", "", "") for name in ATTRIBUTES.get(thing.__name__, ()))
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if f"{thing.__name__}.{named(node)}" in HIDDEN.split():
            continue
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=value) if not name.startswith("_"):
                default = "" if value is None else ast.unparse(value)
                yield Member(name, "field", ast.unparse(kind), words_in(after), default=default)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)) if is_enum(thing):
                yield Member(name, "value", repr(value), words_in(after))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                member = method(node, own, names)
                if member is not None:
                    yield member
            case _:
                pass


def named(node: ast.stmt) -> str:
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.target)
    name: str = getattr(node, "name", "")
    return name.removeprefix("a") if isinstance(node, ast.AsyncFunctionDef) and name != "await_all" else name


def is_enum(thing: type) -> bool:
    return issubclass(thing, Enum)


def method(node: ast.FunctionDef | ast.AsyncFunctionDef, own: str, names: set[str]) -> Member | None:
    name, marks = node.name, decorators(node)
    if (name.startswith("_") and name != "__call__") or "overload" in marks:
        return None
    words = ast.get_docstring(node) or ""
    if any(mark.endswith(("property", ".setter")) for mark in marks):
        return Member(name, "property", "" if node.returns is None else ast.unparse(node.returns), words)
    dot = f"{own}." if own else "."
    if name == "__call__":
        return Member(name, "method", signature_of(node, own or "it"), words)
    if isinstance(node, ast.AsyncFunctionDef):
        plain = name.removeprefix("a")
        if name.startswith("a") and plain in names:
            return Member(plain, "method", signature_of(node, dot + plain), words, twin=name)
        return Member(name, "method", signature_of(node, f"await {dot}{name}"), words)
    if f"a{name}" in names:
        return None  # the async twin says the same
    return Member(name, "method", signature_of(node, dot + name), words)


def used_by(thing: Any) -> Iterator[Any]:
    """The types of Dibs that annotations of a class or function name."""
    space = vars(sys.modules[thing.__module__])
    tree = tree_of(thing)
    nodes: Iterable[ast.AST] = (
        [tree] if isinstance(tree, ast.FunctionDef) else [node for node in tree.body if is_shown(node)]
    )
    for node in nodes:
        for each in annotations_in(node):
            for name in ast.walk(each):
                if isinstance(name, ast.Name) and name.id in space:
                    yield from types_in(space[name.id])


def is_shown(node: ast.AST) -> bool:
    return not (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("_"))


def annotations_in(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.AnnAssign):
        yield node.annotation
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from (each.annotation for each in ast.walk(node.args) if isinstance(each, ast.arg) and each.annotation)
        if node.returns is not None:
            yield node.returns


def types_in(value: Any) -> Iterator[type]:
    if isinstance(value, type) and getattr(value, "__module__", "").startswith(PUBLIC) and value.__name__[0] != "_":
        yield value
    for each in get_args(value):
        yield from types_in(each)


def explained() -> dict[Page, list[Any]]:
    """By page: its roots and what they lead to, each on the first page that comes to it."""
    done = {root for page in PAGES for root in page.roots}
    found: dict[Page, list[Any]] = {}
    for page in PAGES:
        found[page] = reached(page, frozenset(done.difference(page.roots)))
        done.update(found[page])
    return found


def reached(page: Page, elsewhere: frozenset[Any]) -> list[Any]:
    found: dict[Any, None] = {}
    waiting = list(page.roots)
    while waiting:
        thing = waiting.pop(0)
        if thing in found:
            continue
        found[thing] = None
        if thing.__name__ in FIELDS_ONLY:
            continue
        waiting += [each for each in used_by(thing) if each not in elsewhere and each.__name__ not in INTERNAL.split()]
    return list(found)


# Writing.


def cell(text: str) -> str:
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


def prose(text: str) -> str:
    """Paragraphs as single lines; lists and examples stay as they are."""
    parts = inspect.cleandoc(text.replace("``", "`")).split("\n\n")
    return "\n\n".join(part if re.match(r"\s*[-*|]|    ", part) else " ".join(part.split()) for part in parts)


def shown(thing: type) -> list[Member]:
    return [each for each in members(thing) if thing.__name__ not in FIELDS_ONLY or each.kind == "field"]


def said(thing: type, member: Member, words: Words) -> str:
    return member.words or words.get(f"{thing.__name__}.{member.name}", "") or words.get(member.name, "")


def rows(thing: Any, found: list[Member], words: Words) -> str:
    lines = ["| name | type | meaning |", "| --- | --- | --- |"]
    for each in found:
        meaning = said(thing, each, words)
        kind = f"`{each.signature}`" if each.signature else ""
        default = f" Default: `{each.default}`." if has_default(thing, each) else ""
        lines.append(f"| `{each.name}` | {cell(kind)} | {cell(meaning + default)} |")
    return "\n".join(lines) + "\n"


def has_default(thing: Any, member: Member) -> bool:
    """Whether it is a setting whose default is worth a word."""
    return thing.__name__ in FIELDS_ONLY and member.default not in ("", "None", "()", "{}")


def section(thing: Any, words: Words) -> str:
    name = thing.__name__
    if isinstance(thing, FunctionType):
        tree = tree_of(thing)
        assert isinstance(tree, ast.FunctionDef)
        return f"## `{name}`\n\n```py\n{signature_of(tree, name)}\n```\n\n{prose(thing.__doc__ or '')}\n"
    if thing is Consumer:
        parts = ["## Your own loop\n"]
    else:
        own = thing.__doc__ if thing.__doc__ and not thing.__doc__.startswith(f"{name}(") else ""
        parts = [f"## `{name}`\n", f"{prose(own)}\n"]
    constructor = constructor_of(thing)
    if constructor:
        parts.append(f"```py\n{constructor}\n```\n")
    found = shown(thing)
    table = [each for each in found if each.kind in ("field", "property", "value")]
    if table:
        parts.append(rows(thing, table, words))
    for each in found:
        if each.kind == "method":
            parts.append(f"```py\n{each.signature}\n```\n")
            twin = f" Async: `{each.twin}`." if each.twin else ""
            parts.append(f"{prose(said(thing, each, words))}{twin}\n")
    return "\n".join(parts)


def constructor_of(thing: type) -> str:
    """For what one makes oneself."""
    if thing not in (Dibs, Worker, Sandbox, ManualClock, Retry, Permanent):
        return ""
    for node in tree_of(thing).body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return signature_of(node, thing.__name__)
    return ""


def constants() -> str:
    names = ", ".join(f"`{each.__name__}`" for each in TRANSIENT)
    return f"## `TRANSIENT`\n\nErrors that are worth another attempt, for `retry_on=`: {names}.\n"


def page_text(page: Page, things: list[Any], note: str, words: Words) -> str:
    sections = [section(each, words) for each in things]
    if page.name == "context":
        sections.append(constants())
    guides = ", ".join(f"[{each.replace('-', ' ')}](../../guides/{each}.md)" for each in page.guides)
    return f"# {page.title}\n\n{note}{page.says}\n\nIn use: {guides}.\n\n" + "\n".join(sections).rstrip() + "\n"


def index(note: str) -> str:
    lines = [
        f"| [{page.title}]({page.name}.md) | {', '.join(f'`{root.__name__}`' for root in page.roots)} |"
        for page in PAGES
    ]
    return (
        f"# The Python API\n\n{note}"
        "Everything public, from the code's own signatures and docstrings. `dibs` has the names for application code; "
        "errors are in [`dibs.errors`](../errors.md), and options with their limits and defaults also in "
        "[settings](../settings.md).\n\n| page | what is in it |\n| --- | --- |\n" + "\n".join(lines) + "\n"
    )


def api_pages(note: str, words: Words) -> dict[str, str]:
    """By the name of the file. `words` explain members whose code has no docstring: `Class.member`, or `member`."""
    return {"README.md": index(note)} | {
        f"{page.name}.md": page_text(page, things, note, words) for page, things in explained().items()
    }


def wordless(words: Words) -> list[str]:
    """Members that nothing explains."""
    things = [thing for found in explained().values() for thing in found]
    missing = [thing.__name__ for thing in things if isinstance(thing, FunctionType) and not thing.__doc__]
    for thing in things:
        if isinstance(thing, type):
            missing += [f"{thing.__name__}.{each.name}" for each in shown(thing) if not said(thing, each, words)]
    return sorted(missing)
