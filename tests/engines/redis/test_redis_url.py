"""From a URL to an address: what it may say, and what is said about one that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from dibs.engines.open import open_engine, shown_url
from dibs.engines.redis.connecting import Address, Kind, slot_of
from dibs.engines.redis.url import address_of
from dibs.errors import InvalidOption
from servers.redis import cluster

FOUND: list[tuple[str, dict[str, Any]]] = [
    ("redis://", {}),
    ("redis://db", {"places": (("db", 6379),)}),
    ("valkey://db:7000/3", {"places": (("db", 7000),), "database": 3}),
    ("redis://[::1]:7000", {"places": (("::1", 7000),)}),
    ("redis://u:p%40ss@db", {"places": (("db", 6379),), "user": "u", "password": "p@ss"}),
    ("redis://:secret@db", {"places": (("db", 6379),), "password": "secret"}),
    ("rediss://db?tls_ca=/ca.pem&tls_check_hostname=no", {
        "places": (("db", 6379),), "tls": True, "tls_ca": "/ca.pem", "tls_check_hostname": False,
    }),
    ("redis+unix:///run/a%20b.sock?db=2", {"socket": "/run/a b.sock", "database": 2}),
    ("redis+sentinel://a,b:1/main/2", {
        "kind": Kind.SENTINEL, "places": (("a", 26379), ("b", 1)), "service": "main", "database": 2,
    }),
    ("redis+cluster://a,b:1?prefix=x", {
        "kind": Kind.CLUSTER, "places": (("a", 6379), ("b", 1)), "prefix": "x",
    }),
    ("redis://?timeout=0.5&connect_timeout=2&replicas=1", {"timeout": 0.5, "connect_timeout": 2.0, "replicas": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("url", "facts"), FOUND, ids=[url for url, _ in FOUND])
def test_what_a_url_says(url: str, facts: dict[str, Any]) -> None:
    assert address_of(url) == Address(**facts)


REFUSED = [
    ("redis://db?prefixx=a", "'prefixx'"),
    ("redis://db?pool_size=4", "'pool_size'"),
    ("redis://db:port", "'db:port' is not a host and a port"),
    ("redis://db:0", "'db:0' is not a host and a port"),
    ("redis://db:70000", "'db:70000' is not a host and a port"),
    ("redis://a,,b", "'' is not a host and a port"),
    ("redis://db/tasks", "'tasks' is not the number of a database"),
    ("redis://db/1/2", "'1/2' is not the number of a database"),
    ("redis://db/-1", "'-1' is not the number of a database"),
    ("redis://db?db=1.5", "db must be a whole number"),
    ("redis://db?db=x", "db must be a"),
    ("redis://db?replicas=1.5", "replicas must be a whole number"),
    ("redis://db?replicas=-1", "replicas must be a"),
    ("redis://db?timeout=0", "timeout must be a number from 0.1 to 3600, not '0'"),
    ("redis://db?timeout=nan", "timeout must be a number"),
    ("redis+unix://", "the URL names no socket"),
    ("redis+sentinel://a:26379", "the URL names no service"),
    ("redis+sentinel://a:26379/", "the URL names no service"),
    ("redis+cluster://a/1", "a cluster has only database 0"),
    ("redis+cluster://a?db=1", "a cluster has only database 0"),
    ("redis://db?prefix={a}", "prefix must be a name of 1 to 64 bytes without braces and spaces"),
    ("redis://db?prefix=", "prefix must be a name"),
    ("redis://db?prefix=a%20b", "prefix must be a name"),
    (f"redis://db?prefix={'a' * 65}", "prefix must be a name"),
    ("redis://db?shard=name", "shard"),
    ("redis://password@db", "colon"),
    ("rediss://db?tls_check_hostname=maybe", "tls_check_hostname must be yes or no, not 'maybe'"),
    ("redis://db?tls_ca=/ca.pem", "rediss://"),
    ("redis://db#1", "the URL does not name a Redis server"),
]


@pytest.mark.parametrize(("url", "said"), REFUSED, ids=[url for url, _ in REFUSED])
def test_what_is_wrong_with_a_url_is_said(url: str, said: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        address_of(url)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:secret@db:port",
        "redis://:secret@db?prefixx=a",
        "redis://u:sec/ret@db",
        "redis+sentinel://u:secret@db:1?sentinel_password=secret",
        "redis://secret@db",
    ],
)
def test_no_error_shows_a_password(url: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        address_of(url)
    assert "secret" not in str(caught.value)
    assert "ret" not in str(caught.value).replace("are", "")


@pytest.mark.parametrize("url", ["redis://u:secret@db/1", "redis+sentinel://a/s?sentinel_password=secret"])
def test_nobody_is_shown_a_password(url: str) -> None:
    engine = open_engine(url)
    assert "secret" not in shown_url(url)
    assert "secret" not in str(engine.address)  # type: ignore[attr-defined]


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys", "redis+unix", "unix", "redis+cluster"])
def test_every_scheme_finds_its_way_to_the_engine(scheme: str) -> None:
    assert type(open_engine(f"{scheme}:///" if "unix" not in scheme else f"{scheme}:///s")).__name__ == "RedisEngine"


def test_slots_are_those_of_the_server() -> None:
    node = cluster().nodes[0]
    for tag in ("dibs", "own1", "ä", "x" * 64):
        assert slot_of(tag) == node.command("CLUSTER", "KEYSLOT", f"{{{tag}}}:store")
