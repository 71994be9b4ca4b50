"""A directory with an app in it, and a store of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_support import SHOP, Cli

from dibs import Dibs


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, holding shop.py; DIBS_URL names an empty store in it."""
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIBS_URL", f"sqlite:///{tmp_path}/shop.db")
    monkeypatch.syspath_prepend(str(tmp_path))
    with Dibs() as app:  # commands that only look don't make a store
        app.queues.list()
    yield tmp_path
    sys.modules.pop("shop", None)


@pytest.fixture
def cli(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(capsys, monkeypatch)


@pytest.fixture
def shop(place: Path) -> Iterator[Dibs]:
    """The app, for tests that need it beside the commands."""
    from importlib import import_module

    sys.modules.pop("shop", None)
    app = import_module("shop").app
    assert isinstance(app, Dibs)
    yield app
    app.close()
