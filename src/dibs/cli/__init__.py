"""The `dibs` command: one file per command or group of commands.

`main` is the entry point and turns errors into one sentence and an exit code (`codes`); `options` holds what commands
share, `loading` finds the app or store that a command is about (`project` reads pyproject.toml), `kinds` says what
arguments name, for shells and for `ids`, which makes a part of an id whole. The commands: `worker`, `serve`,
`enqueue`, `tasks` (with `long_search`, `task_views` and `watch`), `dead`, `steps`, `queues` (with `queue_settings`),
`schedules`, `workflows`, `workers`, `chores`, `audit`, `tokens`, `top`, `stats`, `events`, `why`, `doctor`, `backup`,
`migrate`, `simulate`, `bench` and `demo`. No other package imports anything from here. Invariants:

- Data goes to stdout, everything else to stderr; with `--json`, stdout is one JSON document and nothing else.
- A command knows the public API (`Dibs`, the worker) and the engine seam, never which engine it uses.
- A command that changes more than one task first says how many, and asks for confirmation.
"""

from dibs.cli.main import main

__all__ = ["main"]
