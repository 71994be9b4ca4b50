"""The seam itself: its verbs have callers and conformance modules, and their values can go over a wire."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

import dibs
from dibs.engines import base
from dibs.engines.base import Caring, Consuming, Engine, Keeping, Operating, Producing, Viewing
from dibs.engines.memory import MemoryEngine
from dibs.testing import conformance

SCOPES: tuple[type, ...] = (Producing, Consuming, Viewing, Operating, Keeping, Caring)
LIFECYCLE = ("features", "open", "close", "forget", "sibling", "about", "pool_use", "subscribe")

STAYS_HERE = {
    "join": "the connection is the caller's own, and so is the transaction on it",
    "backup": "the target is a path on the machine of the store",
}
"""Verbs that no wire can carry, and why. The lifecycle stays here too: it is about this process's engine, and what
`subscribe` gives is woken by other means. `about` alone is asked of the store."""

NO_MODULE = {
    "join": "it needs a driver's own connection: tests/engines/*/test_*_transactions.py and test_*_joining.py",
    "backup": "not every store has it: tests/engines/sqlite/test_sqlite_doctor.py",
    "features": "about says what they are",
    "pool_use": "not every store has a pool: tests/exporters/test_metrics.py",
    "forget": "it needs a forked child: tests/engines/*/test_*_sharing.py",
}

SOURCES = Path(dibs.__file__).parent


def verbs_of(scope: type) -> list[str]:
    return [name for name in vars(scope) if not name.startswith("_")]


VERBS = [name for scope in SCOPES for name in verbs_of(scope)]
ON_THE_WIRE = [name for name in [*VERBS, "about"] if name not in STAYS_HERE]


def test_each_verb_has_one_scope() -> None:
    assert len(VERBS) == len(set(VERBS))
    assert sorted(verbs_of(Engine)) == sorted(LIFECYCLE)


def callers() -> Iterator[str]:
    for file in SOURCES.rglob("*.py"):
        room = file.relative_to(SOURCES).parts[0]
        if room not in ("engines", "testing"):
            yield file.read_text()


@pytest.fixture(scope="module")
def calls() -> set[str]:
    return {name for text in callers() for name in re.findall(r"engine\.(\w+)", text)}


@pytest.mark.parametrize("verb", [*VERBS, *LIFECYCLE])
def test_each_verb_has_a_caller(verb: str, calls: set[str]) -> None:
    assert verb in calls


@pytest.mark.parametrize("verb", [*VERBS, *LIFECYCLE])
def test_each_verb_has_a_conformance_module(verb: str) -> None:
    modules = {case.verb for case in conformance.cases()}
    found = [module for module in modules if module == verb or module.startswith(f"{verb}_")]
    assert bool(found) is (verb not in NO_MODULE), NO_MODULE.get(verb)


def types_of(verb: str) -> dict[str, Any]:
    return get_type_hints(getattr(Engine, verb), vars(base))


@pytest.mark.parametrize("verb", ON_THE_WIRE)
def test_values_can_go_over_a_wire(verb: str) -> None:
    """Each parameter and answer can be decoded from JSON by its type alone, and has nothing in it of which that tells
    no more than that it is an object."""
    types = types_of(verb)
    assert set(types) == {*inspect.signature(getattr(Engine, verb)).parameters, "return"} - {"self"}
    for kind in types.values():
        msgspec.json.Decoder(kind)
        check_type(msgspec.inspect.type_info(kind), set())


def check_type(info: msgspec.inspect.Type, seen: set[type]) -> None:
    assert not isinstance(info, msgspec.inspect.CustomType), info
    if isinstance(info, msgspec.inspect.StructType):
        if info.cls in seen:
            return
        seen.add(info.cls)
        for field in info.fields:
            check_type(field.type, seen)
    elif isinstance(info, msgspec.inspect.UnionType):
        for each in info.types:
            check_type(each, seen)
    else:
        for name in ("item_type", "key_type", "value_type"):
            if (inner := getattr(info, name, None)) is not None:
                check_type(inner, seen)


def over_the_wire(kind: Any, value: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(value), type=kind)


class Wired:
    """An engine of which every value goes through JSON, both ways, by its declared type."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._engine, name)
        return wired(name, member) if name in ON_THE_WIRE else member


def wired(verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
    types = types_of(verb)
    signature = inspect.signature(call)

    async def run(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        sent = {name: over_the_wire(types[name], value) for name, value in bound.arguments.items()}
        positional = [sent.pop(name) for name in list(bound.arguments)[: len(args)]]
        return over_the_wire(types["return"], await call(*positional, **sent))

    return run


@pytest.mark.parametrize("case", conformance.cases(), ids=str)
def test_conformance_over_a_wire(case: conformance.Case) -> None:
    case.run(lambda: Wired(MemoryEngine()))  # type: ignore[arg-type, return-value]
