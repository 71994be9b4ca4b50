"""Arguments that are filled in later."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.core.results import TAKE, Placeholder, Take, fill, lift, shorten, slots_in, split
from dibs.errors import InvalidArguments


class Mark(Placeholder):
    """A placeholder with an identity."""


def test_placeholders_are_lifted_out() -> None:
    one, two, three = Mark(), Mark(), Mark()
    args, found = lift({"a": one, "b": [1, (two, {"c": three, 5: one})], "d": "x"})
    assert args == {"a": None, "b": [1, [None, {"c": None, 5: None}]], "d": "x"}
    assert found == [(["a"], one), (["b", 1, 0], two), (["b", 1, 1, "c"], three), (["b", 1, 1, "5"], one)]


def test_what_contains_itself_is_refused() -> None:
    endless: list[Any] = [Mark()]
    endless.append(endless)
    with pytest.raises(InvalidArguments, match="contains itself"):
        lift({"a": endless})


@pytest.mark.parametrize(
    ("slots", "short"),
    [
        (3, 3),
        ([], []),
        ([1, 2], [1, 2]),
        ([1, 2, 3], {"from": 1, "to": 4}),
        ([1, 3, 2], [1, 3, 2]),
        ([[0, 1, 2], 3], [{"from": 0, "to": 3}, 3]),
    ],
)
def test_consecutive_slots_are_a_range(slots: Any, short: Any) -> None:
    assert shorten(slots) == short


def test_results_are_put_in_their_places() -> None:
    takes = [Take(["a"], 1), Take(["b", "c", 0], {"from": 0, "to": 3}), Take(["b", "c", 1], [[2], 0]), Take(["d"], [])]
    json = msgspec.json.encode({"a": None, "b": {"c": [None, None], "keep": 1.50}, "d": None, "e": "x", TAKE: takes})
    args, read = split(json)
    assert slots_in(read) == [0, 1, 2]
    filled = fill(args, read, {0: b'"zero"', 1: b'{"one":1.0}', 2: b"null"})
    assert msgspec.json.decode(filled) == {
        "a": {"one": 1.0},
        "b": {"c": [["zero", {"one": 1.0}, None], [[None], "zero"]], "keep": 1.5},
        "d": [],
        "e": "x",
    }


def test_a_payload_that_takes_nothing_stays() -> None:
    args, takes = split(b'{"a":{"$take":[1]}}')
    assert (takes, fill(args, takes, {})) == ([], b'{"a":{"$take":[1]}}')


def test_what_can_not_be_read_is_told() -> None:
    with pytest.raises(InvalidArguments, match="can't be read"):
        split(b'{"a":1,"$take":[{"at":5}]}')


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), plain, min_size=1, max_size=4), st.data())
def test_lifting_and_filling_gives_the_arguments_back(args: dict[str, Any], data: st.DataObject) -> None:
    """Whatever the arguments are, any value in them may come from another task."""
    results: dict[int, bytes] = {}
    marks: dict[int, int] = {}

    def replaced(value: Any) -> Any:
        if data.draw(st.integers(0, 3)) == 0:
            mark = Mark()
            kept.append(mark)
            marks[id(mark)] = len(results)
            results[len(results)] = msgspec.json.encode(value)
            return mark
        if isinstance(value, list):
            return [replaced(each) for each in value]
        if isinstance(value, dict):
            return {key: replaced(each) for key, each in value.items()}
        return value

    kept: list[Mark] = []
    lifted, found = lift({name: replaced(value) for name, value in args.items()})
    takes = [Take(at, marks[id(mark)]) for at, mark in found]
    read, again = split(msgspec.json.encode({**lifted, TAKE: takes}))
    assert msgspec.json.decode(fill(read, again, results)) == args
