"""From a URL to a SQLite engine."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote

from dibs.core.options import check_text, shown, split_url, unknown_option
from dibs.engines.sqlite.engine import SqliteEngine
from dibs.errors import InvalidOption

__all__ = ["from_url"]

OPTIONS = ("synchronous", "busy_timeout", "adopt")
LONGEST_TIMEOUT = 3600.0
LONGEST_PATH = 1000


def from_url(url: str) -> SqliteEngine:
    """``sqlite:///relative.db``, ``sqlite:////absolute.db``, with ``?synchronous=normal&busy_timeout=2&adopt=yes``."""
    parts = split_url(url)
    if parts.scheme != "sqlite" or parts.netloc or len(parts.path) < 2 or parts.fragment:
        raise InvalidOption(
            f"{shown(url)} does not name a SQLite file. Use sqlite:///tasks.db for {Path.cwd() / 'tasks.db'}, "
            "or sqlite:////var/lib/tasks.db for an absolute path (four slashes)."
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in OPTIONS:
            raise unknown_option(name, OPTIONS, "a sqlite URL")
    return SqliteEngine(
        Path(check_text(unquote(parts.path[1:]), "the path of a SQLite file", LONGEST_PATH)),
        synchronous=options.get("synchronous", "full"),  # type: ignore[arg-type]  # checked by the engine
        busy_timeout=timeout_of(options.get("busy_timeout", "5")),
        adopt=yes_or_no(options.get("adopt", "no")),
    )


def yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise InvalidOption(f"adopt must be yes or no, not {shown(text)}.")
    return text == "yes"


def timeout_of(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= LONGEST_TIMEOUT:
        raise InvalidOption(
            f"busy_timeout must be a number of seconds from 0 to {LONGEST_TIMEOUT:.0f}, not {shown(text)}."
        )
    return value
