"""Connections of the user's own, in the form that the verbs of this engine need.

Verbs use a `DriverConnection`: the four methods of asyncpg's connection that they need. With a blocking driver they
are coroutines that never suspend: called on the user's own thread, each has its answer after one step.

`base` has it; `detect` finds the module for an object: `asyncpg` or `psycopg`. What SQLAlchemy and Django wrap around
these, `dibs.engines.user_connections` takes off. `text_codec` turns values into the text that blocking drivers send. No
driver is imported unless the user's object comes from it. Only `joining` uses this package.
"""

from dibs.engines.postgres.user_connections.base import DriverConnection
from dibs.engines.postgres.user_connections.detect import unwrap

__all__ = ["DriverConnection", "unwrap"]
