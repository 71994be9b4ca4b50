"""Every engine passes the conformance suite."""

from __future__ import annotations

import pytest

from dibs.testing import conformance
from dibs.testing.conformance.order import check_order


@pytest.mark.parametrize("case", conformance.cases(), ids=str)
def test_conformance(case: conformance.Case, make_engine: conformance.EngineFactory) -> None:
    case.run(make_engine)


def test_claims_give_the_sorted_prefix_of_the_eligible(make_engine: conformance.EngineFactory) -> None:
    check_order(make_engine)
