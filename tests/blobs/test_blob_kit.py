"""Large payloads in users' tests: a kit keeps them in memory and shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from blob_support import DirectoryPlace

from dibs import Dibs, State
from dibs.errors import PayloadTooLarge
from dibs.testing import Kit

BIG = "0123456789" * 500

MakeKit = Callable[..., Kit]


@pytest.fixture
def app(directory: DirectoryPlace) -> Iterator[Dibs]:
    with Dibs("memory://", blobs=directory.url, inline_limit=1024) as app:

        @app.task(name="echo")
        def echo(text: str) -> str:
            return text

        yield app


def test_a_kit_keeps_them_in_memory(app: Dibs, dibs_kit: MakeKit, directory: DirectoryPlace) -> None:
    echo, kit = app.task_named("echo"), dibs_kit(app)
    handle = echo.enqueue(BIG)
    kit.assert_enqueued(echo, {"text": BIG})
    (info,) = kit.run_due()
    assert (info.state, info.args, info.result) == (State.COMPLETED, {"text": BIG}, BIG)
    assert handle.result() == BIG
    assert "blob" in handle.refresh().args, "outside the kit a snapshot says where it is"
    assert directory.listed() == []
    kit.close()
    assert app.hub.payloads.blobs is not None
    echo.enqueue(BIG)
    assert len(directory.listed()) == 1, "the app has its own store again"


def test_an_eager_kit(app: Dibs, dibs_kit: MakeKit) -> None:
    dibs_kit(app, eager=True)
    assert app.task_named("echo").enqueue(BIG).result() == BIG


def test_async_code_in_a_kit(app: Dibs, dibs_kit: MakeKit) -> None:
    kit = dibs_kit(app)

    async def main() -> None:
        handle = await app.task_named("echo").aenqueue(BIG)
        await kit.arun_due()
        assert await handle == BIG

    asyncio.run(main())


def test_an_app_without_a_store_has_none_in_a_kit(dibs_kit: MakeKit) -> None:
    app = Dibs("memory://")

    @app.task(name="make")
    def make(text: str = "") -> str:
        return text or "x" * 300_000

    kit = dibs_kit(app)
    with pytest.raises(PayloadTooLarge, match="Configure a blob store"):
        make.enqueue("x" * 300_000)
    make.enqueue()
    (info,) = kit.run_due()
    assert (info.state, info.reason) == (State.DEAD, "permanent")
