"""Other ways to a store on Redis: a handful of the conformance suite over Sentinel and on a cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis_help import new_url

from dibs.engines.redis import RedisEngine, from_url
from dibs.testing import conformance
from servers.redis import cluster, sentinels

VERBS = ("claim", "settle", "enqueue", "rescue", "act_workflows", "subscribe", "sibling")
CASES = [case for case in conformance.cases() if case.verb in VERBS]
SOME = CASES[:: len(CASES) // 30]
"""Over all of these verbs; the rest is for a soak."""
WAYS: dict[str, Callable[[], str]] = {"sentinel": lambda: sentinels().url, "cluster": lambda: cluster().url}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=str(case), marks=[] if case in SOME else [pytest.mark.soak]) for case in CASES]
)
def test_a_case_of_the_conformance_suite(way: str, case: conformance.Case) -> None:
    def make_engine() -> RedisEngine:
        return from_url(new_url(WAYS[way]()))

    case.run(make_engine)
