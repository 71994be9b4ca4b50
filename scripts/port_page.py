"""The page of the port: all that verbs ask of a store, read from the code."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, get_args, get_origin

from dibs.engines import store_transaction, verbs
from dibs.engines.decisions.transaction import Transaction
from dibs.engines.port import Port, Read, View
from dibs.engines.sqlite.statements import statement_texts

__all__ = ["port_sections"]

Table = tuple[list[str], list[list[str]]]
Site = tuple[str, ast.AST]
"""A function by `module.function`, and its tree."""


@cache
def modules() -> tuple[ModuleType, ...]:
    return tuple(import_module(f"{verbs.__name__}.{each.name}") for each in iter_modules(verbs.__path__))


def tree_of(module: ModuleType) -> ast.Module:
    return ast.parse(Path(str(module.__file__)).read_text())


@cache
def sites(module: ModuleType) -> tuple[Site, ...]:
    """The functions and classes of a module."""
    short = module.__name__.rpartition(".")[2]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return tuple((f"{short}.{node.name}", node) for node in tree_of(module).body if isinstance(node, kinds))


def one_line(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


# The protocols.


def members(protocol: type) -> Iterator[list[str]]:
    """What a protocol asks for, and its words for it."""
    body = ast.parse(textwrap.dedent(inspect.getsource(protocol))).body[0].body  # type: ignore[attr-defined]
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign):
            said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            yield [f"`{ast.unparse(node.target)}: {ast.unparse(node.annotation)}`".replace("|", "\\|"), one_line(said)]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield [f"`{signature(node)}`".replace("|", "\\|"), one_line(ast.get_docstring(node))]


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    gives = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    if any(ast.unparse(each) == "property" for each in node.decorator_list):
        return f"{node.name}{gives.replace(' -> ', ': ')}"
    arguments = ast.unparse(node.args).removeprefix("self, ").removeprefix("self")
    return f"{'await ' if isinstance(node, ast.AsyncFunctionDef) else ''}{node.name}({arguments}){gives}"


# Names.


def reads_in(module: ModuleType) -> Iterator[tuple[str, Read[Any], str]]:
    """The constants of a module that are reads or hold some, each read of them, and the words below the constant."""
    body = tree_of(module).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        constant = node.targets[0].id
        value = getattr(module, constant, None)
        held = [value] if isinstance(value, Read) else list(value.values()) if isinstance(value, dict) else []
        said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        yield from ((constant, each, one_line(said)) for each in held if isinstance(each, Read))


def row_of(kind: Any) -> str:
    fields = getattr(kind, "__struct_fields__", None)
    if fields:
        return "(" + ", ".join(fields) + ")"
    if get_origin(kind) is tuple:
        return "(" + ", ".join(name_of(each) for each in get_args(kind)) + ")"
    return name_of(kind)


def name_of(kind: Any) -> str:
    return "any" if kind in (Any, object) else getattr(kind, "__name__", str(kind))


def users_of(constant: str, held: object) -> list[str]:
    found = [
        name
        for module in modules()
        if getattr(module, constant, None) is held
        for name, tree in sites(module)
        if any(isinstance(node, ast.Name) and node.id == constant for node in ast.walk(tree))
    ]
    return sorted(found)


def calls_of(methods: set[str], places: tuple[ModuleType, ...]) -> dict[str, set[str]]:
    """By name that one of these methods is called with: the functions that do so."""
    found: dict[str, set[str]] = {}
    for module in places:
        for site, tree in sites(module):
            for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args):
                if isinstance(call.func, ast.Attribute) and call.func.attr in methods:
                    for name in names_in(call.args[0]):
                        found.setdefault(name, set()).add(site)
    return dict(sorted(found.items()))


def names_in(tree: ast.AST) -> list[str]:
    """The texts that an argument may be."""
    if isinstance(tree, ast.IfExp):
        return names_in(tree.body) + names_in(tree.orelse)
    return [tree.value] if isinstance(tree, ast.Constant) and isinstance(tree.value, str) else []


def words_for(name: str) -> str:
    """What SQLite's file says above the statement of this name."""
    said = re.match(r"(?:--[^\n]*\n)*", statement_texts().get(name, ""))
    return one_line(re.sub(r"^-- ?", "", said.group() if said else "", flags=re.MULTILINE))


def cells(names: set[str] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def reads_table() -> Table:
    found = [
        [f"`{read.name}`", said, row_of(read.row), cells(users_of(constant, getattr(module, constant)))]
        for module in modules()
        for constant, read, said in reads_in(module)
    ]
    return ["name", "takes and gives", "a row", "read by"], sorted(found)


def calls_table(methods: set[str], places: tuple[ModuleType, ...], head: str) -> Table:
    return ["name", "on SQLite", head], [
        [f"`{name}`", words_for(name), cells(users)] for name, users in calls_of(methods, places).items()
    ]


def shared_table() -> Table:
    reads = [[f"`{read.name}`", said, row_of(read.row)] for _, read, said in reads_in(store_transaction)]
    known = calls_of({"write"}, modules())
    writes = calls_of({"write", "write_all"}, (store_transaction,))
    return ["name", "on SQLite", "a row"], sorted(
        [*reads, *([f"`{name}`", words_for(name), ""] for name in writes if name not in known)]
    )


def port_sections() -> dict[str, tuple[str, Table]]:
    """By heading: what is in a table, and the table."""
    heads = ["member", "what it is"]
    return {
        "A snapshot": ("`dibs.engines.port.View`: what verbs that only read are given.", (heads, [*members(View)])),
        "What decisions need": (
            "`dibs.engines.decisions.transaction.Transaction`: what pure functions use of a transaction.",
            (heads, [*members(Transaction)]),
        ),
        "A transaction": (
            "`dibs.engines.port.Port`: a snapshot that can be written to, with the members above.",
            (heads, [*members(Port)]),
        ),
        "Named reads": ("What `read` and `fetch` are asked for.", reads_table()),
        "Named reads of tasks": (
            "What `load_by` is asked for. A row is a task.",
            calls_table({"load_by"}, modules(), "read by"),
        ),
        "Named writes": (
            "What `write` is asked for. A list of rows or ids is one parameter; here SQLite gets it as JSON.",
            calls_table({"write"}, modules(), "written by"),
        ),
        "For what stores share": (
            "What `dibs.engines.store_transaction` asks for besides. A store with its own `save` needs none of it.",
            shared_table(),
        ),
    }
