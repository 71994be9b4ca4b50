"""What tests do to Redis servers, they do."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import pytest

from servers.redis import Cluster, RedisError, Sentinels, Server, binaries, cluster, converse, sentinels, server

NAMES = ["redis", "redis7", "valkey"]
ONE = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] if name != "redis" else []) for name in NAMES], indirect=True
)
"""One of them: what takes long is a repeat on the others."""


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    if found not in binaries():
        pytest.skip(f"{found} is not installed here")
    return found


@pytest.fixture
def watched(name: str) -> Iterator[Sentinels]:
    yield (found := sentinels(name))
    found.heal()


@pytest.fixture
def clustered(name: str) -> Iterator[Cluster]:
    yield (found := cluster(name))
    found.heal()


def test_a_server_has_what_it_answered_after_a_stop_and_after_a_crash(name: str) -> None:
    own = Server(name, appendonly=True)
    try:
        for end in (own.stop, own.kill):
            own.command("INCR", "times")
            end()
            own.start()
        assert own.command("GET", "times") == "2"
    finally:
        own.remove()
    assert not own.folder.exists()


def test_a_frozen_server_takes_what_is_sent_and_answers_later(name: str) -> None:
    shared = server(name)
    with socket.create_connection(("127.0.0.1", shared.port)) as connection:
        shared.freeze()
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            converse(connection, ["PING"])
        shared.thaw()
        connection.settimeout(10)
        assert connection.recv(100) == b"+PONG\r\n"


def test_a_test_is_never_locked_out(name: str) -> None:
    shared = server(name)
    with socket.create_connection(("127.0.0.1", shared.port)) as connection:
        shared.command("ACL", "SETUSER", "default", "-@write")
        try:
            with pytest.raises(RedisError, match="NOPERM"):
                converse(connection, ["SET", "locked", 1])
        finally:
            shared.command("ACL", "SETUSER", "default", "+@all")
        assert converse(connection, ["SET", "locked", 1]) == "OK"


def test_a_server_speaks_tls(name: str) -> None:
    if not binaries()[name].has_tls:
        pytest.skip(f"{name} was built without TLS")
    own = Server(name, tls=True)
    try:
        trusting = ssl.create_default_context(cafile=str(own.ca))
        with (
            socket.create_connection(("127.0.0.1", own.port)) as plain,
            trusting.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            assert converse(connection, ["PING"]) == "PONG"
    finally:
        own.remove()


@ONE
@pytest.mark.slow
def test_sentinels_fail_over(watched: Sentinels) -> None:
    watched.primary.command("SET", "a", 1)
    assert watched.primary.command("WAIT", 1, 10_000) == 1
    old = watched.kill_primary()
    new = watched.until_failover(old)
    assert new.command("INCR", "a") == 2
    watched.heal()
    assert watched.primary is new
    assert old.command("GET", "a") == "2"


@ONE
@pytest.mark.slow
def test_a_cluster_promotes_a_replica(clustered: Cluster) -> None:
    replica = clustered.replica_of(clustered.primary_of("a"))
    clustered.primary_of("a").command("SET", "a", 1)
    assert clustered.primary_of("a").command("WAIT", 1, 10_000) == 1
    old = clustered.kill_primary("a")
    assert clustered.until_failover("a", old) is replica
    assert replica.command("INCR", "a") == 2
    old.start()
    clustered.until_ready()
    assert clustered.replica_of(replica) is old
