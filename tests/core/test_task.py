"""A task's facts are said once."""

from __future__ import annotations

import ast
from pathlib import Path

import dibs

CARRIERS = ("spec", "task", "_task", "new", "record", "info", "facts", "leased")
"""What a value that has a task's facts is called."""


def names_parent(node: ast.AST) -> bool:
    """Whether this names the task that a task was enqueued by: as a field, a property, an argument or an attribute."""
    match node:
        case ast.AnnAssign(target=ast.Name(id="parent")) | ast.FunctionDef(name="parent"):
            return True
        case ast.Attribute(value=value, attr="parent"):
            return ast.unparse(value).rpartition(".")[2] in CARRIERS
        case ast.Call(func=func, keywords=keywords):
            return any(keyword.arg == "parent" for keyword in keywords) and "click" not in ast.unparse(func)
    return False


def modules_that_name_it(root: Path) -> set[str]:
    return {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if any(names_parent(node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    }


def test_few_modules_name_the_parent_of_a_task() -> None:
    """A fact that is carried unchanged is named where it is declared, set and shown, and nowhere else."""
    root = Path(dibs.__file__).parent
    shipped = {name for name in modules_that_name_it(root) if not name.startswith("testing/")}
    assert "core/task.py" in shipped, "this test finds what it looks for"
    assert len(shipped) <= 4, sorted(shipped)
