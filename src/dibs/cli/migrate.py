"""`dibs migrate`."""

from __future__ import annotations

import asyncio

import click

from dibs.cli.options import json_option, with_new_store
from dibs.client.app import Dibs
from dibs.errors import InvalidOption
from dibs.terminal import emit, say

__all__ = ["migrate"]


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--sql", is_flag=True, help="Only print what would be done, for the store's own tools, such as psql.")
@json_option
@with_new_store
def migrate(app: Dibs, dry_run: bool, sql: bool, as_json: bool) -> None:
    """Bring the store's layout up to date.

    Every process that opens a store does this itself; use the command to do it at a time of your choosing, or with
    another role than that of workers and producers.
    """
    if sql and as_json:
        raise InvalidOption("--sql prints a script, --json a document: give one of them.")
    if sql:
        for part in pending(app, sql=True):
            click.echo(part)
        return
    steps = pending(app)
    if steps and not dry_run:
        app.hub.runner.ensure_engine()
    if as_json:
        emit({"steps": steps, "applied": bool(steps) and not dry_run})
    elif not steps:
        say("The store is up to date.")
    else:
        say("Would apply:" if dry_run else "Applied:")
        for step in steps:
            say(f"  {step}")


def pending(app: Dibs, *, sql: bool = False) -> list[str]:
    """On its own loop, because the runner opens the engine first, which would apply the migrations."""
    return asyncio.run(app.hub.engine.migrations(sql=sql))
