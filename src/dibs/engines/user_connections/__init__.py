"""What frameworks wrap around a driver's connection: taken off here, for every store whose transactions can be joined.

`unwrapping` finds the module for an object: `sqlalchemy` or `django`. Neither is imported unless the object comes from
it. What the driver's own connection can do is for the store to know.
"""

from dibs.engines.user_connections.unwrapping import FAILED, Refusal, UserConnection, packages_of, unwrap

__all__ = ["FAILED", "Refusal", "UserConnection", "packages_of", "unwrap"]
