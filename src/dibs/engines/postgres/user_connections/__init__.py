"""Connections of the user's own, as the verbs of this engine want to see them.

Verbs speak to a *face*: the four methods of asyncpg's connection that they use. A *guest* knows how to come from what
the user has (a connection of a driver, SQLAlchemy's or Django's) to a face, and whether that has to be awaited. The
methods of a blocking driver's face are coroutines that never suspend: whoever calls them on the user's own thread has
the answer after one step.

No driver is imported unless the user's object comes from it. Only `joining` uses this package.
"""

from dibs.engines.postgres.user_connections.base import DriverConnection, UserConnection
from dibs.engines.postgres.user_connections.detect import unwrap

__all__ = ["DriverConnection", "UserConnection", "unwrap"]
