"""What tests of deploy/ share: where its files are, and their `dibs` command lines, parsed by dibs itself."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from dibs.cli.main import cli

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MARGIN = 15.0
"""Seconds that a process may need beyond its --shutdown-timeout, as docs/guides/production.md says."""


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


def parsed(words: Sequence[str]) -> click.Context:
    """The command that `dibs WORDS` runs, with its options. Fails if there is no such command or option."""
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), rest[0])
        assert found is not None, f"there is no command: dibs {shlex.join(words)}"
        command, rest = found, rest[1:]
    try:
        return command.make_context(command.name, rest)
    except click.ClickException as error:
        raise AssertionError(f"dibs {shlex.join(words)}: {error.format_message()}") from None


def option(words: Sequence[str], name: str) -> list[str]:
    """The values of an option that is written as --name=value."""
    return [word.partition("=")[2] for word in words if word.startswith(f"--{name}=")]


def instructions(file: Path) -> Iterator[tuple[str, str]]:
    """The instructions of a Containerfile, without comments, long lines joined."""
    lines = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name, " ".join(rest.split())
