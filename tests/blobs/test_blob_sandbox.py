"""Large payloads in users' tests: a sandbox keeps them in memory and shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from blob_support import DirectoryPlace

from dibs import Dibs, State
from dibs.errors import PayloadTooLarge
from dibs.testing import Sandbox

BIG = "0123456789" * 500

MakeSandbox = Callable[..., Sandbox]


@pytest.fixture
def app(directory: DirectoryPlace) -> Iterator[Dibs]:
    with Dibs("memory://", blobs=directory.url, inline_limit=1024) as app:

        @app.task(name="echo")
        def echo(text: str) -> str:
            return text

        yield app


def test_a_sandbox_keeps_them_in_memory(app: Dibs, dibs_sandbox: MakeSandbox, directory: DirectoryPlace) -> None:
    echo, sandbox = app.task_named("echo"), dibs_sandbox(app)
    handle = echo.enqueue(BIG)
    sandbox.assert_enqueued(echo, {"text": BIG})
    (info,) = sandbox.run_due()
    assert (info.state, info.args, info.result) == (State.COMPLETED, {"text": BIG}, BIG)
    assert handle.result() == BIG
    assert "blob" in handle.refresh().args, "outside the sandbox a snapshot says where it is"
    assert directory.listed() == []
    sandbox.close()
    assert app.hub.payloads.blobs is not None
    echo.enqueue(BIG)
    assert len(directory.listed()) == 1, "the app has its own store again"


def test_an_eager_sandbox(app: Dibs, dibs_sandbox: MakeSandbox) -> None:
    dibs_sandbox(app, eager=True)
    assert app.task_named("echo").enqueue(BIG).result() == BIG


def test_async_code_in_a_sandbox(app: Dibs, dibs_sandbox: MakeSandbox) -> None:
    sandbox = dibs_sandbox(app)

    async def main() -> None:
        handle = await app.task_named("echo").aenqueue(BIG)
        await sandbox.arun_due()
        assert await handle == BIG

    asyncio.run(main())


def test_an_app_without_a_store_has_none_in_a_sandbox(dibs_sandbox: MakeSandbox) -> None:
    app = Dibs("memory://")

    @app.task(name="make")
    def make(text: str = "") -> str:
        return text or "x" * 300_000

    sandbox = dibs_sandbox(app)
    with pytest.raises(PayloadTooLarge, match="Configure a blob store"):
        make.enqueue("x" * 300_000)
    make.enqueue()
    (info,) = sandbox.run_due()
    assert (info.state, info.reason) == (State.DEAD, "permanent")
