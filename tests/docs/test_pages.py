"""README and docs are true: Python runs, commands parse, links lead somewhere, named tests exist, pages are current."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import dibs

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
NAMED_TEST = re.compile(r"\[`(test_\w+)`\]\(([^)]+)\)")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def with_python(page: Path) -> bool:
    return bool(FENCE.search(page.read_text())) and page.parent.name != "guides"  # test_guides runs those


@pytest.mark.parametrize(
    "page", [each for each in PAGES if with_python(each)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "page.py"
    program.write_text("\n".join(FENCE.findall(page.read_text())))
    ended = subprocess.run(
        [sys.executable, "-W", "error", program.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in ended.stderr.splitlines() if "was taken back from worker" not in line]  # lost on purpose
    assert (ended.returncode, said) == (0, [])
    if page.name == "README.md":
        assert ended.stdout == "5\n"


@pages
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    missing = [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()]
    assert missing == []


@pages
def test_the_tests_that_a_page_names_exist(page: Path) -> None:
    for name, target in NAMED_TEST.findall(page.read_text()):
        assert f"def {name}(" in (page.parent / target).read_text(), f"{target} has no {name}"


def test_the_readme_opens_with_what_one_needs() -> None:
    opening = (ROOT / "README.md").read_text()[:1500]
    for needed in ("make demo", "make test", "```python"):
        assert needed in opening


def test_the_generated_pages_are_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate_docs.py"), "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_picture_in_the_readme_can_be_drawn_again(tmp_path: Path) -> None:
    picture = tmp_path / "terminal.svg"
    command = [sys.executable, str(ROOT / "scripts" / "terminal_picture.py"), str(picture)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    for shown in ("dead&#160;list", "is&#160;not&#160;an&#160;address", "No&#160;worker&#160;serves"):
        assert shown in picture.read_text()


@pytest.fixture
def api_page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return import_module("api_page")


def test_the_api_pages_explain_every_member(api_page: ModuleType) -> None:
    assert api_page.wordless(import_module("generate_docs").api_words()) == []


def test_the_api_pages_have_every_public_name(api_page: ModuleType) -> None:
    text = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference" / "api").glob("*.md"))
    names = set(dibs.__all__) - {"__version__", "DibsError"}  # errors have a page of their own
    assert [name for name in sorted(names) if f"\n## `{name}`\n" not in text] == []


def test_the_words_for_the_api_pages_are_used(api_page: ModuleType) -> None:
    known = {
        f"{thing.__name__}.{each.name}"
        for things in api_page.explained().values()
        for thing in things
        if isinstance(thing, type)
        for each in api_page.members(thing)
    }
    words = import_module("api_words").WORDS
    assert [name for name in words if "." in name and name not in known and not name.startswith("TaskEnd.")] == []
