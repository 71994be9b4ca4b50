"""Random programs show no difference between an engine and the memory engine."""

from __future__ import annotations

import pytest
from hypothesis import settings

from dibs.testing.conformance import EngineFactory
from dibs.testing.model import PROFILE, check_engine

BRIEF = settings(PROFILE, max_examples=40)


def test_engine_behaves_like_the_model(make_engine: EngineFactory) -> None:
    check_engine(make_engine, BRIEF)


@pytest.mark.soak
def test_engine_behaves_like_the_model_for_long(make_engine: EngineFactory) -> None:
    check_engine(make_engine, settings(PROFILE, max_examples=200))
