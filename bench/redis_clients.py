"""Client libraries for Redis beside a lean connection: the same calls in one process, alternating rounds, medians."""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Protocol
from urllib.parse import urlsplit

import hiredis

SMALL = "return {1, redis.call('TIME')[1]}"
MANY_OUT = "local all = {} for i = 1, 500 do all[i] = ARGV[1] end return all"
MANY_IN = "return #ARGV"
KEY = b"bench:{clients}"
SMALL_ARGS = (b"7", b"default", b"0192f0c4-7d1e-7a51-b3a0-5f0d9c1e2b44", b"1731920000.123", b"mail.send", b"x" * 230)
OUT_ARGS = (b"x" * 500,)
IN_ARGS = (b"x" * 400,) * 500
CHANNEL = "bench:clients"
AT_ONCE = 10
NOTHING = object()
Arguments = tuple[bytes, ...]
Figures = dict[str, float]
Next = Callable[[], Awaitable[bytes]]
IMPORTS = {"redis": "redis.asyncio", "coredis": "coredis", "valkey-glide": "glide", "hiredis": "hiredis"}


def pack(parts: tuple[str | bytes | int | float, ...]) -> bytes:
    packed: bytes = hiredis.pack_command(parts)  # type: ignore[arg-type]  # its stub says a tuple of one
    return packed


class Connection(asyncio.Protocol):
    """One RESP3 connection. Calls made in the same turn of the loop leave in one write; replies come in order."""

    def __init__(self, on_push: Callable[[list[Any]], None] | None = None) -> None:
        self._reader = hiredis.Reader(notEnoughData=NOTHING)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._unsent: list[bytes] = []
        self._on_push = on_push
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._lost: Exception | None = None

    def call(self, *parts: str | bytes | int | float) -> asyncio.Future[Any]:
        """Sends one command; the future gets its reply. A cancelled future only drops the reply."""
        reply = self._loop.create_future()
        if self._lost is not None:
            reply.set_exception(self._lost)
            return reply
        packed = pack(parts)
        self._waiting.append(reply)
        self._send(packed)
        return reply

    def push(self, *parts: str | bytes | int | float) -> None:
        """Sends a command whose answer is a push: SUBSCRIBE and its kin."""
        if self._lost is not None:
            raise self._lost
        self._send(pack(parts))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _send(self, packed: bytes) -> None:
        if not self._unsent and not self._paused:
            self._loop.call_soon(self._flush)
        self._unsent.append(packed)

    def _flush(self) -> None:
        if self._transport is not None and self._unsent and not self._paused:
            unsent, self._unsent = self._unsent, []
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not NOTHING:
                self._take(reply)
        except hiredis.ProtocolError as error:
            self._fail(error)

    def _take(self, reply: Any) -> None:
        if isinstance(reply, hiredis.PushNotification):
            if self._on_push is not None:
                self._on_push(reply)
            return
        waiter = self._waiting.popleft()
        if waiter.done():
            return
        if isinstance(reply, hiredis.ReplyError):
            waiter.set_exception(reply)
        else:
            waiter.set_result(reply)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionResetError("Redis closed the connection"))

    def _fail(self, error: Exception) -> None:
        self._lost = self._lost or error
        self._unsent.clear()
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(self._lost)


async def connect(url: str, on_push: Callable[[list[Any]], None] | None = None) -> Connection:
    loop, parts = asyncio.get_running_loop(), urlsplit(url)
    make = partial(Connection, on_push)
    if parts.scheme == "unix":
        _, connection = await loop.create_unix_connection(make, parts.path)
    else:
        _, connection = await loop.create_connection(make, parts.hostname or "localhost", parts.port or 6379)
    await connection.call("HELLO", 3)
    return connection


class Plain:
    """A blocking connection: a socket, poll and a reader."""

    def __init__(self, url: str, timeout: float = 5.0) -> None:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(parts.path)
        else:
            self._socket = socket.create_connection((parts.hostname or "localhost", parts.port or 6379))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader(notEnoughData=NOTHING)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._timeout = timeout * 1000

    def send(self, *parts: str | bytes | int | float) -> None:
        self._socket.sendall(pack(parts))

    def receive(self) -> Any:
        while (reply := self._reader.gets()) is NOTHING:
            if not self._poll.poll(self._timeout):
                raise TimeoutError
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionResetError("Redis closed the connection")
            self._reader.feed(data)
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def call(self, *parts: str | bytes | int | float) -> Any:
        self.send(*parts)
        return self.receive()

    def close(self) -> None:
        self._socket.close()


class Client(Protocol):
    """One way of calling Redis from a coroutine."""

    name: str

    async def open(self, url: str, stack: AsyncExitStack) -> None: ...
    async def call(self, script: str, args: Arguments) -> Any: ...
    async def batch(self, script: str, args: Arguments, count: int) -> Any: ...
    def subscribed(self) -> AbstractAsyncContextManager[Next]: ...


class Lean:
    name = "lean connection"

    async def open(self, url: str, stack: AsyncExitStack) -> None:
        self._url = url
        self._connection = await connect(url)
        stack.callback(self._connection.close)
        self._shas = {each: await self._connection.call("SCRIPT", "LOAD", each) for each in (SMALL, MANY_OUT, MANY_IN)}

    async def call(self, script: str, args: Arguments) -> Any:
        return await self._connection.call("EVALSHA", self._shas[script], 1, KEY, *args)

    async def batch(self, script: str, args: Arguments, count: int) -> Any:
        replies = [self._connection.call("EVALSHA", self._shas[script], 1, KEY, *args) for _ in range(count)]
        return [await each for each in replies]

    @asynccontextmanager
    async def subscribed(self) -> AsyncIterator[Next]:
        queue: asyncio.Queue[list[Any]] = asyncio.Queue()
        connection = await connect(self._url, queue.put_nowait)

        async def receive() -> bytes:
            body: bytes = (await queue.get())[2]
            return body

        try:
            connection.push("SUBSCRIBE", CHANNEL)
            await queue.get()
            yield receive
        finally:
            connection.close()


class RedisPy:
    """redis-py with its pool: a connection is taken and given back for each call."""

    name = "redis-py, pool"
    single = False

    async def open(self, url: str, stack: AsyncExitStack) -> None:
        from redis.asyncio import Redis

        self._client = Redis.from_url(url, single_connection_client=self.single)
        stack.push_async_callback(self._client.aclose)
        self._shas = {each: await self._client.script_load(each) for each in (SMALL, MANY_OUT, MANY_IN)}

    async def call(self, script: str, args: Arguments) -> Any:
        return await self._client.evalsha(self._shas[script], 1, KEY, *args)

    async def batch(self, script: str, args: Arguments, count: int) -> Any:
        pipeline = self._client.pipeline(transaction=False)
        for _ in range(count):
            pipeline.evalsha(self._shas[script], 1, KEY, *args)
        return await pipeline.execute()

    @asynccontextmanager
    async def subscribed(self) -> AsyncIterator[Next]:
        async with self._client.pubsub() as subscriber:
            await subscriber.subscribe(CHANNEL)
            messages = subscriber.listen()
            assert (await anext(messages))["type"] == "subscribe"

            async def receive() -> bytes:
                body: bytes = (await anext(messages))["data"]
                return body

            yield receive


class RedisPySingle(RedisPy):
    name = "redis-py, one connection"
    single = True


class Coredis:
    name = "coredis"

    async def open(self, url: str, stack: AsyncExitStack) -> None:
        import coredis

        self._client = await stack.enter_async_context(coredis.Redis.from_url(url))
        self._shas = {each: await self._client.script_load(each) for each in (SMALL, MANY_OUT, MANY_IN)}

    async def call(self, script: str, args: Arguments) -> Any:
        return await self._client.evalsha(self._shas[script], [KEY], args)

    async def batch(self, script: str, args: Arguments, count: int) -> Any:
        async with self._client.pipeline(transaction=False) as pipeline:
            replies = [pipeline.evalsha(self._shas[script], [KEY], args) for _ in range(count)]
        return [await each for each in replies]

    @asynccontextmanager
    async def subscribed(self) -> AsyncIterator[Next]:
        async with self._client.pubsub(channels=[CHANNEL]) as subscriber:
            assert (await anext(subscriber))["type"] == "subscribe"

            async def receive() -> bytes:
                body = (await anext(subscriber))["data"]
                assert isinstance(body, bytes)
                return body

            yield receive


class Glide:
    name = "valkey-glide"

    async def open(self, url: str, stack: AsyncExitStack) -> None:
        from glide import GlideClient, GlideClientConfiguration, NodeAddress, Script

        parts = urlsplit(url)
        self._addresses = [NodeAddress(parts.hostname or "localhost", parts.port or 6379)]
        self._client = await GlideClient.create(GlideClientConfiguration(self._addresses))
        stack.push_async_callback(self._client.close)
        self._scripts = {each: Script(each) for each in (SMALL, MANY_OUT, MANY_IN)}  # type: ignore[no-untyped-call]

    async def call(self, script: str, args: Arguments) -> Any:
        return await self._client.invoke_script(self._scripts[script], [KEY], list(args))

    async def batch(self, script: str, args: Arguments, count: int) -> Any:
        from glide import Batch

        batch, sha = Batch(is_atomic=False), self._scripts[script].get_hash()
        for _ in range(count):
            batch.custom_command(["EVALSHA", sha, "1", KEY, *args])
        return await self._client.exec(batch, raise_on_error=True)

    @asynccontextmanager
    async def subscribed(self) -> AsyncIterator[Next]:
        from glide import GlideClient, GlideClientConfiguration

        wanted = {GlideClientConfiguration.PubSubChannelModes.Exact: {CHANNEL}}
        subscriptions = GlideClientConfiguration.PubSubSubscriptions(wanted, None, None)
        configuration = GlideClientConfiguration(self._addresses, pubsub_subscriptions=subscriptions)
        subscriber = await GlideClient.create(configuration)

        async def receive() -> bytes:
            body = (await subscriber.get_pubsub_message()).message
            return body if isinstance(body, bytes) else body.encode()

        try:
            yield receive
        finally:
            await subscriber.close()


CLIENTS: tuple[tuple[str, type[Client]], ...] = (
    ("hiredis", Lean),
    ("redis", RedisPy),
    ("redis", RedisPySingle),
    ("coredis", Coredis),
    ("glide", Glide),
)
COLUMNS = ("a", "a cpu", "b pipeline", "b pipeline cpu", "b gather", "b gather cpu", "c out", "c in", "d")
TITLES = {
    "a": "lone call",
    "a cpu": "its CPU",
    "b pipeline": f"{AT_ONCE}, pipeline",
    "b pipeline cpu": "its CPU",
    "b gather": f"{AT_ONCE}, gather",
    "b gather cpu": "its CPU",
    "c out": "500 × 500 B back",
    "c in": "500 × 400 B sent",
    "d": "publish → coroutine",
}


async def timed(work: Callable[[], Awaitable[Any]], count: int, calls: int = 1) -> tuple[float, float]:
    """Microseconds per call: wall, and CPU of this process with all its threads."""
    await work()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        await work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return wall / count / calls * 1e6, cpu / count / calls * 1e6


async def together(client: Client) -> None:
    await asyncio.gather(*(client.call(SMALL, SMALL_ARGS) for _ in range(AT_ONCE)))


async def latency(client: Client, publisher: Plain, samples: int) -> float:
    """Median microseconds from the publisher's write until the subscriber's coroutine has the message."""
    taken: list[float] = []
    async with client.subscribed() as receive:
        for number in range(samples):
            await asyncio.sleep(0.001)
            body = b"%d" % number
            start = time.perf_counter()
            publisher.send("PUBLISH", CHANNEL, body)
            got = await receive()
            taken.append(time.perf_counter() - start)
            assert got == body
            assert publisher.receive() == 1
    return median(taken) * 1e6


async def check(client: Client) -> None:
    """Every client must give the same answers before it is measured."""
    one = await client.call(SMALL, SMALL_ARGS)
    assert one[0] == 1
    assert len(await client.batch(SMALL, SMALL_ARGS, AT_ONCE)) == AT_ONCE
    many = await client.call(MANY_OUT, OUT_ARGS)
    assert len(many) == 500
    assert len(many[-1]) == 500
    assert await client.call(MANY_IN, IN_ARGS) == 500


async def measure(client: Client, publisher: Plain, calls: int) -> Figures:
    found: Figures = {}
    found["a"], found["a cpu"] = await timed(lambda: client.call(SMALL, SMALL_ARGS), calls)
    batches = max(1, calls // 5)
    batch = await timed(lambda: client.batch(SMALL, SMALL_ARGS, AT_ONCE), batches, AT_ONCE)
    found["b pipeline"], found["b pipeline cpu"] = batch
    found["b gather"], found["b gather cpu"] = await timed(lambda: together(client), batches, AT_ONCE)
    large = max(1, calls // 10)
    found["c out"], _ = await timed(lambda: client.call(MANY_OUT, OUT_ARGS), large)
    found["c in"], _ = await timed(lambda: client.call(MANY_IN, IN_ARGS), large)
    found["d"] = await latency(client, publisher, large)
    return found


def measure_blocking(call: Callable[[], Any], count: int) -> Figures:
    call()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"a": wall / count * 1e6, "a cpu": cpu / count * 1e6}


async def run(url: str, rounds: int, calls: int) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {}
    publisher = Plain(url)
    async with AsyncExitStack() as stack:
        stack.callback(publisher.close)
        clients: list[Client] = []
        for package, kind in CLIENTS:
            if find_spec(package) is None or (package == "glide" and url.startswith("unix")):
                print(f"{kind.name}: left out", file=sys.stderr)
                continue
            client = kind()
            await client.open(url, stack)
            await check(client)
            clients.append(client)
        ways = blocking(url, stack)
        for number in range(rounds):
            for client in clients if number % 2 == 0 else clients[::-1]:
                found.setdefault(client.name, []).append(await measure(client, publisher, calls))
            for name, call in ways.items():
                found.setdefault(name, []).append(measure_blocking(call, calls))
    return found


def blocking(url: str, stack: AsyncExitStack) -> dict[str, Callable[[], Any]]:
    plain = Plain(url)
    stack.callback(plain.close)
    sha = plain.call("SCRIPT", "LOAD", SMALL)
    ways: dict[str, Callable[[], Any]] = {
        "socket + poll, blocking": lambda: plain.call("EVALSHA", sha, 1, KEY, *SMALL_ARGS)
    }
    if find_spec("redis") is not None:
        from redis import Redis

        pooled, single = Redis.from_url(url), Redis.from_url(url, single_connection_client=True)
        stack.callback(pooled.close)
        stack.callback(single.close)
        ways["redis-py, pool, blocking"] = lambda: pooled.evalsha(sha, 1, KEY, *SMALL_ARGS)
        ways["redis-py, one connection, blocking"] = lambda: single.evalsha(sha, 1, KEY, *SMALL_ARGS)
    return ways


def place(url: str, placement: str) -> None:
    """Pins this process and a server on the same machine: waking another core can cost more than the call itself."""
    if placement == "free":
        return
    plain = Plain(url)
    info = bytes(plain.call("INFO", "server")).decode()
    plain.close()
    server = next(int(line.split(":")[1]) for line in info.splitlines() if line.startswith("process_id:"))
    cores = sorted(os.sched_getaffinity(0))
    for thread in Path(f"/proc/{server}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {cores[0]})
    os.sched_setaffinity(0, {cores[0] if placement == "same" else cores[1]})


def import_milliseconds(statement: str, rounds: int) -> float:
    """What `-X importtime` adds up to."""
    totals = []
    for _ in range(rounds):
        command = [sys.executable, "-X", "importtime", "-c", statement]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
        own = [line.removeprefix("import time:").split("|")[0].strip() for line in lines if "|" in line]
        totals.append(sum(int(each) for each in own if each.isdigit()) / 1000)
    return median(totals)


def table(found: dict[str, list[Figures]]) -> str:
    lines = ["| client | " + " | ".join(TITLES[each] for each in COLUMNS) + " |", "|---" + "|--:" * len(COLUMNS) + "|"]
    for name, figures in found.items():
        cells = [f"{median(one[each] for one in figures):.0f}" if each in figures[0] else "–" for each in COLUMNS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append("\nLone call, least and most of the rounds:")
    for name, figures in found.items():
        lines.append(f"{name}: {min(one['a'] for one in figures):.0f} – {max(one['a'] for one in figures):.0f}")
    return "\n".join(lines)


def imports(rounds: int) -> str:
    base = import_milliseconds("import asyncio", rounds)
    lines = ["| package | version | import, ms beyond asyncio |", "|---|---|--:|"]
    for package, module in IMPORTS.items():
        if find_spec(module.split(".", maxsplit=1)[0]) is not None:
            cost = import_milliseconds(f"import asyncio, {module}", rounds) - base
            lines.append(f"| {package} | {version(package)} | {cost:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="redis://127.0.0.1:6379", help="redis://host:port or unix:///path")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=2000, help="lone calls a round; the others follow from it")
    parser.add_argument(
        "--placement", choices=("same", "apart", "free"), default="apart", help="cores; pins the server"
    )
    options = parser.parse_args()
    place(options.url, options.placement)
    found = asyncio.run(run(options.url, options.rounds, options.calls))
    print(f"Microseconds per call, medians of {options.rounds} rounds, placement: {options.placement}\n")
    print(table(found), imports(options.rounds), sep="\n\n")


if __name__ == "__main__":
    main()
