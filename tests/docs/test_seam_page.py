"""The page of the seam has a heading for each verb, and names conformance modules that exist."""

from __future__ import annotations

import re
from pathlib import Path

from dibs.engines import base

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "design" / "engine-seam.md").read_text()
CONFORMANCE = ROOT / "src" / "dibs" / "testing" / "conformance"


def test_every_verb_has_a_heading() -> None:
    headings = {verb for line in re.findall(r"^### (.+)$", PAGE, re.MULTILINE) for verb in line.split(", ")}
    assert headings == {name for name in dir(base.Engine) if not name.startswith("_")}


def test_the_conformance_modules_exist() -> None:
    lines = " ".join(re.findall(r"\*Conformance: ([^*]+)\*", PAGE))
    named = set(re.findall(r"`([a-z_]+)`", lines))
    assert sorted(named - {file.stem for file in CONFORMANCE.glob("*.py")}) == []
