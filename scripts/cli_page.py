"""The page of all commands, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator

import click

from dibs.cli.codes import ExitCode
from dibs.cli.main import cli
from dibs.runtime.environment import VARIABLES

__all__ = ["cli_page"]

MEANINGS = {
    ExitCode.OK: "it worked",
    ExitCode.FAILED: "something went wrong: the store, the app's module, a watched task that did not complete, "
    "an error found by `doctor`, a promise broken in `demo`",
    ExitCode.USAGE: "wrong usage; nothing was done",
    ExitCode.HANDED_BACK: "`worker`: running work was handed back or killed because the shutdown time was up",
    ExitCode.LEAKED: "`worker`: too many threads were stuck past their timeout; start it again",
    ExitCode.FORCED: "`worker`: the event loop was blocked, so the process was ended from another thread",
    ExitCode.REFUSED: "the call was right, but the store refused: unknown task, wrong state, queue full or draining, …",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C",
}

INTRODUCTION = """\
# The `dibs` command

<!-- Written by `make docs` from the commands themselves; changes here are lost. -->

Commands print tables for people, in colour on a terminal. `--json` prints one JSON document on stdout and nothing
else; errors are one sentence on stderr. `python -m dibs` is the same as `dibs`.
"""


def cli_page() -> str:
    assert set(MEANINGS) == set(ExitCode)
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
