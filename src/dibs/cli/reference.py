"""Writes the CLI's reference page from the commands: `python -m dibs.cli.reference FILE`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from dibs.cli.codes import MEANINGS
from dibs.cli.main import cli
from dibs.runtime.environment import VARIABLES

__all__ = ["reference"]

INTRODUCTION = """\
# The `dibs` command

<!-- Written by `make docs` from the commands themselves; changes here are lost. -->

Commands print tables for people, in colour on a terminal. `--json` prints one JSON document on stdout and nothing
else; errors are one sentence on stderr. `python -m dibs` is the same as `dibs`.
"""


def reference() -> str:
    """The whole page."""
    parts = [INTRODUCTION, "## Exit codes\n", "| code | meaning |\n|---|---|"]
    parts += [f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items()]
    parts += ["\n## Environment\n", "| variable | meaning |\n|---|---|"]
    parts += [f"| `{name}` | {meaning} |" for name, meaning in VARIABLES.items()]
    parts.append("")
    root = click.Context(cli, info_name="dibs")
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        parts += section(command, root, name, 2)
    return "\n".join(parts).rstrip() + "\n"


def section(command: click.Command, parent: click.Context, name: str, level: int) -> Iterator[str]:
    """One command and those below it."""
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{'#' * level} {context.command_path}\n"
    yield f"{cleaned(command.help or '')}\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            assert below is not None
            yield from section(below, context, each, level + 1)
        return
    yield f"    {' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n"
    options = [each for each in command.params if isinstance(each, click.Option)]
    if options:
        yield "| option | meaning |\n|---|---|"
        yield from (row(*record) for each in options if (record := each.get_help_record(context)) is not None)
        yield ""


def row(option: str, meaning: str) -> str:
    """A table row; a bar inside code would end the cell."""
    escaped = option.replace("|", "\\|")
    return f"| `{escaped}` | {' '.join(meaning.split())} |"


def cleaned(text: str) -> str:
    """Paragraphs as single lines, as Markdown has them."""
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(" ".join(line.strip() for line in paragraph.splitlines()) for paragraph in paragraphs)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference())
