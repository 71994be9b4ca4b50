"""Random programs show no difference between an engine and the memory engine."""

from __future__ import annotations

from dibs.testing.conformance import EngineFactory
from dibs.testing.model import check_engine


def test_engine_behaves_like_the_model(make_engine: EngineFactory) -> None:
    check_engine(make_engine)
