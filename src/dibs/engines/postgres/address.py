"""From a URL to a PostgreSQL engine."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from dibs.core.options import unknown_option
from dibs.engines.postgres.engine import PostgresEngine
from dibs.engines.postgres.pool import Address
from dibs.errors import InvalidOption

__all__ = ["from_url"]

OURS = ("schema", "pool_size", "timeout", "connect_timeout", "statement_cache_size", "pgbouncer")
THEIRS = (
    "host", "port", "user", "password", "dbname", "database", "passfile", "sslmode", "sslcert", "sslkey", "sslrootcert",
    "sslcrl", "sslpassword", "sslnegotiation", "target_session_attrs", "krbsrvname", "gsslib", "service", "servicefile",
)  # fmt: skip
LONGEST_SCHEMA = 48


class Number(Struct, frozen=True):
    """What a numeric option may be."""

    default: str
    low: float
    high: float


NUMBERS = {
    "pool_size": Number("8", 1, 1000),
    "timeout": Number("30", 0.1, 3600),
    "connect_timeout": Number("10", 0.1, 3600),
    "statement_cache_size": Number("256", 0, 10_000),
}


def from_url(url: str) -> PostgresEngine:
    """``postgresql://user@host/database``, with ``?schema=dibs&pool_size=8&timeout=30&pgbouncer=yes``."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres") or parts.fragment:
        raise InvalidOption(f"{url!r} does not name a PostgreSQL database. Use postgresql://user@host/database.")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in OURS and name not in THEIRS:
            raise unknown_option(name, (*OURS, *THEIRS), "a postgresql URL")
    rest = urlencode({name: value for name, value in options.items() if name in THEIRS}, safe="/:,")
    numbers = {name: number_of(name, options.get(name, number.default)) for name, number in NUMBERS.items()}
    bouncer = options.get("pgbouncer", "no")
    if bouncer not in ("yes", "no"):
        raise InvalidOption(f"pgbouncer must be yes or no, not {bouncer!r}.")
    return PostgresEngine(
        Address(
            dsn=urlunsplit(("postgresql", parts.netloc, parts.path, rest, "")),
            schema=schema_of(options.get("schema", "dibs")),
            pool_size=int(numbers["pool_size"]),
            timeout=numbers["timeout"],
            connect_timeout=numbers["connect_timeout"],
            statement_cache_size=0 if bouncer == "yes" else int(numbers["statement_cache_size"]),
        )
    )


def schema_of(name: str) -> str:
    if not 1 <= len(name) <= LONGEST_SCHEMA or not name.isprintable() or name.startswith("pg_"):
        raise InvalidOption(
            f"schema must be a name of 1 to {LONGEST_SCHEMA} characters that does not begin with pg_, not {name!r}."
        )
    return name


def number_of(name: str, text: str) -> float:
    number = NUMBERS[name]
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not number.low <= value <= number.high:
        raise InvalidOption(f"{name} must be a number from {number.low:g} to {number.high:g}, not {text!r}.")
    return value
