"""The names by which verbs read and write exist in every store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from dibs.engines import store_transaction, verbs
from dibs.engines.port import Read
from dibs.engines.postgres import statements as postgres
from dibs.engines.redis.statements import READS, WRITES
from dibs.engines.sqlite import statements as sqlite

MODULES = [
    store_transaction,
    *(import_module(f"{verbs.__name__}.{each.name}") for each in iter_modules(verbs.__path__)),
]
STORES: dict[str, Callable[[], Iterable[str]]] = {
    "sqlite": sqlite.statement_texts,
    "postgres": postgres.statement_texts,
    "redis": lambda: {**READS, **WRITES},
}
WRITE = re.compile(r"(?:port|self)\.write(?:_all)?\(\s*\"(\w+)\"")


def reads() -> set[str]:
    return {value.name for module in MODULES for value in vars(module).values() if isinstance(value, Read)}


def writes() -> set[str]:
    return {name for module in MODULES for name in WRITE.findall(Path(str(module.__file__)).read_text())}


@pytest.mark.parametrize("store", STORES)
def test_every_store_has_what_verbs_read_and_write(store: str) -> None:
    assert len(reads()) > 30
    assert len(writes()) > 20
    assert sorted((reads() | writes()) - set(STORES[store]())) == []
