"""Folders and modules say truly what is in them. `python tests/test_packages.py` prints what is wrong, in every folder.

A package's docstring names each of its modules, and nothing that is not there. A module's `__all__` is what others
import from it, and the types by which that is described; a module without one is all for others.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
ONE_PER_SUBJECT = ("dibs.testing.conformance", "dibs.testing.faults", "dibs.testing.model")
"""Packages with a module per verb or rule: its name says enough."""
PUBLIC = ("dibs.errors",)
"""Modules whose names are for users, whether or not Dibs imports them (`test_exported_members`)."""
NO_LIST = ("dibs.testing.plugin", "dibs.version")
"""Modules that are not imported by name: pytest loads the one, and hatchling reads the other."""

LONGEST_MODULE = 550
"""Lines; the median is a quarter of it."""

USERS = ("src", "tests", "bench", "examples", "scripts")
QUOTED = re.compile(r"`([a-z_0-9]+)`|^ {4}([a-z]+)  ", re.MULTILINE)
"""In backticks, or at the head of a line of a table."""

IMPORT = re.compile(r"from (dibs[\w.]*) import (\([^)]*\)|[\w, ]+)")
IMPORTED = re.compile(r"(\w+)(?: as (\w+))?")
FOR_ITSELF = re.compile(r"log = |\w+ = (TypeVar|ParamSpec)\(")
REFERENCE = re.compile(r"\b(dibs[\w.]*):(\w+)")

Names = dict[str, set[str]]
"""By module, some names of it."""


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def module_name(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_name(file): file for file in sorted(SOURCE.rglob("*.py"))}


def chosen(folders: tuple[str, ...]) -> dict[str, Path]:
    """The modules in these folders; all of them if none are given."""
    house = SOURCE / "dibs"
    return {
        name: file for name, file in modules().items() if not folders or file.relative_to(house).parts[0] in folders
    }


# Docstrings of packages.


def wrong_docstrings(folders: tuple[str, ...] = ()) -> Iterator[str]:
    for name, file in chosen(folders).items():
        if file.name != "__init__.py" or name in ONE_PER_SUBJECT:
            continue
        quoted = {found[1] or found[2] for found in QUOTED.finditer(ast.get_docstring(parsed(file)) or "")}
        here = {each.stem for each in file.parent.glob("*.py")} | {
            p.parent.name for p in file.parent.glob("*/__init__.py")
        }
        for missing in sorted(here - quoted - {"__init__", "__main__"}):
            yield f"{name}: its docstring does not name {missing}"
        for unknown in sorted(quoted - here - identifiers(file.parent) - elsewhere()):
            yield f"{name}: its docstring names {unknown}, which is neither a module nor used in one"


@cache
def elsewhere() -> set[str]:
    return {part for name in modules() for part in name.split(".")}


@cache
def identifiers(folder: Path) -> set[str]:
    """Every name that the code in a folder defines or uses."""
    found: set[str] = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(parsed(file)):
            for field in ("id", "attr", "arg", "name", "module"):
                value = getattr(node, field, None)
                found |= set(value.split(".")) if isinstance(value, str) else set()
    return found


# What modules list.


def wrong_lists(folders: tuple[str, ...] = ()) -> Iterator[str]:
    for name, file in chosen(folders).items():
        if file.name in ("__init__.py", "__main__.py") or name in NO_LIST:
            continue
        tree = parsed(file)
        listed = listed_in(tree)
        used = imported_names().get(name, set())
        if listed is None and name.startswith(ONE_PER_SUBJECT) and not used:
            continue
        if listed is None:
            listed = defined_in(tree)
        for missing in sorted((used & defined_in(tree)) - listed):
            yield f"{name}: {missing} is imported elsewhere, but is not in __all__"
        for unused in () if name in PUBLIC else sorted(listed - used - described_by(tree, listed)):
            yield f"{name}: {unused} is for others (in `__all__`, or there is none), but nobody imports it"


def listed_in(tree: ast.Module) -> set[str] | None:
    """What `__all__` lists; None: there is none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return None


def defined_in(tree: ast.Module) -> set[str]:
    """The public names that a module defines itself, apart from its logger and type variables."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not FOR_ITSELF.match(ast.unparse(node)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return {name for name in found if not name.startswith("_")}


@cache
def imported_names() -> Names:
    """What code and pages import from modules of Dibs, reach through a module, or name as `module:name`."""
    found: Names = {}
    pages = (ROOT / "pyproject.toml", ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    for file in (*pages, *(file for top in USERS for file in (ROOT / top).rglob("*.py"))):
        for module, name in references(file.read_text()):
            if modules().get(module) not in (None, file):
                found.setdefault(module, set()).add(name)
    return found


def references(text: str) -> Iterator[tuple[str, str]]:
    yield from REFERENCE.findall(text)
    for module, names in IMPORT.findall(text):
        for name, alias in IMPORTED.findall(names):
            yield module, name
            if f"{module}.{name}" in modules():
                yield from ((f"{module}.{name}", each) for each in re.findall(rf"\b{alias or name}\.(\w+)", text))


def described_by(tree: ast.Module, listed: set[str]) -> set[str]:
    """The names in annotations of what is listed, through aliases: they are part of its face."""
    bodies = {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    aliases = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    found: set[str] = set()
    for name in listed & set(bodies):
        for node in ast.walk(bodies[name]):
            for field in ("annotation", "returns"):
                if (annotation := getattr(node, field, None)) is not None:
                    found |= names_in(annotation)
    for alias in found & set(aliases):
        found = found | names_in(aliases[alias])
    return found


def names_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


# Sizes.


def long_modules(folders: tuple[str, ...] = ()) -> Iterator[str]:
    for name, file in chosen(folders).items():
        lines = len(file.read_text().splitlines())
        if lines > LONGEST_MODULE:
            yield f"{name}: {lines} lines, more than {LONGEST_MODULE}"


def test_a_package_names_its_modules() -> None:
    assert list(wrong_docstrings()) == []


def test_what_is_imported_is_listed_and_what_is_listed_is_imported() -> None:
    assert list(wrong_lists()) == []


def test_no_module_is_too_long() -> None:
    assert list(long_modules()) == []


if __name__ == "__main__":
    problems = [*wrong_docstrings(), *wrong_lists(), *long_modules()]
    sys.stdout.write("".join(f"{problem}\n" for problem in problems))
    sys.exit(bool(problems))
