"""From a URL to a PostgreSQL engine."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from dibs.core.options import NumberOption, brief, shown, split_url, unknown_option
from dibs.engines.postgres.engine import PostgresEngine
from dibs.engines.postgres.pool import Address, hosts_of
from dibs.errors import InvalidOption

__all__ = ["from_url"]

OURS = (
    "schema", "pool_size", "timeout", "connect_timeout", "statement_cache_size", "pgbouncer", "direct_url", "read_url",
)  # fmt: skip
THEIRS = (
    "host", "port", "user", "password", "dbname", "database", "passfile", "sslmode", "sslcert", "sslkey", "sslrootcert",
    "sslcrl", "sslpassword", "sslnegotiation", "target_session_attrs", "krbsrvname", "gsslib", "service", "servicefile",
)  # fmt: skip
LONGEST_SCHEMA = 48


NUMBERS = {
    "pool_size": NumberOption("8", 1, 1000),
    "timeout": NumberOption("30", 0.1, 3600),
    "connect_timeout": NumberOption("10", 0.1, 3600),
    "statement_cache_size": NumberOption("256", 0, 10_000),
}


def from_url(url: str) -> PostgresEngine:
    """``postgresql://user@host/database``, with ``?schema=dibs&pool_size=8&timeout=30``.

    Behind PgBouncer: ``pgbouncer=yes``, and ``direct_url=`` with a URL past it. ``read_url=``: a standby to search in.
    """
    parts = split_url(url)
    if parts.scheme not in ("postgresql", "postgres") or parts.fragment:
        # Without the URL, which may hold a password.
        raise InvalidOption("the URL does not name a PostgreSQL database. Use postgresql://user@host/database.")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in OURS and name not in THEIRS:
            raise unknown_option(name, (*OURS, "accelerator", *THEIRS), "a postgresql URL")
    rest = urlencode({name: value for name, value in options.items() if name in THEIRS}, safe="/:,")
    numbers = {name: number.parse(name, options.get(name, number.default)) for name, number in NUMBERS.items()}
    bouncer = options.get("pgbouncer", "no")
    if bouncer not in ("yes", "no"):
        raise InvalidOption(f"pgbouncer must be yes or no, not {shown(bouncer)}.")
    hosts_of(url)  # raises if they are invalid
    direct = direct_dsn(options["direct_url"]) if "direct_url" in options else None
    pooled = bouncer == "yes"
    if direct is not None and not pooled:
        raise InvalidOption("direct_url is the way past a pooler: say pgbouncer=yes as well, or leave it out.")
    return PostgresEngine(
        Address(
            dsn=urlunsplit(("postgresql", parts.netloc, parts.path, rest, "")),
            schema=schema_of(options.get("schema", "dibs")),
            pool_size=int(numbers["pool_size"]),
            timeout=numbers["timeout"],
            connect_timeout=numbers["connect_timeout"],
            statement_cache_size=0 if pooled else int(numbers["statement_cache_size"]),
            pooled=pooled,
            direct_dsn=direct,
            read_dsn=read_dsn(options["read_url"]) if "read_url" in options else None,
        )
    )


def read_dsn(url: str) -> str:
    """Let reads use any of several servers, not only one that takes writes."""
    dsn = direct_dsn(url, "read_url")
    if "target_session_attrs=" in dsn:
        return dsn
    return f"{dsn}{'&' if '?' in dsn else '?'}target_session_attrs=any"


def direct_dsn(url: str, option: str = "direct_url") -> str:
    """A URL inside the URL, with nothing in it but where the server is."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidOption(f"{option} can't be read: {brief(str(error), 200)}.") from None
    if parts.scheme not in ("postgresql", "postgres") or parts.fragment:
        raise InvalidOption(
            f"{option} must be a postgresql:// URL, written so that it fits into another: %3A for :, %2F for /, "
            "%3F for ? and %26 for &."
        )
    hosts_of(url)  # raises if they are invalid
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if name not in THEIRS:
            raise unknown_option(name, THEIRS, option)
    return urlunsplit(("postgresql", *parts[1:]))


def schema_of(name: str) -> str:
    fits = 1 <= len(name.encode()) <= LONGEST_SCHEMA
    if not fits or not name.isprintable() or name.startswith("pg_") or "$$" in name:
        raise InvalidOption(
            f"schema must be a name of 1 to {LONGEST_SCHEMA} bytes that does not begin with pg_ and has no $$ in it, "
            f"not {shown(name)}."
        )
    return name
