"""The engines under test, listed once. Each factory makes an engine on a new, empty store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

pytest.register_assert_rewrite("dibs.testing.conformance", "dibs.testing.faults", "dibs.testing.model")

from dibs.engines.base import Engine  # noqa: E402
from dibs.engines.memory import MemoryEngine  # noqa: E402
from dibs.engines.open import with_accelerator  # noqa: E402
from dibs.engines.postgres import PostgresEngine, from_url  # noqa: E402
from servers import pgbouncer, postgres  # noqa: E402
from servers import redis as redis_servers  # noqa: E402
from servers.asgi import RemoteEngine  # noqa: E402
from servers.live import LiveEngine  # noqa: E402

EngineFactory = Callable[[], Engine]


@contextmanager
def memory_factory(_: Path) -> Iterator[EngineFactory]:
    yield MemoryEngine


@contextmanager
def sqlite_factory(folder: Path) -> Iterator[EngineFactory]:
    from dibs.engines.sqlite import SqliteEngine

    numbers = count(1)
    yield lambda: SqliteEngine(folder / f"{next(numbers)}.db")


@contextmanager
def postgres_factory(_: Path) -> Iterator[EngineFactory]:
    with from_pool(schema_pool(postgres.server_url()), postgres.server_url()) as factory:
        yield factory


@contextmanager
def debian_factory(_: Path) -> Iterator[EngineFactory]:
    url = postgres.server(postgres.DEBIAN).url
    with from_pool(schema_pool(url), url) as factory:
        yield factory


@contextmanager
def pgbouncer_factory(_: Path) -> Iterator[EngineFactory]:
    with from_pool(schema_pool(postgres.server().url), f"{pgbouncer.bouncer().url}&pgbouncer=yes") as factory:
        yield factory


@contextmanager
def hybrid_factory(_: Path) -> Iterator[EngineFactory]:
    """A schema that is emptied has the identity that it had, so each has a prefix of its own beside it."""
    from dibs.engines.accelerated import from_url

    url, beside = postgres.server_url(), redis_servers.server().url

    def open_url(url: str) -> PostgresEngine:
        return from_url(with_accelerator(url, f"{beside}?prefix=h{next(prefixes)}"))

    with from_pool(schema_pool(url), url, open_url) as factory:
        yield factory


@contextmanager
def redis_factory(_: Path) -> Iterator[EngineFactory]:
    yield prefixed(redis_servers.server().url)


@contextmanager
def debian_redis_factory(_: Path) -> Iterator[EngineFactory]:
    yield prefixed(redis_servers.server("redis7").url)


@contextmanager
def valkey_factory(_: Path) -> Iterator[EngineFactory]:
    yield prefixed(redis_servers.server("valkey").url)


@contextmanager
def sentinel_factory(_: Path) -> Iterator[EngineFactory]:
    yield prefixed(redis_servers.sentinels().url)


@contextmanager
def cluster_factory(_: Path) -> Iterator[EngineFactory]:
    yield prefixed(redis_servers.cluster().url)


@contextmanager
def sharded_factory(_: Path) -> Iterator[EngineFactory]:
    yield prefixed(redis_servers.cluster().url, "&shard=queue")


def remote(factory: Callable[[Path], AbstractContextManager[EngineFactory]]) -> Callable[..., Any]:
    """Engines behind a Dibs server."""

    @contextmanager
    def remote_factory(folder: Path) -> Iterator[EngineFactory]:
        with factory(folder) as make:
            yield lambda: cast(Engine, RemoteEngine(make()))

    return remote_factory


@contextmanager
def live_factory(folder: Path) -> Iterator[EngineFactory]:
    with sqlite_factory(folder) as make:
        yield lambda: cast(Engine, LiveEngine(make()))


prefixes = count(1)


def prefixed(url: str, options: str = "") -> EngineFactory:
    """Engines on one server, each with a prefix of its own."""
    from dibs.engines.redis import from_url

    return lambda: from_url(f"{url}?prefix=t{next(prefixes)}{options}")


@cache
def schema_pool(url: str) -> postgres.SchemaPool:
    return postgres.SchemaPool(url)


@contextmanager
def from_pool(
    pool: postgres.SchemaPool, url: str, from_url: Callable[[str], PostgresEngine] = from_url
) -> Iterator[EngineFactory]:
    """Engines on schemas that may have been used before; one that is closed when the next is made is done with."""
    made: dict[str, PostgresEngine] = {}

    def make() -> Engine:
        for schema, engine in [*made.items()]:
            if engine._store is None:
                del made[schema]
                pool.put_back(schema)
        schema = pool.take()
        made[schema] = from_url(f"{url}&schema={schema}")
        return made[schema]

    yield make
    for schema in made:
        pool.put_back(schema)


def only_if(present: bool, what: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not present, reason=f"{what} is not installed here")


ENGINES: dict[str, tuple[Callable[[Path], AbstractContextManager[EngineFactory]], list[pytest.MarkDecorator]]] = {
    "memory": (memory_factory, []),
    "sqlite": (sqlite_factory, []),
    "postgres": (postgres_factory, []),
    "redis": (redis_factory, []),
    "postgres15": (debian_factory, [only_if(postgres.has_debian(), "Debian's PostgreSQL 15")]),
    "redis-sharded": (sharded_factory, []),
    "pgbouncer": (pgbouncer_factory, [only_if(pgbouncer.is_installed(), "PgBouncer")]),
    "redis7": (debian_redis_factory, [only_if("redis7" in redis_servers.binaries(), "Debian's Redis 7")]),
    "valkey": (valkey_factory, [only_if("valkey" in redis_servers.binaries(), "Valkey")]),
    "sentinel": (sentinel_factory, []),
    "cluster": (cluster_factory, []),
    "hybrid": (hybrid_factory, []),
    "http": (remote(memory_factory), []),
    "http-live": (live_factory, []),
    "http-sqlite": (remote(sqlite_factory), []),
    "http-postgres": (remote(postgres_factory), []),
    "http-redis": (remote(redis_factory), []),
}


WAYS = (
    "http-live",
    "http-sqlite",
    "http-postgres",
    "http-redis",
    "postgres15",
    "pgbouncer",
    "redis7",
    "valkey",
    "sentinel",
    "cluster",
    "redis-sharded",
    "hybrid",
)
"""Other ways to an engine that is there already. What goes over them is in CHOSEN; the rest is a repeat."""

CHOSEN = {
    "about",
    "act_workflows",
    "check",
    "claim",
    "claim_limits",
    "claim_names",
    "close",
    "closing",
    "enqueue",
    "enqueue_clients",
    "extend",
    "migrations",
    "open",
    "rescue",
    "settle",
    "sibling",
    "standing_limits",
    "subscribe",
    "workflows",
}


REMOTE = {"about", "claim", "close", "enqueue", "extend", "open", "settle", "subscribe"}
"""The same for ways through a server: what it is about is the way."""


@pytest.hookimpl(tryfirst=True)  # before it is decided what to leave out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        case = parameters.get("case")
        way = str(parameters.get("make_engine"))
        if way in WAYS and (case is None or case.verb not in (REMOTE if way.startswith("http") else CHOSEN)):
            item.add_marker(pytest.mark.soak)


@pytest.fixture(params=[pytest.param(name, marks=marks) for name, (_, marks) in ENGINES.items()])
def make_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EngineFactory]:
    """A factory of each engine in turn."""
    factory, _ = ENGINES[request.param]
    with factory(tmp_path) as made:
        yield made
