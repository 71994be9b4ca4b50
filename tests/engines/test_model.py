"""Random programs show no difference between an engine and the memory engine."""

from __future__ import annotations

import pytest
from hypothesis import settings

from dibs.testing.conformance import EngineFactory
from dibs.testing.model import PROFILE, check_engine

BRIEF = settings(PROFILE, max_examples=20)
"""For other ways to an engine that is there already."""

WAYS = ("postgres15", "pgbouncer")


def test_engine_behaves_like_the_model(make_engine: EngineFactory, request: pytest.FixtureRequest) -> None:
    check_engine(make_engine, BRIEF if request.node.callspec.params["make_engine"] in WAYS else PROFILE)
