"""Apps on the memory engine, and an engine that fails on request."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from worker_support import FaultyEngine, Switch

from dibs.client.app import Dibs
from dibs.engines.memory import MemoryEngine

sys.path.insert(0, str(Path(__file__).parent / "apps"))  # executor processes import from there


@pytest.fixture
def app() -> Iterator[Dibs]:
    app = Dibs("memory://", retry_base=0)
    yield app
    app.close()


@pytest.fixture
def switch() -> Switch:
    return Switch()


@pytest.fixture
def faulty_app(switch: Switch) -> Iterator[Dibs]:
    engine: Any = FaultyEngine(MemoryEngine(), switch)
    app = Dibs("memory://", retry_base=0, engine=engine)
    yield app
    switch.broken.clear()
    app.close()
