"""From a URL to an engine."""

from __future__ import annotations

from dibs.core.options import nearest, shown, split_url
from dibs.engines.base import Engine
from dibs.errors import InvalidOption

__all__ = ["open_engine"]

SCHEMES = ("sqlite", "postgresql", "memory")


def open_engine(url: object) -> Engine:
    """The engine that a URL names, not yet opened."""
    if not isinstance(url, str) or "://" not in url:
        raise InvalidOption(
            f"{shown(url)} is not a store URL. "
            "Use sqlite:///tasks.db for a file in the working directory, postgresql://… for a server, "
            "or memory:// in tests."
        )
    scheme = split_url(url).scheme
    if scheme == "memory":
        from dibs.engines.memory import MemoryEngine

        return MemoryEngine()
    if scheme == "sqlite":
        from dibs.engines.sqlite import from_url

        return from_url(url)
    if scheme in ("postgresql", "postgres"):
        return postgres_engine(url)
    raise InvalidOption(
        f"no engine knows the URL scheme {shown(scheme)}.{nearest(scheme, SCHEMES)} Known: {', '.join(SCHEMES)}."
    )


def postgres_engine(url: str) -> Engine:
    try:
        from dibs.engines.postgres import from_url
    except ModuleNotFoundError as error:
        raise InvalidOption("a postgresql URL needs a driver: pip install 'dibs[postgres]'.") from error
    return from_url(url)
