"""From a URL to an engine."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from dibs.core.options import nearest, shown, split_url
from dibs.engines.base import Engine
from dibs.errors import InvalidOption

__all__ = ["needs_token", "open_engine", "shown_url", "with_accelerator", "with_token"]

SCHEMES = ("sqlite", "postgresql", "redis", "http", "https", "memory")
REDIS = (
    "redis",
    "rediss",
    "valkey",
    "valkeys",
    "redis+unix",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)

MASK = "***"
SECRETS = ("password", "sslpassword", "sentinel_password", "token")
NESTED = ("direct_url", "read_url", "accelerator")
"""Options of a URL that are URLs themselves."""


def open_engine(url: object) -> Engine:
    """The engine that a URL names, not yet opened."""
    if not isinstance(url, str) or "://" not in url:
        given = "what was given" if isinstance(url, str) and "@" in url else shown(url)  # it may hold a password
        raise InvalidOption(
            f"{given} is not a store URL. Use sqlite:///tasks.db for {Path.cwd() / 'tasks.db'}, "
            "postgresql://… or redis://… for a server, https://… for a Dibs server, or memory:// in tests."
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
    if scheme in REDIS:
        return redis_engine(url)
    if scheme in ("http", "https"):
        return http_engine(url)
    raise InvalidOption(
        f"no engine knows the URL scheme {shown(scheme)}.{nearest(scheme, SCHEMES)} Known: {', '.join(SCHEMES)}."
    )


def with_accelerator(url: object, accelerator: object) -> str:
    """The URL of a PostgreSQL store with a Redis beside it, given as the URL of that."""
    if not isinstance(accelerator, str):
        raise InvalidOption(f"accelerator must be the URL of a Redis server, not {shown(accelerator)}.")
    parts = split_url(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("postgresql", "postgres"):
        raise InvalidOption("accelerator= is for a postgresql:// store only: leave it out, or give such a URL.")
    options = parse_qsl(parts.query, keep_blank_values=True)
    if any(name == "accelerator" for name, _ in options):
        raise InvalidOption("the URL names an accelerator already: leave accelerator= out, or take it out of the URL.")
    return urlunsplit(
        parts._replace(query="&".join(each for each in (parts.query, urlencode({"accelerator": accelerator})) if each))
    )


def accelerated_engine(url: str) -> Engine:
    try:
        from dibs.engines.accelerated import from_url
    except ModuleNotFoundError as error:
        raise InvalidOption(
            "a postgresql URL with an accelerator needs two drivers: pip install 'dibs[postgres,redis]'."
        ) from error
    return from_url(url)


def postgres_engine(url: str) -> Engine:
    if any(name == "accelerator" for name, _ in parse_qsl(split_url(url).query, keep_blank_values=True)):
        return accelerated_engine(url)
    try:
        from dibs.engines.postgres import from_url
    except ModuleNotFoundError as error:
        raise InvalidOption("a postgresql URL needs a driver: pip install 'dibs[postgres]'.") from error
    return from_url(url)


def redis_engine(url: str) -> Engine:
    try:
        from dibs.engines.redis import from_url
    except ModuleNotFoundError as error:
        raise InvalidOption("a redis URL needs a driver: pip install 'dibs[redis]'.") from error
    return from_url(url)


def with_token(url: object, token: object) -> str:
    """The URL of a Dibs server with the token that it asks for."""
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise InvalidOption("token must be one that dibs tokens create has printed.")
    parts = split_url(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https"):
        raise InvalidOption("token= is for the URL of a Dibs server only, https://…: leave it out, or give such a URL.")
    if any(name == "token" for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        raise InvalidOption("the URL has a token already: leave token= out, or take it out of the URL.")
    return f"{url}{'&' if parts.query else '?'}{urlencode({'token': token})}"


def needs_token(url: object) -> bool:
    """Whether it is the URL of a Dibs server, without a token."""
    places, _, query = url.partition("?") if isinstance(url, str) else ("", "", "")
    return places.startswith(("http://", "https://")) and not any(
        name == "token" for name, _ in parse_qsl(query, keep_blank_values=True)
    )


def http_engine(url: str) -> Engine:
    try:
        from dibs.engines.http.url import from_url
    except ModuleNotFoundError as error:
        raise InvalidOption("an http URL needs a client: pip install 'dibs[http]'.") from error
    return from_url(url)


def shown_url(url: str) -> str:
    """A store's URL for people: passwords are masked, and the path of a SQLite file is absolute. Never raises."""
    scheme, _, _ = url.partition("://")
    if scheme in ("http", "https"):  # there may be several
        places, _, query = url.partition("?")
        return f"{scheme}://{MASK}" if "@" in places else places + shown_query(query)
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{scheme}://{MASK}"
    if scheme == "sqlite":
        path = Path(unquote(parts.path[1:])).absolute()
        return f"sqlite:///{path}{shown_query(parts.query)}"
    options = parse_qsl(parts.query, keep_blank_values=True)
    rest = "".join(name if name in (*SECRETS, *NESTED) else name + value for name, value in options)
    if "@" in parts.path + parts.fragment + rest:  # an unescaped / ? or # in a password: where it ends is not known
        return f"{scheme}://{MASK}"
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    if at and not colon and scheme in REDIS:  # a password without the colon before it
        name = MASK
    return f"{scheme}://{name}{colon and ':' + MASK}{at}{host}{parts.path}{shown_query(parts.query)}"


def shown_query(query: str) -> str:
    options = [(name, shown_option(name, value)) for name, value in parse_qsl(query, keep_blank_values=True)]
    return f"?{urlencode(options, safe='/:,*@')}" if options else ""


def shown_option(name: str, value: str) -> str:
    if name in SECRETS:
        return MASK
    return shown_url(value) if name in NESTED else value
