"""From a URL to a Redis engine."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, unquote

from dibs.core.options import NumberOption, shown, split_url, unknown_option
from dibs.engines.redis.connecting import Address, Kind
from dibs.engines.redis.engine import RedisEngine
from dibs.engines.redis.sharding.engine import ShardedEngine
from dibs.errors import InvalidOption

__all__ = ["SCHEMES", "address_of", "from_url"]

SCHEMES = {
    "redis": (Kind.SERVER, False), "rediss": (Kind.SERVER, True), "valkey": (Kind.SERVER, False),
    "valkeys": (Kind.SERVER, True), "redis+unix": (Kind.SERVER, False), "unix": (Kind.SERVER, False),
    "redis+sentinel": (Kind.SENTINEL, False), "rediss+sentinel": (Kind.SENTINEL, True),
    "redis+cluster": (Kind.CLUSTER, False), "rediss+cluster": (Kind.CLUSTER, True),
}  # fmt: skip
"""How the server is found, and whether by TLS."""

TEXTS = ("tls_ca", "tls_cert", "tls_key", "sentinel_user", "sentinel_password")
OPTIONS = ("prefix", "shard", "replicas", "timeout", "connect_timeout", "tls_check_hostname", "db", *TEXTS)
LONGEST_PREFIX = 64
DEFAULT_PORTS = {Kind.SERVER: 6379, Kind.SENTINEL: 26379, Kind.CLUSTER: 6379}


NUMBERS = {
    "replicas": NumberOption("0", 0, 100, whole=True),
    "timeout": NumberOption("10", 0.1, 3600),
    "connect_timeout": NumberOption("5", 0.1, 3600),
    "db": NumberOption("0", 0, 10_000, whole=True),
}


def from_url(url: str) -> RedisEngine | ShardedEngine:
    """``redis://user:password@host:6379/0``, with ``?prefix=dibs``; ``rediss://`` by TLS.

    ``redis+unix:///run/redis.sock``; ``redis+sentinel://host,host/service/0``; ``redis+cluster://host,host``.
    ``?shard=queue``: a cluster spreads queues over its servers.
    """
    address = address_of(url)
    return ShardedEngine(address) if address.by_queue else RedisEngine(address)


def address_of(url: str) -> Address:
    parts = split_url(url)
    if parts.scheme not in SCHEMES or parts.fragment:
        # Without the URL, which may hold a password.
        raise InvalidOption("the URL does not name a Redis server. Use redis://host:6379/0.")
    kind, tls = SCHEMES[parts.scheme]
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in OPTIONS:
            raise unknown_option(name, OPTIONS, "a redis URL")
    numbers = {name: number.parse(name, options.get(name, number.default)) for name, number in NUMBERS.items()}
    if not tls and (given := [name for name in options if name.startswith("tls_")]):
        raise InvalidOption(f"{given[0]} is for TLS: use rediss:// in place of redis://, or leave it out.")
    user, password, hosts = credentials_in(parts)
    socket = service = None
    database = int(numbers["db"])
    if "unix" in parts.scheme:
        socket = unquote(parts.path)
        if not socket:
            raise InvalidOption("the URL names no socket. Use redis+unix:///run/redis/redis.sock.")
    else:
        service, database = path_parts(kind, parts.path, database)
    return Address(
        kind=kind,
        places=places_of(hosts, DEFAULT_PORTS[kind]),
        socket=socket,
        service=service or "",
        user=user,
        password=password,
        database=database,
        tls=tls,
        tls_check_hostname=flag(options, "tls_check_hostname", True),
        prefix=prefix_of(options.get("prefix", "dibs")),
        by_queue=shard_of(options.get("shard", "none")),
        is_part=False,
        replicas=int(numbers["replicas"]),
        timeout=numbers["timeout"],
        connect_timeout=numbers["connect_timeout"],
        **{name: options[name] for name in TEXTS if name in options},
    )


def credentials_in(parts: SplitResult) -> tuple[str | None, str | None, str]:
    if "@" in parts.path:  # without what was given, which may be a password
        raise InvalidOption("the user or the password has a / in it: write %2F in place of it.")
    given, at, hosts = parts.netloc.rpartition("@")
    if not at:
        return None, None, hosts
    user, colon, password = given.partition(":")
    if not colon:
        raise InvalidOption("a password comes after a colon: redis://:PASSWORD@host, or redis://USER:PASSWORD@host.")
    return unquote(user) or None, unquote(password), hosts


def places_of(hosts: str, port: int) -> tuple[tuple[str, int], ...]:
    found = []
    for each in hosts.split(",") if hosts else ["localhost"]:
        host, colon, given = each.rpartition(":") if not each.endswith("]") else (each, "", "")
        if not colon:
            host, given = each, str(port)
        if not given.isdecimal() or not 0 < int(given) < 65536 or not host:
            raise InvalidOption(f"{shown(each)} is not a host and a port. Use host:6379.")
        found.append((host.strip("[]"), int(given)))
    return tuple(found)


def path_parts(kind: Kind, path: str, database: int) -> tuple[str, int]:
    """The service that sentinels know, and the number of the database."""
    given = [unquote(each) for each in path.split("/") if each]
    service = ""
    if kind is Kind.SENTINEL:
        if not given:
            raise InvalidOption("the URL names no service. Use redis+sentinel://host:26379/mymaster/0.")
        service = given.pop(0)
    if len(given) > 1 or (given and not given[0].isdecimal()):
        raise InvalidOption(f"{shown('/'.join(given))} is not the number of a database. Use redis://host:6379/0.")
    number = int(given[0]) if given else database
    if kind is Kind.CLUSTER and number:
        raise InvalidOption("a cluster has only database 0: tell installations apart by ?prefix=…")
    return service, number


def prefix_of(text: str) -> str:
    if not 1 <= len(text.encode()) <= LONGEST_PREFIX or not text.isprintable() or any(each in text for each in "{} "):
        raise InvalidOption(
            f"prefix must be a name of 1 to {LONGEST_PREFIX} bytes without braces and spaces, not {shown(text)}."
        )
    return text


def shard_of(text: str) -> bool:
    if text not in ("none", "queue"):
        raise InvalidOption(f"shard must be queue or none, not {shown(text)}.")
    return text == "queue"


def flag(options: dict[str, str], name: str, default: bool) -> bool:
    text = options.get(name, "yes" if default else "no")
    if text not in ("yes", "no"):
        raise InvalidOption(f"{name} must be yes or no, not {shown(text)}.")
    return text == "yes"
