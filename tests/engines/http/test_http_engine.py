"""The HTTP engine over real sockets: failover, lost replies, tokens, TLS, large batches, waking, workers."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from dibs import Dibs
from dibs.core.ids import uuid7
from dibs.core.task import NewTask
from dibs.engines.http.problems import BY_SLUG, error_of, problem_of
from dibs.engines.http.protocol import COMPRESS_OVER, Scope
from dibs.engines.http.url import from_url
from dibs.engines.open import open_engine, shown_url
from dibs.engines.values import ClaimRequest, EnqueueOutcome, Feature
from dibs.errors import (
    Closed,
    DibsError,
    InvalidOption,
    NotAllowed,
    QueueFull,
    StoreUnavailable,
    TaskFailed,
    UnknownTask,
    UsageError,
)
from dibs.server import ServerSettings
from dibs.server.tokens import TokenFile, new_token
from servers.live import LiveServer
from servers.proxy import Proxy

PATIENCE = 30.0
ENQUEUE = b"/api/v1/engine/enqueue"
CLAIM = b"/api/v1/engine/claim"


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/tasks.db"


@pytest.fixture
def live(store: str) -> Iterator[LiveServer]:
    with LiveServer(Dibs(store)) as server:
        yield server


def new(number: int = 1, size: int = 0) -> NewTask:
    args = b'{"text":"' + b"x" * size + b'"}'
    return NewTask(id=uuid7(1_760_000_000_000, 0, number), queue="default", name="work", args=args)


def test_an_app_on_a_server_does_what_it_does_on_a_store(live: LiveServer) -> None:
    with Dibs(live.url) as app:

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        @app.task(retries=0)
        def fail() -> None:
            raise ValueError("no")

        with app.worker():
            assert add.enqueue(1, 2).result(PATIENCE) == 3
            with pytest.raises(TaskFailed, match="no"):
                fail.enqueue().result(PATIENCE)
        handles = app.enqueue_many([add.call(n, n) for n in range(50)])
        assert app.tasks.count().count == 52
        assert handles[7].cancel()
        assert app.peek(limit=1)[0].id == handles[0].id
        assert app.why(handles[0].id).text
        app.queues.set("default", max_depth=10)
        with pytest.raises(QueueFull) as full:
            add.enqueue(1, 1)
        assert full.value.retry_after > 0
        with pytest.raises(UnknownTask):
            app.tasks.get("01900000-0000-7000-8000-000000000000")
        with pytest.raises(UsageError, match="join a transaction"):
            add.using(connection=object()).enqueue(1, 2)


def test_a_waiting_worker_is_woken(live: LiveServer) -> None:
    started = threading.Event()
    with Dibs(live.url) as app:

        @app.task
        def ping() -> None:
            started.set()

        with app.worker():
            ping.enqueue().result(PATIENCE)
            started.clear()
            with Dibs(live.url) as other:

                async def at_once() -> float:
                    engine = other.hub.engine
                    await engine.open()
                    loop = asyncio.get_running_loop()
                    began = loop.time()
                    task = NewTask(id=uuid7(1, 0, 1), queue="default", name=ping.name)
                    await engine.enqueue([task])
                    await asyncio.to_thread(started.wait, PATIENCE)
                    await engine.close()
                    return loop.time() - began

                assert asyncio.run(at_once()) < 5
            assert started.is_set()


@pytest.mark.parametrize("act", ["before", "after"])
def test_a_lost_reply_is_repeated_safely(live: LiveServer, act: str) -> None:
    with Proxy(live.port) as proxy:

        async def body() -> None:
            engine = from_url(f"http://127.0.0.1:{proxy.port}")
            await engine.open()
            proxy.trap(ENQUEUE, act)
            (answer,) = await engine.enqueue([new()])
            assert answer.outcome in (EnqueueOutcome.ENQUEUED, EnqueueOutcome.EXISTS)
            assert proxy.sprung.is_set()
            request = ClaimRequest(worker="w", sequence=1, queues=("default",), limit=5)
            proxy.trap(CLAIM, act)
            claimed = await engine.claim(request)
            assert [task.id for task in claimed.tasks] == [new().id]
            assert proxy.sprung.is_set()
            counts = await engine.counts()
            assert sum(counts.tasks["default"].values()) == 1
            await engine.close()

        asyncio.run(body())


def test_another_server_takes_over(store: str) -> None:
    with LiveServer(Dibs(store)) as second:
        first = LiveServer(Dibs(store)).start()

        async def body() -> None:
            engine = from_url(f"{first.url},{second.url}")
            await engine.open()
            await engine.enqueue([new(1)])
            await asyncio.to_thread(first.stop)
            await engine.enqueue([new(2)])
            assert sum((await engine.counts()).tasks["default"].values()) == 2
            await engine.close()

        asyncio.run(body())


def test_no_server_at_all() -> None:
    async def body() -> None:
        engine = from_url("http://127.0.0.1:9,http://127.0.0.1:10?patience=0.1")
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:9, http://127\.0\.0\.1:10"):
            await engine.open()
        with pytest.raises(Closed):
            await engine.counts()

    asyncio.run(body())


def test_large_batches_are_compressed(live: LiveServer) -> None:
    with Proxy(live.port) as proxy:
        seen = {"most": 0}
        original = proxy._sprung_by

        def count(data: bytes) -> str | None:
            seen["most"] += len(data)
            return original(data)

        proxy._sprung_by = count  # type: ignore[method-assign]

        async def body() -> None:
            engine = from_url(f"http://127.0.0.1:{proxy.port}")
            await engine.open()
            tasks = [new(number, 1000) for number in range(1, 501)]
            answers = await engine.enqueue(tasks)
            assert len(answers) == 500
            found = await engine.get([task.id for task in tasks])
            assert all(each is not None and each.args == tasks[0].args for each in found)  # type: ignore[union-attr]
            await engine.close()

        asyncio.run(body())
        assert COMPRESS_OVER < 500_000
        assert seen["most"] < 100_000


def test_tokens(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    secret, token = new_token("shop", (Scope.PRODUCE, Scope.READ))
    tokens.add(token)
    with LiveServer(Dibs(store), ServerSettings(tokens=tokens.path, keeps=False)) as live:
        for wrong in (None, "dibs_wrong"):
            with pytest.raises(NotAllowed), Dibs(live.url, token=wrong) as app:
                app.queues.list()
        with Dibs(live.url, token=secret) as app:
            assert app.queues.list() == []
            assert secret not in repr(app)
            assert secret not in app.hub.store_name
            with pytest.raises(NotAllowed, match="operate"):
                app.queues.set("default", max_depth=3)
        monkeypatch.setenv("DIBS_TOKEN", secret)
        with Dibs(live.url) as app:
            assert app.queues.list() == []


def test_tls(tmp_path: Path, store: str) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    pem = os.fspath(tmp_path / "server.pem")
    with LiveServer(Dibs(store), ssl_certfile=pem, ssl_keyfile=pem) as live:
        with Dibs(f"{live.url}?tls_ca={tmp_path}/ca.pem") as app:
            assert app.queues.list() == []
        with pytest.raises(StoreUnavailable, match="certificate"), Dibs(f"{live.url}?patience=0") as app:
            app.queues.list()
        with pytest.raises(InvalidOption, match="can't be read"), Dibs(f"{live.url}?tls_ca={tmp_path}/none") as app:
            app.queues.list()
    assert ssl.OPENSSL_VERSION


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://", "is not the URL"),
        ("https://user:word@host", "token"),
        ("https://host?timeout=x", "timeout"),
        ("https://host?tokn=x", "token"),
        ("https://host,ftp://other", "is not the URL"),
        ("https://host,", "URL must be"),
    ],
)
def test_urls_that_are_wrong(url: str, words: str) -> None:
    with pytest.raises(InvalidOption, match=words) as error:
        open_engine(url)
    assert "word@" not in str(error.value)


def test_tokens_are_for_servers_only() -> None:
    with pytest.raises(InvalidOption, match="Dibs server"):
        Dibs("sqlite:///x.db", token="dibs_x")
    with pytest.raises(InvalidOption, match="already"):
        Dibs("https://host?token=dibs_a", token="dibs_b")
    for wrong in ("", "a\nb", 7):
        with pytest.raises(InvalidOption, match="dibs tokens create"):
            Dibs("https://host", token=wrong)  # type: ignore[arg-type]
    assert shown_url("https://a.example,https://b.example?token=dibs_secret") == (
        "https://a.example,https://b.example?token=***"
    )
    assert Feature.TRANSACTIONS not in open_engine("https://host").features


@pytest.mark.parametrize("slug", sorted(BY_SLUG))
def test_every_error_comes_back_as_it_was(slug: str) -> None:
    given: dict[str, Any] = {
        "retry_after": 2.5,
        "task_id": "t",
        "ids": ["a", "b", "a"],
        "reason": "lost",
        "error_type": "ValueError",
        "error_message": "no",
        "traceback": "tb",
    }
    kind = BY_SLUG[slug]
    error = made(kind, given)
    problem = problem_of(error)
    assert 400 <= problem.status < 600
    back = error_of(problem.status, msgspec.json.encode(problem))
    assert type(back) is kind
    assert str(back) == str(error)
    for name in given:
        if hasattr(error, name):
            assert getattr(back, name) == getattr(error, name)


def made(kind: type[DibsError], given: dict[str, Any]) -> DibsError:
    """An error of this kind, with what it takes."""
    names: tuple[str, ...] = ()
    while True:
        try:
            return kind("It went wrong.", **{name: given[name] for name in names})
        except TypeError as error:
            missing = [name for name in given if f"'{name}'" in str(error)]
            if not missing:
                raise
            names = (*names, *missing)


def test_a_client_that_asks_too_fast_waits(tmp_path: Path, store: str) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    secret, token = new_token("slow", (Scope.READ,), rate=5)
    tokens.add(token)
    with (
        LiveServer(Dibs(store), ServerSettings(tokens=tokens.path, keeps=False)) as live,
        Dibs(f"{live.url}?patience=20", token=secret) as app,
    ):
        for _ in range(15):
            assert app.queues.list() == []


def test_results_that_a_token_may_not_see(tmp_path: Path, store: str) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    secret, token = new_token("blind", (Scope.READ, Scope.PRODUCE))
    tokens.add(token)
    with Dibs(store) as direct:

        @direct.task
        def word() -> str:
            return "secret"

        handle = word.enqueue()
        with direct.worker(until_idle=True) as worker:
            worker.wait()
    with (
        LiveServer(Dibs(store), ServerSettings(tokens=tokens.path, keeps=False)) as live,
        Dibs(live.url, token=secret) as app,
        pytest.raises(NotAllowed, match="payloads"),
    ):
        app.handle(handle.id).result(PATIENCE)


def test_a_program_that_does_not_close_its_app_ends_quietly(live: LiveServer) -> None:
    for worker in ("", "app.worker().start()\n"):
        program = f"from dibs import Dibs\napp = Dibs({live.url!r})\nprint(app.queues.list())\n{worker}"
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        assert ended.stdout == "[]\n"
        assert "Unclosed" not in ended.stderr
