"""Opening a store: whether the server can be one, and what a new store begins with."""

from __future__ import annotations

import time
from secrets import token_hex

from msgspec import Struct

from dibs.engines.redis.client import Client
from dibs.engines.redis.connecting import Address, Kind
from dibs.engines.redis.connection import Argument
from dibs.engines.redis.keys import Keys
from dibs.errors import StoreError, StoreMismatch, StoreMissing, StoreUnavailable

__all__ = ["Server", "look_at", "pending_migrations", "prepare", "read_info"]

LAYOUT = 1
"""The layout that this version writes, and the oldest that it reads."""
OLDEST_VERSION = (6, 2)
KNOWS_FLAGS = (7, 0)
"""From here on, a script can say that it may write to a full server."""


class Server(Struct, frozen=True):
    """What a server says about itself."""

    info: dict[str, str] = {}

    def get(self, name: str) -> str:
        return self.info.get(name, "")

    @property
    def name(self) -> str:
        return "Valkey" if "valkey_version" in self.info else "Redis"

    @property
    def version(self) -> str:
        return self.info.get("valkey_version") or self.get("redis_version")

    @property
    def number(self) -> tuple[int, ...]:
        """The version of Redis that it is, or is like."""
        return tuple(int(each) for each in self.get("redis_version").split(".") if each.isdecimal())

    @property
    def run_id(self) -> str:
        return self.get("run_id")


async def read_info(client: Client, *sections: str) -> dict[str, str]:
    """What a server says of itself."""
    reply = await client.call("INFO", *sections)
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


async def look_at(client: Client) -> Server:
    info = await read_info(client)
    try:
        found = await client.call("CONFIG", "GET", "appendfsync")
    except StoreError:  # hosted servers refuse CONFIG, and so may the rights of this user
        found = []
    told = found[1] if isinstance(found, list) and len(found) == 2 else b""
    return Server({**info, "appendfsync": told.decode()} if isinstance(told, bytes) and told else info)


def check_server(server: Server, address: Address) -> None:
    """Raise if tasks would not be safe there."""
    where = str(address)
    if server.number < OLDEST_VERSION:
        raise StoreMismatch(f"{where} runs {server.name} {server.version}: Dibs needs Redis 6.2 or later, or Valkey.")
    if server.get("cluster_enabled") == "1" and address.kind is not Kind.CLUSTER:
        raise StoreMismatch(f"{where} is a node of a cluster: write redis+cluster:// in place of redis://.")
    if server.get("role") == "slave" and address.kind is Kind.SERVER:
        raise StoreUnavailable(
            f"{where} is a read-only replica: give the URL of its primary, "
            f"{server.get('master_host')}:{server.get('master_port')}."
        )
    policy = server.get("maxmemory_policy")
    if policy and policy != "noeviction":
        raise StoreMismatch(
            f"{where} may delete tasks when its memory is full (maxmemory-policy {policy}). "
            "Set maxmemory-policy to noeviction, or use another server."
        )


async def prepare(client: Client, keys: Keys, address: Address, create: bool) -> Server:
    """Check the server and the store; a store that does not exist is created."""
    server = await look_at(client)
    check_server(server, address)
    client.allows_full = server.number >= KNOWS_FLAGS
    if create:  # before anything else is written
        await client.run("rights", keys("store"), keys.channel("rights"), writes=False, when_full=True)
    fields = ("layout", "oldest_reader", "shard")
    found = await client.call("HMGET", keys("store"), *fields)
    if found[0] is None:
        if not create:
            raise StoreMissing(
                f"there is no store in {address} with the prefix {keys.tag!r}. A worker or an enqueue creates it."
            )
        await create_store(client, keys, address)
        found = await client.call("HMGET", keys("store"), *fields)
    if int(found[1] or 0) > LAYOUT:
        raise StoreMismatch(
            f"the store at {address} with the prefix {keys.tag!r} was written by a newer Dibs (layout {int(found[0])}; "
            f"this version knows {LAYOUT}). Upgrade Dibs."
        )
    check_shard(found[2] or b"", address)
    return server


def shard_of(address: Address) -> bytes:
    """What a store says about how its queues are spread."""
    return b"queue" if address.by_queue else b"part" if address.is_part else b""


def check_shard(stored: bytes, address: Address) -> None:
    """Raise if tasks would be looked for where they are not."""
    if stored != shard_of(address):
        told = {
            b"queue": "has each queue by itself: add shard=queue to the URL",
            b"part": "is one queue of another store: give the URL of that, with shard=queue",
        }.get(stored, "has all queues together: leave shard=queue out, or choose another prefix")
        raise StoreMismatch(f"the store at {address} with the prefix {address.prefix!r} {told}.")


async def create_store(client: Client, keys: Keys, address: Address) -> None:
    """All fields at once, unless another process was faster."""
    # A store that was emptied begins with another generation: no process must take what it knew for true.
    first = time.time_ns() // 1000
    fields: tuple[Argument, ...] = (
        "layout", LAYOUT, "oldest_reader", LAYOUT, "generation", first, "identity", token_hex(16),
        *(("shard", shard) if (shard := shard_of(address)) else ()),
    )  # fmt: skip
    check = ("field", keys("store"), "layout")
    command = ("HSET", keys("store"), *fields)
    await client.run("save", keys("store"), "", 1, len(check), *check, 1, len(command), *command, 0)


async def pending_migrations(client: Client, keys: Keys) -> list[str]:
    """What opening would change."""
    (layout,) = await client.call("HMGET", keys("store"), "layout")
    return [] if layout is not None else ["0001 initial"]
