"""The page for engine authors: its steps name every verb and module once, and modules need no later verb."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from dibs.engines.base import Engine
from dibs.engines.memory import MemoryEngine
from dibs.engines.values import Feature
from dibs.testing import conformance
from dibs.testing.faults import Fault

PAGE = (Path(__file__).parents[2] / "docs" / "design" / "writing-an-engine.md").read_text()
STEP = re.compile(r"^\| \d\. [^|]+ \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
STEPS = [tuple(set(re.findall(r"`(\w+)`", cell)) for cell in row) for row in STEP.findall(PAGE)]
VERBS = {name for name in dir(Engine) if not name.startswith("_")}
ELSEWHERE = {"join", "backup"}
"""Verbs that a feature decides about."""


class Recorded:
    """An engine that notes what it is asked."""

    def __init__(self, engine: Engine, asked: set[str]) -> None:
        self._engine = engine
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        self._asked |= {name} & VERBS
        return getattr(self._engine, name)

    def sibling(self) -> Recorded:
        self._asked.add("sibling")
        return Recorded(self._engine.sibling(), self._asked)


@pytest.fixture(scope="module")
def asked() -> dict[str, set[str]]:
    """By conformance module, the verbs that its cases call."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for case in conformance.cases():
        case.run(lambda verb=case.verb: Recorded(MemoryEngine(), found[verb]))  # type: ignore[misc]
    return dict(found)


def test_every_verb_has_a_step() -> None:
    verbs = [verb for named, _ in STEPS for verb in named]
    assert sorted(verbs) == sorted(VERBS - ELSEWHERE)


def test_modules_are_green_when_all_that_they_call_is_there(asked: dict[str, set[str]]) -> None:
    there: set[str] = set()
    green: set[str] = set()
    for verbs, modules in STEPS:
        there |= verbs
        now = {module for module, needed in asked.items() if needed <= there}
        assert sorted(modules) == sorted(now - green)
        green |= now
    assert sorted(green) == sorted(asked)


def test_every_feature_and_fault_is_explained() -> None:
    for feature in Feature:
        assert f"| `{feature}` |" in PAGE
    for fault in Fault:
        assert f"| `{fault.name}`" in PAGE
