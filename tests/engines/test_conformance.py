"""Every engine passes the conformance suite."""

from __future__ import annotations

import pytest

from dibs.engines.values import Feature
from dibs.testing import conformance
from dibs.testing.conformance.order import check_order
from dibs.testing.conformance.spanning import SPANNING


@pytest.mark.parametrize("case", conformance.cases(), ids=str)
def test_conformance(case: conformance.Case, make_engine: conformance.EngineFactory) -> None:
    made = [make_engine()]
    if not case.concerns(made[0]):
        pytest.skip("it spans queues")
    case.run(lambda: made.pop() if made else make_engine())


def test_claims_give_the_sorted_prefix_of_the_eligible(make_engine: conformance.EngineFactory) -> None:
    if Feature.CROSS_QUEUE not in make_engine().features:
        pytest.skip("it claims from several queues")
    check_order(make_engine)


def test_cases_that_span_queues_exist() -> None:
    known = {(case.verb, case.name.removeprefix("test_")) for case in conformance.cases()}
    assert {(verb, name) for verb, names in SPANNING.items() for name in names} <= known
