"""`/ws` and `/api/v1/events`: real sockets, on a server with a loop of its own and on one that shares the app's."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import uvicorn

from dibs import Dibs, Permanent, Retry
from dibs.engines.events import EventPage
from dibs.errors import Refused, StoreUnavailable
from dibs.server import broadcast, event_feed, event_messages, events
from dibs.server.server import Server
from dibs.server.settings import ServerSettings
from dibs.server.tokens import TokenFile, new_token
from servers.server_process import Serving

PATIENCE = 10.0


class Uvicorn(uvicorn.Server):
    def __init__(self, server: Server) -> None:
        settings: Any = {"lifespan": "off", "log_config": None, "log_level": "critical", "ws": "websockets-sansio"}
        super().__init__(uvicorn.Config(server, **settings))
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


class Site:
    """A server that listens, and its app."""

    def __init__(self, app: Dibs, server: Server, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.app = app
        self.server = server
        self.broadcaster: broadcast.Broadcaster = server.broadcaster  # type: ignore[attr-defined]
        self.loop = loop
        self.url = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.server.stopping.set)

    @asynccontextmanager
    async def ws(self, query: str = "", token: str = "", **options: Any) -> AsyncIterator[Socket]:
        async with (
            aiohttp.ClientSession(headers=bearer(token)) as session,
            session.ws_connect(f"{self.url}/ws?{query}", **options) as found,
        ):
            yield Socket(found)

    @asynccontextmanager
    async def sse(self, query: str = "", token: str = "", last: str = "") -> AsyncIterator[Stream]:
        headers = {**bearer(token), **({"Last-Event-ID": last} if last else {})}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f"{self.url}/api/v1/events?{query}", timeout=aiohttp.ClientTimeout(total=None)) as found,
        ):
            yield Stream(found)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


class Reader:
    """Reads events, whatever brings them."""

    async def next(self) -> dict[str, Any]:
        raise NotImplementedError

    async def read(self, number: int) -> list[dict[str, Any]]:
        return [await self.next() for _ in range(number)]

    async def until(self, *types: str) -> list[dict[str, Any]]:
        """Everything up to the last of these types, in any order."""
        found, missing = list[dict[str, Any]](), set(types)
        while missing:
            found.append(await self.next())
            missing.discard(found[-1]["type"])
        return found


class Socket(Reader):
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def next(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.socket.receive_json(timeout=PATIENCE)
        return found

    async def begin(self) -> dict[str, Any]:
        first = await self.next()
        assert first["type"] == "subscribed"
        return first

    async def closed(self) -> tuple[int | None, str]:
        while True:
            message = await self.socket.receive(timeout=PATIENCE)
            if message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED):
                return self.socket.close_code, str(message.extra)


class Stream(Reader):
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.id = ""
        self.retry = ""

    async def block(self) -> dict[str, str]:
        found = dict[str, str]()
        while line := (await asyncio.wait_for(self.response.content.readline(), PATIENCE)).decode():
            if line == "\n":
                return found
            name, _, value = line.rstrip("\n").partition(":")
            found[name] = value.strip()
        raise EOFError

    async def next(self) -> dict[str, Any]:
        while "data" not in (block := await self.block()):
            self.id, self.retry = block.get("id", self.id), block.get("retry", self.retry)
        self.id, self.retry = block.get("id", self.id), block.get("retry", self.retry)
        found: dict[str, Any] = json.loads(block["data"])
        assert found["cursor"] in (None, self.id)
        return found

    async def begin(self) -> dict[str, Any]:
        first = await self.next()
        assert first["type"] == "subscribed"
        return first


@contextmanager
def serving(app: Dibs, settings: ServerSettings | None = None, on_app_loop: bool = False) -> Iterator[Site]:
    server = Server(app, settings or ServerSettings(keeps=False))
    http, listener, ended = Uvicorn(server), socket.create_server(("127.0.0.1", 0), backlog=4096), threading.Event()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)  # so that a client stalls soon
    loops = list[asyncio.AbstractEventLoop]()

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        try:
            await http.serve([listener])
        finally:
            ended.set()

    app.hub.runner.serve()
    if on_app_loop:
        running: Any = asyncio.run_coroutine_threadsafe(run(), app.hub.runner.loop)
        finish = lambda: running.result(PATIENCE)  # noqa: E731
    else:
        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        finish = lambda: thread.join(PATIENCE)  # noqa: E731
    assert http.is_up.wait(PATIENCE)
    site = Site(app, server, listener.getsockname()[1], loops[0])
    try:
        yield site
    finally:
        site.stop()
        http.should_exit = True
        assert ended.wait(PATIENCE)
        finish()
        listener.close()
        assert len(site.broadcaster) == 0, "all clients were forgotten"


def add_tasks(app: Dibs) -> Any:
    @app.task(name="sums.add", queue="sums")
    def add(a: int) -> int:
        if a < 0:
            raise Permanent("secret-value")
        return a

    return add


@pytest.fixture(params=[False, True], ids=["own loop", "app's loop"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with Dibs(f"sqlite:///{tmp_path}/dibs.db") as app, serving(app, on_app_loop=request.param) as found:
        yield found


@pytest.fixture
def simple(tmp_path: Path) -> Iterator[Site]:
    with Dibs(f"sqlite:///{tmp_path}/dibs.db") as app, serving(app) as found:
        yield found


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(12 * PATIENCE):
            await test()

    asyncio.run(bounded())


def types(found: list[dict[str, Any]]) -> list[str]:
    return [each["type"] for each in found]


@pytest.mark.parametrize("way", ["ws", "sse"])
def test_a_tasks_life_and_the_form(site: Site, way: str) -> None:
    add = add_tasks(site.app)

    async def test() -> None:
        async with getattr(site, way)("topic=task") as client:
            assert (await client.begin())["data"]["topics"] == ["task"]
            with site.app.worker():
                handle = await add.aenqueue(1)
                found = await client.read(3)
        assert types(found) == ["task.submitted", "task.started", "task.completed"]
        for event in found:
            assert set(event) == {"type", "timestamp", "data", "cursor"}
            assert event["timestamp"].endswith("Z")
            assert abs(datetime.now(UTC) - datetime.fromisoformat(event["timestamp"])) < timedelta(minutes=5)
            data = event["data"]
            assert (data["task_id"], data["type"], data["task_type"], data["queue"]) == (
                handle.id,
                "sums.add",
                "sums.add",
                "sums",
            )
        assert found[2]["data"]["duration_ms"] >= 0

    run(test)


def test_every_way_that_a_task_can_go(site: Site) -> None:
    app, failing = site.app, add_tasks(site.app)

    @app.task(name="flaky", queue="sums", retries=1, retry_base=0.01)
    def flaky() -> None:
        raise Retry("again")

    async def test() -> None:
        async with site.ws() as client:
            await client.begin()
            later = await failing.using(delay=3600).aenqueue(1)
            soon = await failing.using(delay=0.05).aenqueue(2)
            await app.tasks.acancel(later.id)
            with app.worker():
                bad, again = await failing.aenqueue(-1), await flaky.aenqueue()
                found = await client.until(
                    "worker.joined",
                    "task.submitted",
                    "task.promoted",
                    "task.started",
                    "task.completed",
                    "task.failed",
                    "task.retrying",
                    "task.dead",
                    "task.cancelled",
                )
                dead = {each["data"]["task_id"] for each in found if each["type"] == "task.dead"}
                while not {bad.id, again.id} <= dead:
                    dead.add((await client.until("task.dead"))[-1]["data"]["task_id"])
            await app.tasks.areplay(bad.id)
            await app.queues.apause("sums")
            await app.queues.aresume("sums")
            found += await client.until("worker.left", "task.replayed", "queue.paused", "queue.resumed")
        submitted = {each["data"]["task_id"]: each["data"] for each in found if each["type"] == "task.submitted"}
        assert submitted[later.id]["state"] == "scheduled"
        assert submitted[soon.id]["due_at"].endswith("Z")
        assert next(each for each in found if each["type"] == "task.retrying")["data"]["due_at"].endswith("Z")

    run(test)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("queue=mail", ["b"]),
        ("queue=mail&queue=sums", ["a", "b", "c"]),
        ("task_type=sums.other", ["c"]),
        ("task_id={a}", ["a"]),
        ("task_id={a}&task_id={b}&queue=sums", ["a"]),
        ("topic=worker", []),
        ("topic=task.submitted&topic=queue", ["a", "b", "c"]),
    ],
)
@pytest.mark.parametrize("way", ["ws", "sse"])
def test_filters(simple: Site, way: str, query: str, expected: list[str]) -> None:
    app, add = simple.app, add_tasks(simple.app)

    @app.task(name="sums.other", queue="sums")
    def other() -> None: ...

    async def test() -> None:
        ids = {name: app.hub.new_id() for name in "abc"}
        async with getattr(simple, way)(query.format(**ids)) as client, simple.ws() as witness:
            await client.begin()
            await witness.begin()
            await add.using(id=ids["a"]).aenqueue(1)
            await add.using(id=ids["b"], queue="mail").aenqueue(1)
            await other.using(id=ids["c"]).aenqueue()
            found = [(await client.next())["data"]["task_id"] for _ in expected]
            assert found == [ids[name] for name in expected]
            await witness.read(3)
            assert not waiting(simple), "nothing else was chosen"

    run(test)


def waiting(site: Site) -> int:
    return sum(len(client.waiting) for audience in site.broadcaster._audiences.values() for client in audience.clients)


def test_filters_can_be_replaced_and_pings_are_answered(site: Site) -> None:
    add = add_tasks(site.app)

    async def test() -> None:
        async with site.ws("topic=worker") as client:
            await client.begin()
            await client.socket.send_json({"ping": 7})
            pong = await client.next()
            assert pong["pong"] == 7
            assert pong["cursor"]
            await client.socket.send_json({"subscribe": {"queues": ["sums"], "topics": ["task.submitted"]}})
            told = await client.begin()
            assert told["data"] == {"topics": ["task.submitted"], "queues": ["sums"], "task_types": [], "task_ids": []}
            handle = await add.aenqueue(1)
            assert (await client.next())["data"]["task_id"] == handle.id

    run(test)


def test_messages_can_come_in_lists(simple: Site) -> None:
    add = add_tasks(simple.app)

    async def test() -> None:
        async with simple.ws("batch=true") as client:
            found: list[Any] = await client.socket.receive_json(timeout=PATIENCE)
            for number in range(20):
                await add.aenqueue(number)
            while len(found) < 21:
                found += await client.socket.receive_json(timeout=PATIENCE)
            assert types(found) == ["subscribed", *["task.submitted"] * 20]

    run(test)


def test_figures_are_told_to_those_who_ask(site: Site) -> None:
    add = add_tasks(site.app)

    async def test() -> None:
        await add.aenqueue(1)
        async with site.ws("topic=queue.depth&topic=system.metrics") as client:
            await client.begin()
            found = {each["type"]: each["data"] for each in await client.until("queue.depth", "system.metrics")}
            assert found["queue.depth"]["tasks"]["pending"] == 1
            assert found["system.metrics"]["tasks"]["pending"] == 1
            async with site.ws("topic=queue") as second:
                assert (await second.until("queue.depth"))[-1]["data"]["queue"] == "sums"

    run(test)


def stored(site: Site, table: str = "dibs_events") -> int:
    with sqlite3.connect(site.app.hub.url.removeprefix("sqlite:///")) as connection:
        found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    connection.close()
    return found


def test_nothing_is_written_while_nobody_listens(simple: Site) -> None:
    add = add_tasks(simple.app)

    async def test() -> None:
        await add.aenqueue(1)
        assert (stored(simple), stored(simple, "dibs_watches")) == (0, 0)
        async with simple.ws("topic=queue.depth") as client:  # computed, not stored
            await client.until("queue.depth")
            await add.aenqueue(2)
            assert (stored(simple), stored(simple, "dibs_watches")) == (0, 0)
        async with simple.ws() as client:
            await client.begin()
            await add.aenqueue(3)
            await client.next()
            assert (stored(simple), stored(simple, "dibs_watches")) == (1, 1)
        await ended(simple)

    run(test)


async def ended(site: Site) -> None:
    """Until nothing is read for clients any more."""
    async with asyncio.timeout(PATIENCE):
        while site.broadcaster._reading is not None or len(site.broadcaster):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("way", ["ws", "sse", "header"])
def test_resuming_without_a_gap(site: Site, way: str) -> None:
    add = add_tasks(site.app)

    async def test() -> None:
        async with site.ws("topic=task.submitted") as client:
            start = (await client.begin())["cursor"]
            handles = [await add.aenqueue(1)]
            cursor = (await client.next())["cursor"]
        await ended(site)
        handles += [await add.aenqueue(number) for number in range(2, 6)]
        opened = {
            "ws": lambda at: site.ws(f"topic=task.submitted&cursor={at}"),
            "sse": lambda at: site.sse(f"topic=task.submitted&cursor={at}"),
            "header": lambda at: site.sse("topic=task.submitted", last=at),
        }[way]
        for at, seen in ((start, 0), (cursor, 1)):
            expected = handles[seen:]
            async with opened(at) as client:
                assert (await client.begin())["cursor"] == at
                found = await client.read(len(expected))
                assert [each["data"]["task_id"] for each in found] == [each.id for each in expected]
                handles.append(await add.aenqueue(9))
                assert (await client.next())["data"]["task_id"] == handles[-1].id

    run(test)


def test_resuming_under_load_brings_each_event_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client comes and goes while tasks are enqueued; its queue overflows while it catches up."""
    monkeypatch.setattr(broadcast, "PAGE", 50)
    monkeypatch.setattr(event_feed, "PAGE", 50)
    monkeypatch.setattr(event_messages, "MOST_WAITING", 60)
    add, number = add_tasks(site.app), 1500

    async def test() -> None:
        sent, found, cursor = list[str](), list[str](), ""

        async def produce() -> None:
            for _ in range(number):
                sent.append((await add.aenqueue(1)).id)

        async with site.ws("topic=task") as client:
            cursor = (await client.begin())["cursor"]
        producing = asyncio.ensure_future(produce())
        while len(found) < number:
            async with site.ws(f"topic=task&cursor={cursor}") as client:
                await client.begin()
                for event in await client.read(min(211, number - len(found))):
                    if event["type"] == "gap":  # it may be slow: then it resumes
                        assert event["data"]["reason"] == "slow"
                        cursor = event["cursor"]
                        break
                    found.append(event["data"]["task_id"])
                    cursor = event["cursor"]
        await producing
        assert found == sent

    run(test)


def test_a_gap_is_told_if_events_were_deleted(simple: Site) -> None:
    add = add_tasks(simple.app)

    async def test() -> None:
        async with simple.ws() as client:
            cursor = (await client.begin())["cursor"]
            await add.aenqueue(1)
            await client.next()
        path = simple.app.hub.url.removeprefix("sqlite:///")
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE dibs_store SET events_trimmed = (SELECT max(n) FROM dibs_events)")
            connection.execute("DELETE FROM dibs_events")
        connection.close()
        handles = list[Any]()
        for opened in (simple.ws, simple.sse):
            async with opened(f"cursor={cursor}") as client:
                await client.begin()
                gap = await client.next()
                assert (gap["type"], gap["data"]) == ("gap", {"reason": "deleted"})
                handles.append(await add.aenqueue(2))
                found = await client.read(len(handles))
                assert [each["data"]["task_id"] for each in found] == [each.id for each in handles]

    run(test)


def test_a_gap_is_told_if_nobody_had_events_written(simple: Site) -> None:
    async def test() -> None:
        async with simple.ws() as client:
            at, _, cursor = (await client.begin())["cursor"].rpartition("-")
            await client.socket.close()
        await ended(simple)
        async with simple.ws(f"cursor={int(at) - 60}-{cursor}") as client:
            await client.begin()
            assert (await client.next())["data"] == {"reason": "unwatched"}

    run(test)


def small_buffers() -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return made


@asynccontextmanager
async def stalled(
    site: Site | Serving, path: str = "/ws"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client that has asked for events and reads none of them until it is told to."""
    made = small_buffers()
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", int(site.url.rpartition(":")[2])))
    reader, writer = await asyncio.open_connection(sock=made, limit=1024)
    upgrade = (
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{upgrade if path == '/ws' else ''}\r\n".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).split()[1] in (b"101", b"200")
    try:
        yield reader, writer
    finally:
        writer.transport.abort()  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", ["/ws", "/api/v1/events"])
def test_a_stalled_client_gets_a_gap_and_delays_nobody(site: Site, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_messages, "MOST_WAITING", 200)
    add, rooms = add_tasks(site.app), site.broadcaster._audiences

    async def test() -> None:
        async with stalled(site, path) as (slow, _), site.ws("topic=task.submitted") as client:
            await client.begin()
            while not any(each.overflowed for audience in rooms.values() for each in audience.clients):
                before = time.monotonic()
                await asyncio.gather(*(add.aenqueue(1) for _ in range(50)))
                assert types(await client.read(50)) == ["task.submitted"] * 50
                assert time.monotonic() - before < 5
            read = b""
            while b'"reason":"slow"' not in read:
                read += await asyncio.wait_for(slow.read(65536), PATIENCE)
            handle = await add.aenqueue(2)
            while handle.id.encode() not in read:
                read += await asyncio.wait_for(slow.read(65536), PATIENCE)

    run(test)


@pytest.mark.parametrize("path", ["/ws", "/api/v1/events"])
def test_a_client_that_takes_nothing_is_disconnected(simple: Site, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SEND_TIMEOUT", 0.3)
    monkeypatch.setattr(events, "CLOSING", 0.1)
    add = add_tasks(simple.app)

    async def test() -> None:
        async with stalled(simple, path):
            while not len(simple.broadcaster):
                await asyncio.sleep(0.01)
            while len(simple.broadcaster):
                await asyncio.gather(*(add.aenqueue(1) for _ in range(100)))
        await ended(simple)

    run(test)


@pytest.mark.parametrize("path", ["/ws", "/api/v1/events"])
def test_clients_that_vanish_are_forgotten(site: Site, path: str) -> None:
    async def test() -> None:
        async with stalled(site, path):
            while not len(site.broadcaster):
                await asyncio.sleep(0.01)
        await ended(site)

    run(test)


@pytest.mark.parametrize(
    ("sent", "code", "reason"),
    [
        ("no json", 1008, "does not fit"),
        ("[]", 1008, "does not fit"),
        ('{"subscribe": {"topic": []}}', 1008, "unknown field"),
        ('{"subscribe": {"topics": ["task.faild"]}}', 1008, "task.failed"),
        ('{"subscribe": {"queues": ["a b"]}}', 1008, "queue"),
        ('{"unsubscribe": 1}', 1008, "unknown field"),
        ("x" * 70_000, 1009, "bytes"),
        (b"{}", 1003, "texts"),
        ("[" * 60_000, 1008, "does not fit"),
    ],
)
def test_wrong_messages_close_the_connection(simple: Site, sent: str | bytes, code: int, reason: str) -> None:
    async def test() -> None:
        async with simple.ws() as client:
            await client.begin()
            await (client.socket.send_str(sent) if isinstance(sent, str) else client.socket.send_bytes(sent))
            found = await client.closed()
            assert found[0] == code
            assert reason in found[1]

    run(test)


@pytest.mark.parametrize(
    "query",
    ["cursor=x", "cursor=-5", "cursor=1-", "cursor=a-1", "cursor=1:x", "topic=tasks", "queue=a%20b", "other=1"],
)
def test_wrong_queries_are_refused(simple: Site, query: str) -> None:
    async def test() -> None:
        async with simple.sse(query) as stream:
            assert stream.response.status == 422
            assert stream.response.content_type == "application/problem+json"
        async with simple.ws(query) as client:
            code, reason = await client.closed()
            assert (code, bool(reason)) == (1008, True)

    run(test)


def test_a_head_request_ends(simple: Site) -> None:
    async def test() -> None:
        async with aiohttp.ClientSession() as session, session.head(f"{simple.url}/api/v1/events") as found:
            assert (found.status, found.content_type) == (200, "text/event-stream")

    run(test)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Site, dict[str, str], TokenFile]]:
    file, secrets = TokenFile(tmp_path / "tokens.json"), dict[str, str]()
    for name, scopes, queues in [
        ("all", ["read", "payloads"], []),
        ("plain", ["read"], []),
        ("limited", ["read"], ["sums"]),
        ("producer", ["produce"], []),
    ]:
        secrets[name], token = new_token(name, scopes, queues)
        file.add(token)
    settings = ServerSettings(tokens=file.path, keeps=False)
    with Dibs(f"sqlite:///{tmp_path}/dibs.db") as app, serving(app, settings) as site:
        yield site, secrets, file


def test_who_may_listen(guarded: tuple[Site, dict[str, str], TokenFile]) -> None:
    site, secrets, _ = guarded

    async def test() -> None:
        for token, query, status in [
            ("", "", 401),
            ("dibs_wrong", "", 401),
            (secrets["producer"], "", 403),
            (secrets["limited"], "queue=mail", 403),
        ]:
            async with site.sse(query, token) as stream:
                assert stream.response.status == status
            async with site.ws(query, token) as client:
                assert (await client.closed())[0] == 1008
        async with site.ws("queue=sums", secrets["limited"]) as client:
            await client.begin()
            await client.socket.send_json({"subscribe": {"queues": ["mail"]}})
            assert (await client.closed())[0] == 1008

    run(test)


def test_callers_see_what_they_may(guarded: tuple[Site, dict[str, str], TokenFile]) -> None:
    site, secrets, _ = guarded
    add = add_tasks(site.app)

    async def test() -> None:
        async with (
            site.ws("", secrets["all"]) as all_of_it,
            site.ws("", secrets["plain"]) as plain,
            site.sse("", secrets["limited"]) as limited,
        ):
            for client in (all_of_it, plain, limited):
                await client.begin()
            await add.using(queue="mail").aenqueue(1)
            with site.app.worker():
                handle = await add.aenqueue(-1)
                seen = {
                    name: await client.until("task.dead") for name, client in [("all", all_of_it), ("plain", plain)]
                }
                of_queue = await limited.until("task.dead")
        failed = {name: next(each for each in found if each["type"] == "task.failed") for name, found in seen.items()}
        assert failed["all"]["data"]["error"] == "secret-value"
        assert failed["plain"]["data"]["error_type"] == "dibs.errors.Permanent"
        assert "secret-value" not in json.dumps([seen["plain"], of_queue])
        assert "worker.joined" in types(seen["plain"])
        assert {each["data"].get("queue") for each in of_queue} == {"sums"}, "nothing of workers or other queues"
        assert {each["data"]["task_id"] for each in of_queue} == {handle.id}

    run(test)


def test_revoked_tokens_are_noticed(
    guarded: tuple[Site, dict[str, str], TokenFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, secrets, file = guarded
    monkeypatch.setattr(events, "RECHECK", 0.2)

    async def test() -> None:
        async with site.ws("", secrets["plain"]) as client, site.sse("", secrets["plain"]) as stream:
            await client.begin()
            await stream.begin()
            file.revoke("plain")
            assert (await client.closed())[0] == 1008
            with pytest.raises(EOFError):
                await stream.until("never")

    run(test)


def test_browsers_send_the_token_as_a_subprotocol(guarded: tuple[Site, dict[str, str], TokenFile]) -> None:
    site, secrets, _ = guarded

    async def test() -> None:
        async with site.ws(protocols=["dibs", f"token.{secrets['plain']}"]) as client:
            await client.begin()
            assert client.socket.protocol == "dibs"
        async with site.ws(protocols=["dibs", "token.wrong"]) as client:
            assert (await client.closed())[0] == 1008

    run(test)


def test_too_many_clients_are_refused(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        async with site.ws() as first:
            await first.begin()
            async with site.sse() as stream:
                assert stream.response.status == 503
                assert stream.response.headers["Retry-After"]
            async with site.ws() as second:
                assert (await second.closed())[0] == 1013

    settings = ServerSettings(most_connections=1, keeps=False)
    with Dibs(f"sqlite:///{tmp_path}/dibs.db") as app, serving(app, settings) as site:
        run(lambda: test(site))


def test_a_server_that_stops_says_so(site: Site) -> None:
    async def test() -> None:
        async with site.ws() as client, site.sse() as stream:
            cursor = (await client.begin())["cursor"]
            await stream.begin()
            site.stop()
            last = await client.next()
            assert (last["type"], last["cursor"]) == ("server.stopping", cursor)
            assert (await client.closed())[0] == 1012
            assert (await stream.next())["type"] == "server.stopping"
            assert stream.retry == "1000"
            with pytest.raises(EOFError):
                await stream.block()

    run(test)


def test_a_stream_is_kept_alive_and_its_cursor_moves(simple: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "KEEP_ALIVE", 0.1)
    add = add_tasks(simple.app)

    async def test() -> None:
        async with simple.sse("topic=worker") as stream, simple.ws() as witness:
            first = (await stream.begin())["cursor"]
            await witness.begin()
            await add.aenqueue(1)
            await witness.next()
            while (block := await stream.block()).get("id") in (first, None):
                assert "data" not in block
            assert block["id"].rpartition("-")[2] == "1"

    run(test)


def test_an_outage_of_the_store_ends_nothing(simple: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, add, refused = simple.app.hub.engine, add_tasks(simple.app), list[int]()
    ask = engine.events

    async def away(*_: Any, **__: Any) -> EventPage:
        refused.append(1)
        if len(refused) > 3:
            monkeypatch.setattr(engine, "events", ask)
        raise StoreUnavailable("away")

    async def test() -> None:
        async with simple.ws() as client:
            await client.begin()
            monkeypatch.setattr(engine, "events", away)
            handle = await add.aenqueue(1)
            assert (await client.next())["data"]["task_id"] == handle.id
            assert len(refused) == 4

    run(test)


def test_a_store_that_refuses_is_told(simple: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any, **__: Any) -> EventPage:
        raise Refused("events can be read of one queue at a time only")

    async def test() -> None:
        monkeypatch.setattr(simple.app.hub.engine, "events", refuse)
        async with simple.sse() as stream:
            assert stream.response.status == 409
        async with simple.ws() as client:
            assert (await client.closed())[0] == 1008
        await ended(simple)

    run(test)


def test_closing_the_app_ends_the_clients(tmp_path: Path) -> None:
    async def test(site: Site) -> None:
        async with site.ws() as client:
            await client.begin()
            await site.app.aclose()
            assert (await client.closed())[0] == 1012

    with Dibs(f"sqlite:///{tmp_path}/dibs.db") as app, serving(app) as site:
        run(lambda: test(site))


def test_clients_of_all_servers_see_all_events(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/dibs.db"

    async def test(first: Site, second: Site) -> None:
        async with first.ws("topic=task.submitted") as one, second.ws("topic=task.submitted") as two:
            await one.begin()
            cursor = (await two.begin())["cursor"]
            ids = [(await add_tasks(first.app).aenqueue(1)).id, (await add_tasks(second.app).aenqueue(2)).id]
            for client in (one, two):
                assert [each["data"]["task_id"] for each in await client.read(2)] == ids
        async with first.ws(f"topic=task.submitted&cursor={cursor}") as other:  # a cursor is good at every server
            await other.begin()
            assert [each["data"]["task_id"] for each in await other.read(2)] == ids

    with Dibs(url) as app, Dibs(url) as another, serving(app) as first, serving(another, on_app_loop=True) as second:
        run(lambda: test(first, second))


CLIENTS, AT_ONCE, GOOD = 2000, 100, 20


async def listen(server: Serving, delays: list[float]) -> None:
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{server.url}/ws?topic=task") as found:
        async for message in found:
            event = json.loads(message.data)
            assert event["type"] != "gap"
            if event["type"] != "subscribed":
                delays.append(time.time() - datetime.fromisoformat(event["timestamp"]).timestamp())


async def produce(app: Dibs) -> None:
    add = add_tasks(app)
    while True:
        await asyncio.gather(*(add.aenqueue(1) for _ in range(10)))
        await asyncio.sleep(0.05)


async def misbehave(server: Serving, number: int, over: asyncio.Event) -> None:
    async with stalled(server, "/ws" if number % 2 else "/api/v1/events") as (reader, _):
        if number % 3 == 0:
            await reader.read(1000)
        elif number % 3 == 1:
            await over.wait()


@pytest.mark.soak
def test_many_clients_that_stall_and_vanish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While tasks run, good clients are told in time, and the server keeps nothing of the bad ones."""
    url, delays = f"sqlite:///{tmp_path}/dibs.db", list[float]()

    async def test(server: Serving, app: Dibs) -> None:
        process, over = psutil.Process(server.process.pid), asyncio.Event()
        running = [
            asyncio.ensure_future(each) for each in (produce(app), *(listen(server, delays) for _ in range(GOOD)))
        ]
        while len(delays) < 1000:
            await asyncio.sleep(0.1)
        files, memory, most, bad = process.num_fds(), process.memory_info().rss, 0, list[asyncio.Future[None]]()
        for start in range(0, CLIENTS, AT_ONCE):
            bad += [asyncio.ensure_future(misbehave(server, start + each, over)) for each in range(AT_ONCE)]
            await asyncio.sleep(1.5)
            most = max(most, process.memory_info().rss)
        peak = process.num_fds()
        over.set()
        await asyncio.gather(*bad)
        async with asyncio.timeout(PATIENCE):
            while process.num_fds() > files + 5:
                await asyncio.sleep(0.1)
        assert not [each for each in running if each.done()]
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        delays.sort()
        late = delays[int(len(delays) * 0.95)]
        with capsys.disabled():
            print(
                f"{len(delays):,} deliveries, P50 {delays[len(delays) // 2] * 1000:.0f} ms, P95 {late * 1000:.0f} ms; "
                f"memory {memory >> 20} to {most >> 20} MiB; files {files} to {peak}"
            )
        assert late < 0.1
        assert most - memory < 150 << 20

    with Serving("--url", url, cwd=tmp_path) as server, Dibs(url) as app, app.worker(concurrency=4):
        run(lambda: test(server, app))
        assert server.stop() == 0
        assert "Traceback" not in server.log
