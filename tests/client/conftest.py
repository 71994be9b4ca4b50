"""Apps on each engine, closed when the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dibs import Dibs
from dibs.testing import ManualClock

MakeApp = Callable[..., Dibs]
TIMEOUT = 20.0
"""Seconds after which something that should happen at once counts as hanging."""


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/tasks.db"


@pytest.fixture
def make_app(url: str) -> Iterator[MakeApp]:
    """Makes apps on one engine; on SQLite they share one file."""
    with ExitStack() as stack:

        def make(*, at: str = url, **options: Any) -> Dibs:
            app = Dibs(at, **options)
            stack.callback(app.close)
            return app

        yield make


@pytest.fixture
def app(make_app: MakeApp) -> Dibs:
    """An app in real time."""
    return make_app()


@pytest.fixture
def still(make_app: MakeApp, dibs_clock: ManualClock) -> Dibs:
    """An app whose time is `dibs_clock`'s."""
    return make_app(clock=dibs_clock)
