"""From a URL, or several, to an engine on Dibs servers."""

from __future__ import annotations

from urllib.parse import parse_qsl

from dibs.core.options import NumberOption, shown, split_url, unknown_option
from dibs.engines.base import Engine
from dibs.engines.http.connection import Address
from dibs.engines.http.engine import HttpEngine, as_engine
from dibs.errors import InvalidOption

__all__ = ["from_url"]

NUMBERS = {"timeout": NumberOption("10", 0.1, 600.0), "patience": NumberOption("2", 0.0, 600.0)}
TEXTS = ("token", "tls_ca")


def from_url(url: str) -> Engine:
    """`https://one.example.com,https://two.example.com?timeout=10`: options come last and hold for all of them."""
    places, _, query = url.partition("?")
    given = dict(parse_qsl(query, keep_blank_values=True))
    options: dict[str, object] = {}
    for name, value in given.items():
        if name in NUMBERS:
            options[name] = NUMBERS[name].parse(name, value)
        elif name in TEXTS and value:
            options[name] = value
        else:
            raise unknown_option(name, (*NUMBERS, *TEXTS), "a URL of a Dibs server")
    return as_engine(HttpEngine(Address(urls=tuple(map(check_place, places.split(","))), **options)))  # type: ignore[arg-type]


def check_place(place: str) -> str:
    parts = split_url(place.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidOption(f"{shown(place)} is not the URL of a Dibs server: use https://queue.example.com.")
    if parts.username is not None or parts.password is not None:
        raise InvalidOption("a Dibs server takes a token, not a user: give token=, or set DIBS_TOKEN.")
    return place.strip().rstrip("/")
