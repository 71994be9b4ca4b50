"""The Lua scripts. Each is addressed by the hash of its text, so old and new workers can share a server."""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib.resources import files

from msgspec import Struct

__all__ = ["FOLDER", "SCRIPTS", "Script", "script", "source"]

FOLDER = files("dibs.engines.redis") / "lua"
COMMON = "common"
ALLOWS_FULL = "#!lua flags=allow-oom\n"
"""Servers know this from Redis 7.0 on."""
SCRIPTS = ("claim", "complete", "enqueue", "extend", "find", "rights", "save", "tokens", "unlease")


class Script(Struct, frozen=True):
    """What is sent: the hash, and the text to a server that does not know it."""

    name: str
    text: bytes
    hash: str


@cache
def script(name: str, when_full: bool = False) -> Script:
    """A script, with what all of them use before it. `when_full`: it may write to a server that has no memory left."""
    first = ALLOWS_FULL if when_full else ""
    text = f"{first}{source(COMMON)}\n{source(name)}".encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest())


def source(name: str) -> str:
    """A file without its comments: the server keeps the text."""
    lines = (FOLDER / f"{name}.lua").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("--"))
