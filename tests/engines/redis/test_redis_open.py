"""Opening a store on Redis: which servers are refused, and with which words; what is apart from what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis_help import claim, engines, keys_of, new, new_url, opened, options, run

from dibs.engines.redis import from_url
from dibs.errors import DibsError, StoreError, StoreMismatch, StoreMissing, StoreUnavailable
from servers.redis import Server, authority, binaries, cluster, free_port, server

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server whose settings may be changed."""
    found = Server()
    yield found
    found.remove()


async def refusal(url: str, kind: type[DibsError], *, create: bool = True) -> str:
    """What is said about a server that is refused: one or two sentences."""
    engine = from_url(url)
    with pytest.raises(kind) as caught:
        await engine.open(create=create)
    await engine.close()
    said = str(caught.value)
    assert "\n" not in said
    assert said.endswith((".", "?", "…"))
    assert len(said) < 300
    assert PASSWORD not in said
    assert PASSWORD not in repr(caught.value.__cause__)
    return said


@asynccontextmanager
async def answering(**info: str) -> AsyncIterator[str]:
    """The URL of something that speaks just enough to say what it is."""
    told = "".join(f"{name}:{value}\r\n" for name, value in info.items()).encode()
    served: list[asyncio.Task[None]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.append(task)
        await serve(reader, writer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2])
            writer.write(b"$%d\r\n%s\r\n" % (len(told), told) if words[0] == b"INFO" else b"+OK\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        yield f"redis://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        await asyncio.gather(*served, return_exceptions=True)


# Servers that can't be a store.


def test_an_older_server_is_refused() -> None:
    async def test() -> None:
        async with answering(redis_version="6.0.16") as url:
            said = await refusal(url, StoreMismatch)
        assert "runs Redis 6.0.16: Dibs needs Redis 6.2 or later, or Valkey" in said
        async with answering(redis_version="7.2.4", valkey_version="8.0.1", maxmemory_policy="allkeys-lru") as url:
            said = await refusal(url, StoreMismatch)
        assert "maxmemory-policy" in said, "a Valkey is not too old"

    run(test)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_may_delete_tasks_is_refused(own: Server, policy: str) -> None:
    async def test() -> None:
        own.command("CONFIG", "SET", "maxmemory-policy", policy)
        try:
            said = await refusal(new_url(own.url), StoreMismatch)
        finally:
            own.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        assert f"maxmemory-policy {policy}" in said
        assert "Set maxmemory-policy to noeviction" in said
        assert own.command("DBSIZE") == 0

    run(test)


def test_a_replica_is_refused_and_its_primary_named(own: Server) -> None:
    async def test() -> None:
        port = free_port()
        own.command("REPLICAOF", "127.0.0.1", port)
        try:
            said = await refusal(new_url(own.url), StoreUnavailable)
        finally:
            own.command("REPLICAOF", "NO", "ONE")
        assert "is a read-only replica" in said
        assert f"127.0.0.1:{port}" in said

    run(test)


def test_a_node_of_a_cluster_is_refused() -> None:
    async def test() -> None:
        for node in cluster().nodes[::3]:  # a primary and a replica
            said = await refusal(new_url(node.url), DibsError)
            assert "is a node of a cluster: write redis+cluster://" in said

    run(test)


def test_a_single_server_is_no_cluster_and_no_sentinel() -> None:
    async def test() -> None:
        url = server().url.removesuffix("/0")
        said = await refusal(url.replace("redis", "redis+cluster", 1), StoreUnavailable)
        assert "is not a cluster" in said
        assert "redis://" in said
        said = await refusal(f"{url.replace('redis', 'redis+sentinel', 1)}/mymaster", StoreUnavailable)
        assert "sentinel" in said

    run(test)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    async def test() -> None:
        said = await refusal(f"redis://127.0.0.1:{free_port()}", StoreUnavailable)
        assert "the connection was refused (is it running, and is this its port?)" in said
        said = await refusal("redis://nowhere.invalid", StoreUnavailable)
        assert "the name of its host is not known" in said
        said = await refusal(f"redis+unix://{tmp_path}/none.sock", StoreUnavailable)
        assert "there is no such socket" in said

    run(test)


def test_something_else_on_that_port() -> None:
    served: list[asyncio.Task[None]] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.current_task())  # type: ignore[arg-type]
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async def test() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listening:
            url = f"redis://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            assert "does not speak Redis' protocol" in await refusal(url, StoreUnavailable)
            await asyncio.gather(*served, return_exceptions=True)

    run(test)


def test_a_database_that_the_server_does_not_have() -> None:
    async def test() -> None:
        said = await refusal(f"{server().url}99", StoreError)
        assert "DB index is out of range" in said

    run(test)


# Stores that can't be used.


def test_a_store_of_a_newer_dibs_is_refused() -> None:
    async def test() -> None:
        async with engines() as (engine,):
            url = options(server().url, prefix=engine.address.prefix)
            server().command("HSET", f"{{{engine.address.prefix}}}:store", "layout", 3)
            async with opened(url):
                pass  # one that older versions can still read
            server().command("HSET", f"{{{engine.address.prefix}}}:store", "oldest_reader", 2)
            said = await refusal(url, StoreMismatch)
            assert "was written by a newer Dibs (layout 3; this version knows 1). Upgrade Dibs." in said

    run(test)


def test_a_store_that_is_not_there_is_not_created_by_a_look() -> None:
    async def test() -> None:
        url = new_url()
        engine = from_url(url)
        assert await engine.migrations() == ["0001 initial"]
        said = await refusal(url, StoreMissing, create=False)
        assert engine.address.prefix in said
        assert keys_of(server(), engine) == []
        async with opened(url):
            assert await engine.migrations() == []
        await engine.open(create=False)
        await engine.close()

    run(test)


def test_keys_of_somebody_else_under_the_prefix() -> None:
    async def test() -> None:
        url = new_url()
        server().command("SET", f"{{{from_url(url).address.prefix}}}:store", "theirs")
        said = await refusal(url, StoreMismatch)
        assert "has keys under this prefix that Dibs did not make" in said

    run(test)


# Getting in.


def test_a_password_is_asked_for_and_never_shown(own: Server) -> None:
    async def test() -> None:
        own.command("CONFIG", "SET", "requirepass", PASSWORD)
        host, coded = f"127.0.0.1:{own.port}", PASSWORD.replace(" ", "%20")
        try:
            assert "wants a password" in await refusal(f"redis://{host}", StoreUnavailable)
            for user in ("", "default", "somebody"):
                said = await refusal(f"redis://{user}:{coded}-not@{host}", StoreUnavailable)
                assert "does not let us in" in said
                assert "Check the user and the password" in said
            for user in ("", "default"):
                async with opened(new_url(f"redis://{user}:{coded}@{host}")) as engine:
                    await engine.enqueue([new()])
        finally:
            own.command("CONFIG", "SET", "requirepass", "")

    run(test)


def test_a_socket() -> None:
    async def test() -> None:
        for scheme in ("redis+unix", "unix"):
            url = server().socket_url.replace("unix", scheme, 1)
            async with engines(url=url) as (engine,):
                await engine.enqueue([new()])
                assert len(await claim(engine, 1)) == 1

    run(test)


@pytest.fixture(scope="module")
def private() -> Iterator[Server]:
    name = next((name for name, binary in binaries().items() if binary.has_tls), None)
    if name is None:
        pytest.skip("no server here was built with TLS")
    found = Server(name, tls=True)
    yield found
    found.remove()


def test_tls(private: Server) -> None:
    async def test() -> None:
        async with engines(url=private.url, tls_ca=private.ca) as (engine,):
            await engine.enqueue([new()])
            assert len(await claim(engine, 1)) == 1
        by_name = private.url.replace("127.0.0.1", "127.0.0.2")
        said = await refusal(new_url(by_name, tls_ca=private.ca), StoreUnavailable)
        assert "can't be reached" in said  # it listens elsewhere only

    run(test)


def test_tls_with_another_authority(private: Server, tmp_path: Path) -> None:
    import trustme

    async def test() -> None:
        other = tmp_path / "other.pem"
        trustme.CA().cert_pem.write_to_path(str(other))
        for ca in ({"tls_ca": other}, {}):
            said = await refusal(new_url(private.url, **ca), StoreUnavailable)
            assert "can't be reached by TLS" in said
            assert "tls_ca" in said
        await refusal(new_url(private.url.replace("rediss", "redis")), StoreUnavailable)  # it speaks nothing but TLS
        said = await refusal(new_url(private.url, tls_ca=tmp_path / "none.pem"), DibsError)
        assert "none.pem" in said

    run(test)


def test_a_server_without_tls() -> None:
    async def test() -> None:
        url = new_url(server().url.replace("redis", "rediss", 1), connect_timeout=0.3)
        said = await refusal(url, StoreUnavailable)  # it waits for the end of what it takes for a command
        assert "TLS" in said

    run(test)


def test_a_name_that_the_certificate_does_not_have(private: Server, tmp_path: Path) -> None:
    async def test() -> None:
        certificate = authority().issue_cert("elsewhere.example")
        for name, parts in (("own.pem", certificate.cert_chain_pems), ("own.key", [certificate.private_key_pem])):
            private.write(f"other-{name}", b"".join(each.bytes() for each in parts))
        before = {each: private.command("CONFIG", "GET", each)[1] for each in ("tls-cert-file", "tls-key-file")}
        private.command(
            "CONFIG", "SET", "tls-cert-file", "other-own.pem", "tls-key-file", "other-own.key"
        )  # both at once: they belong together
        try:
            assert "can't be reached by TLS" in await refusal(new_url(private.url, tls_ca=private.ca), StoreUnavailable)
            async with engines(url=private.url, tls_ca=private.ca, tls_check_hostname="no"):
                pass
        finally:
            private.command("CONFIG", "SET", *(each for pair in before.items() for each in pair))

    run(test)


def test_a_server_that_wants_to_know_its_clients(private: Server) -> None:
    async def test() -> None:
        own = {"tls_ca": private.ca, "tls_cert": private.certificate, "tls_key": private.key}
        private.command("CONFIG", "SET", "tls-auth-clients", "yes")
        try:
            assert "can't be reached" in await refusal(new_url(private.url, tls_ca=private.ca), StoreUnavailable)
            async with engines(url=private.url, **own) as (engine,):
                await engine.enqueue([new()])
        finally:
            private.command("CONFIG", "SET", "tls-auth-clients", "no")

    run(test)


# What is apart.


def test_prefixes_and_databases_do_not_meet(own: Server) -> None:
    async def test() -> None:
        own.command("FLUSHALL")
        base = own.url.removesuffix("0")
        urls = [f"{base}{number}?prefix={prefix}" for number in (0, 1) for prefix in ("a", "b")]
        for place, url in enumerate(urls):
            async with opened(url) as engine:
                assert [queue.name for queue in await engine.queues()] == []
                await engine.enqueue([new(queue=f"q{place}")])
        for place, url in enumerate(urls):
            async with opened(url) as engine:
                assert [queue.name for queue in await engine.queues()] == [f"q{place}"]
        keys = own.command("KEYS", "*")
        assert {key.partition(":")[0] for key in keys} == {"{a}", "{b}"}

    run(test)


def test_databases_wake_each_other_for_nothing_at_most(own: Server) -> None:
    """Channels know no databases. A claimer of the other one looks, and finds nothing."""

    async def test() -> None:
        base = own.url.removesuffix("0")
        async with opened(f"{base}0?prefix=c") as one, opened(f"{base}1?prefix=c") as other:
            assert await claim(other, 1) == []
            await one.enqueue([new()])
            assert await claim(other, 1) == []
            assert len(await claim(one, 1)) == 1

    run(test)
