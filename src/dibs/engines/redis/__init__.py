"""The Redis engine: a server in memory for any number of machines, Redis 6.2 and later or Valkey."""

from dibs.engines.redis.engine import RedisEngine
from dibs.engines.redis.sharded import ShardedEngine
from dibs.engines.redis.url import from_url

__all__ = ["RedisEngine", "ShardedEngine", "from_url"]
