"""The root command, and what becomes of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from dibs.cli.codes import ExitCode
from dibs.core.options import brief
from dibs.errors import DibsError, Refused, UsageError
from dibs.terminal import note
from dibs.version import __version__

__all__ = ["cli", "main", "run"]

TRACEBACK = "--traceback"

COMMANDS = {
    "worker": "dibs.cli.worker:worker",
    "serve": "dibs.cli.serve:serve",
    "enqueue": "dibs.cli.enqueue:enqueue",
    "tasks": "dibs.cli.tasks:tasks",
    "dead": "dibs.cli.dead:dead",
    "steps": "dibs.cli.steps:steps",
    "queues": "dibs.cli.queues:queues",
    "schedules": "dibs.cli.schedules:schedules",
    "workflows": "dibs.cli.workflows:workflows",
    "workers": "dibs.cli.workers:workers",
    "chores": "dibs.cli.chores:chores",
    "audit": "dibs.cli.audit:audit",
    "tokens": "dibs.cli.tokens:tokens",
    "top": "dibs.cli.top:top",
    "stats": "dibs.cli.stats:stats",
    "events": "dibs.cli.events:events",
    "why": "dibs.cli.why:why",
    "peek": "dibs.cli.why:peek",
    "doctor": "dibs.cli.doctor:doctor",
    "backup": "dibs.cli.backup:backup",
    "migrate": "dibs.cli.migrate:migrate",
    "simulate": "dibs.cli.simulate:simulate",
    "bench": "dibs.cli.bench:bench",
    "demo": "dibs.cli.demo:demo",
}
"""In the order of the help; each is imported when it is used, so that `dibs worker` does not pay for the others."""


class Root(click.Group):
    """Finds commands by name without importing them all."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = COMMANDS.get(cmd_name)
        if where is None:
            return None
        module, _, name = where.partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command


@click.command(
    cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, no_args_is_help=True
)
@click.version_option(__version__, "-V", "--version", prog_name="dibs")
@click.option(TRACEBACK, is_flag=True, help="Show where an error came from, for bug reports.")
def cli(traceback: bool) -> None:
    """A priority task queue: first dibs to the most urgent task.

    Commands find the store by --url (sqlite:///tasks.db) or --app (MODULE:APP); else by the environment variables
    DIBS_APP or DIBS_URL; else by app or url in [tool.dibs] of pyproject.toml, here or in a folder above; else they
    take ./dibs.db. Ids may be given by their beginning or their end, as listings show them. Try `dibs demo`.
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and give its exit code; errors are one sentence on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with_traceback = TRACEBACK in given
    if with_traceback:  # it is the root command's, but people add it to the line that failed
        given.remove(TRACEBACK)
    try:
        answer = cli.main(given, prog_name="dibs", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has all it wanted. Without this, Python would fail to flush the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except Exception as error:
        if with_traceback:
            raise
        message, code = explain(error)
        tell(message, error)
        return code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return int(answer) if isinstance(answer, int) else ExitCode.OK


def explain(error: Exception) -> tuple[str, int]:
    """The message, of limited length, and the exit code for an error."""
    message, code = message_and_code(error)
    return message if is_help(error) else brief(message), code


def tell(message: str, error: Exception) -> None:
    """On stderr. Help has its own lines."""
    if is_help(error):
        click.echo(message, err=True)
    else:
        note(message)


def is_help(error: Exception) -> bool:
    return isinstance(error, click.exceptions.NoArgsIsHelpError)


def message_and_code(error: Exception) -> tuple[str, int]:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message(), ExitCode.USAGE
    if isinstance(error, click.Abort):
        return "Stopped.", ExitCode.INTERRUPTED
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "dibs"
        return f"{sentence(error.format_message())} See {path} --help.", ExitCode.USAGE
    if isinstance(error, click.ClickException):
        return sentence(error.format_message()), ExitCode.FAILED
    if isinstance(error, UsageError):
        return sentence(str(error)), ExitCode.USAGE
    if isinstance(error, Refused):
        return sentence(str(error)), ExitCode.REFUSED
    if isinstance(error, DibsError | TimeoutError | OSError):
        return sentence(str(error) or type(error).__name__), ExitCode.FAILED
    what = brief(f"{type(error).__name__}: {error}".replace("\n", " "), 300)
    return f"Unexpected {what}. Please report this, with the output of dibs --traceback ….", ExitCode.FAILED


def sentence(text: str) -> str:
    """Capitalised (unless it starts with a quoted name or a value), with a full stop at the end."""
    text = text.strip()
    first = text.split(" ", 1)[0]
    if first.replace("'", "").isalpha() and first.islower():
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", "?)")) else f"{text}."
