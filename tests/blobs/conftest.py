"""Blob stores of each kind, and apps on each engine that use one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from blob_support import DirectoryPlace, MakeApp, MemoryPlace, Place, S3Place
from moto.server import ThreadedMotoServer

from dibs import Dibs


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """A real server on a port of its own."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()
    assert server._server is not None
    server._server.server_close()


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Place]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    place = S3Place(s3_endpoint)
    yield place
    place.empty()


@pytest.fixture
def directory(tmp_path: Path) -> DirectoryPlace:
    return DirectoryPlace(tmp_path / "blobs" / "here")


@pytest.fixture(params=["directory", "s3", "memory"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each kind in turn."""
    if request.param == "memory":
        return MemoryPlace()
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["memory", "sqlite"])
def make_app(request: pytest.FixtureRequest, tmp_path: Path, directory: DirectoryPlace) -> Iterator[MakeApp]:
    """Makes apps with blobs in a directory, on one engine; on SQLite they share one file."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/tasks.db"
    with ExitStack() as stack:

        def make(**options: Any) -> Dibs:
            app = Dibs(url, **{"blobs": directory.url, "inline_limit": 1024, "retry_base": 0, **options})
            stack.callback(app.close)
            return app

        yield make


@pytest.fixture
def app(make_app: MakeApp) -> Dibs:
    return make_app()
