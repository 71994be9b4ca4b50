"""`[tool.dibs]` in pyproject.toml: the app or store of a project, for commands that name none."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from dibs.core.options import brief, nearest, shown
from dibs.errors import InvalidOption

__all__ = ["Project", "find_project"]

FILE = "pyproject.toml"
KEYS = {"app": "MODULE:APP, imported from the folder of the file", "url": "the store, without an app"}


class Project(Struct, frozen=True, kw_only=True):
    """What a project says in its pyproject.toml, and where that is."""

    folder: Path
    app: str | None = None
    url: str | None = None


def find_project() -> Project | None:
    """That of the nearest pyproject.toml with a [tool.dibs], from the working directory upwards."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        table = table_in(folder / FILE)
        if table is not None:
            return checked(table, folder)
    return None


def table_in(file: Path) -> Any:
    """Its [tool.dibs]; None if it has none."""
    try:
        tools = tomllib.loads(file.read_text(encoding="utf-8")).get("tool")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except (ValueError, RecursionError) as error:
        raise InvalidOption(f"can't read {file}: {brief(str(error), 200)}.") from None
    return tools.get("dibs") if isinstance(tools, dict) else None


def checked(table: object, folder: Path) -> Project:
    where = f"[tool.dibs] in {folder / FILE}"
    if not isinstance(table, Mapping):
        raise InvalidOption(f"{where} is a table: {', '.join(KEYS)}.")
    for key, value in table.items():
        if key not in KEYS:
            raise InvalidOption(f"{where} has no {shown(key)}.{nearest(key, KEYS)} It takes {' or '.join(KEYS)}.")
        if not isinstance(value, str) or not value:
            raise InvalidOption(f"{key} of {where} must be a text, not {shown(value)}.")
    if len(table) != 1:
        raise InvalidOption(f"{where} takes one of {' and '.join(KEYS)}, which both name a store.")
    url = table.get("url")
    return Project(folder=folder, app=table.get("app"), url=None if url is None else anchored(url, folder))


def anchored(url: str, folder: Path) -> str:
    """A URL whose SQLite file, if it is relative, is in this folder."""
    scheme, between, path = url.partition(":///")
    if scheme != "sqlite" or path.startswith("/"):
        return url
    return f"{scheme}{between}{quote(str(folder))}/{path}"
