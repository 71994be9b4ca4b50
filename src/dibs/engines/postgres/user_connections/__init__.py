"""Connections of the user's own, in the form that the verbs of this engine need.

Verbs use a `DriverConnection`: the four methods of asyncpg's connection that they need. A `UserConnection` knows how to
get one from the user's object (a connection of a driver, of SQLAlchemy or of Django), and whether its methods must be
awaited. With a blocking driver they are coroutines that never suspend: called on the user's own thread, each has its
answer after one step.

`base` has both; `detect` finds the module for an object: `asyncpg`, `psycopg`, `sqlalchemy` or `django`. `text_codec`
turns values into the text that blocking drivers send. No driver is imported unless the user's object comes from it.
Only `joining` uses this package.
"""

from dibs.engines.postgres.user_connections.base import DriverConnection, UserConnection
from dibs.engines.postgres.user_connections.detect import unwrap

__all__ = ["DriverConnection", "UserConnection", "unwrap"]
