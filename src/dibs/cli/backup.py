"""`dibs backup`."""

from __future__ import annotations

from pathlib import Path

import click

from dibs.cli.options import json_option, with_store
from dibs.client.app import Dibs
from dibs.engines.open import shown_url
from dibs.engines.values import Feature
from dibs.errors import InvalidOption, UsageError
from dibs.terminal import emit, say, status


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
@json_option
@with_store
def backup(app: Dibs, file: Path, overwrite: bool, as_json: bool) -> None:
    """Copy the store while it is in use.

    The copy is consistent; to restore, put it where the store was (stop workers and producers first).
    """
    if Feature.BACKUP not in app.hub.engine.features:
        where = "where it is" if Feature.LEAD not in app.hub.engine.features else "with the store's own tools"
        raise UsageError(f"{shown_url(app.url)} can't be backed up from here: back it up {where}.")
    if file.exists():
        if not overwrite:
            raise InvalidOption(f"{file} exists: choose another name, or --overwrite it.")
        file.unlink()
    name = click.format_filename(file)
    with status(f"Copying to {name}"):
        app.hub.runner.run(app.hub.engine.backup(file.absolute()))
    size = file.stat().st_size
    emit({"file": name, "bytes": size}) if as_json else say(f"Copied to {name} ({size:,} bytes).")
