"""Apps on the memory engine, and an engine that fails on request."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.client.app import Dibs
from dibs.engines.memory import MemoryEngine
from dibs.testing.faults import Faults, faulty

sys.path.insert(0, str(Path(__file__).parent / "apps"))  # executor processes import from there


@pytest.fixture
def app() -> Iterator[Dibs]:
    app = Dibs("memory://", retry_base=0)
    yield app
    app.close()


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def faulty_app(faults: Faults) -> Iterator[Dibs]:
    app = Dibs("memory://", retry_base=0, engine=faulty(MemoryEngine(), faults))
    yield app
    faults.back()
    app.close()
