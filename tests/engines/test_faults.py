"""Every engine passes the suite of faults."""

from __future__ import annotations

import pytest

from dibs.testing import faults


@pytest.mark.parametrize("case", faults.cases(), ids=str)
def test_faults(case: faults.Case, make_engine: faults.EngineFactory) -> None:
    case.run(make_engine)
