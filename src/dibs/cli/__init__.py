"""The `dibs` command: one file per command or group of commands.

`main` is the entry point and turns errors into one sentence and an exit code (`codes`); `options` holds what commands
share, `output` what people and scripts see, `loading` how `MODULE:APP` becomes an app. Nothing imports this room.
Invariants:

- Data goes to stdout, everything else to stderr; with `--json`, stdout is one JSON document and nothing else.
- A command knows the public faces (`Dibs`, the worker) and the engine seam, never which engine it talks to.
- Whatever changes more than one task says how many first, and asks.
"""

from dibs.cli.main import main

__all__ = ["main"]
