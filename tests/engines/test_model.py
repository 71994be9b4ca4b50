"""Random programs show no difference between an engine and the oracle."""

from __future__ import annotations

import pytest
from hypothesis import settings

from dibs.engines.values import Feature
from dibs.testing.conformance import EngineFactory
from dibs.testing.model import PROFILE, check_engine

EXAMPLES = {"memory": 100, "sqlite": 50}
"""Programs to run where they are cheap; elsewhere fewer. They are the same ones each time; a soak draws others."""


def test_engine_behaves_like_the_model(make_engine: EngineFactory, request: pytest.FixtureRequest) -> None:
    skip_unless_it_spans_queues(make_engine)
    examples = EXAMPLES.get(request.node.callspec.params["make_engine"], 20)
    check_engine(make_engine, settings(PROFILE, max_examples=examples, derandomize=True, database=None))


@pytest.mark.soak
def test_engine_behaves_like_the_model_for_long(make_engine: EngineFactory) -> None:
    skip_unless_it_spans_queues(make_engine)
    check_engine(make_engine, settings(PROFILE, max_examples=200))


def skip_unless_it_spans_queues(make_engine: EngineFactory) -> None:
    if Feature.CROSS_QUEUE not in make_engine().features:
        pytest.skip("its programs use several queues at once")
