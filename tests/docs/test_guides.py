"""The guides are true: their Python runs, their commands parse, their links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from dibs.cli.main import cli
from servers.postgres import server_url

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
FILES = sorted(GUIDES.glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)

FAIL_ON_PURPOSE = ("events", "large-payloads", "middleware-and-lifespan", "own-loop", "retries-and-failures")
"""Guides with tasks that fail or are lost, which is logged."""
LOGGED = re.compile(r"^\S+ [0-9a-f-]{36} (failed|timed out|is dead|was taken back)", re.MULTILINE)

FRAMEWORKS = ("fastapi", "flask")
"""What some guides import, and Dibs does not."""

guides = pytest.mark.parametrize("guide", FILES, ids=lambda file: file.stem)


def blocks(guide: Path, language: str) -> Iterator[tuple[int, str]]:
    """The line on which each fenced block of a language starts, and its text."""
    text = guide.read_text()
    for found in FENCE.finditer(text):
        if found[1] == language:
            yield text.count("\n", 0, found.start(2)), found[2]


def as_program(guide: Path) -> str:
    """All Python of a guide, each line where it is in the guide, so that tracebacks point there."""
    program = ""
    for line, code in blocks(guide, "python"):
        program += "\n" * (line - program.count("\n")) + code
    return program


def run(directory: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=directory,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("guide", [file for file in FILES if as_program(file)], ids=lambda file: file.stem)
def test_the_python_of_a_guide_runs(guide: Path, tmp_path: Path) -> None:
    program = as_program(guide)
    missing = [each for each in FRAMEWORKS if f"from {each} import" in program and find_spec(each) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    file = tmp_path / "guide.py"
    file.write_text(program)
    variables = {"DATABASE_URL": server_url()} if "DATABASE_URL" in program else {}
    ended = run(tmp_path, file.name, **variables)
    said = LOGGED.search(ended.stderr) is not None if guide.stem in FAIL_ON_PURPOSE else ended.stderr == ""
    assert (ended.returncode, said) == (0, True), f"{guide.name}:\n{ended.stderr}"
    if "\ndef test_" in program:
        tested = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:valkey", file.name)
        assert tested.returncode == 0, tested.stdout


def commands(guide: Path) -> Iterator[list[str]]:
    for _, text in blocks(guide, "sh"):
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["dibs"]:
                yield words[1:]


@guides
def test_the_commands_of_a_guide_exist(guide: Path) -> None:
    for words in commands(guide):
        command: click.Command = cli
        rest = words
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), rest[0])
            assert found is not None, f"{guide.name}: dibs {shlex.join(words)}"
            command, rest = found, rest[1:]
        command.make_context(command.name, rest)


@guides
def test_the_links_of_a_guide_lead_somewhere(guide: Path) -> None:
    for target, anchor in LINK.findall(guide.read_text()):
        file = guide.parent / target
        assert file.exists(), f"{guide.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{guide.name}: {target}#{anchor}"


def test_the_index_names_every_guide() -> None:
    named = {target for target, _ in LINK.findall((GUIDES / "README.md").read_text())}
    assert {file.name for file in FILES} - {"README.md"} <= named


def anchors(file: Path) -> set[str]:
    """The headings of a page in the form in which links name them."""
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(file.read_text())}
