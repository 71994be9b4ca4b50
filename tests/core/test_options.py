"""What is said about odd values: short whatever they are, and the same in every place."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.odd import ODD
from dibs.core.options import (
    CAPABILITIES,
    brief,
    check_flag,
    check_fraction,
    check_label,
    check_name,
    check_names,
    check_number,
    check_real,
    check_text,
    nearest,
    shown,
    storable,
    unknown_option,
)
from dibs.core.times import duration, patience
from dibs.errors import InvalidOption


@pytest.mark.parametrize("what", ODD)
def test_any_value_can_be_shown(what: str) -> None:
    assert 0 < len(shown(ODD[what])) <= 80
    assert "\ud800" not in shown(ODD[what])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("42", "'42'"),
        (timedelta(days=3), "datetime.timedelta(days=3)"),
        pytest.param(10**5000, "a number of 16,610 bits", id="a huge int"),
        ([1, 2, 3, 4, 5], "[1, 2, 3, 4, ...]"),
        (ODD["no repr"], "<Silent instance at "),
    ],
)
def test_how_values_are_shown(value: object, text: str) -> None:
    assert shown(value).startswith(text)


@given(st.text(max_size=2000), st.integers(20, 500))
def test_brief_keeps_the_ends(text: str, most: int) -> None:
    said = brief(text, most)
    assert len(said) <= most
    assert said == text or (text.startswith(said[:5]) and text.endswith(said[-5:]))


def test_an_unknown_option_of_many_is_told_shortly() -> None:
    many = [f"option_{number}" for number in range(500)]
    assert str(unknown_option("option_7x", many, "it")) == "it has no option 'option_7x'. Did you mean 'option_7'?"
    assert nearest("x" * 100_000, many) == ""


@pytest.mark.parametrize("value", ["gpu", b"gpu", {"gpu": 1}, None, 5])
def test_names_are_no_single_text(value: object) -> None:
    with pytest.raises(InvalidOption, match=r"requires must be a list of capabilities such as \['gpu'\], not "):
        check_names(value, "requires", CAPABILITIES)


def test_names_come_in_any_container() -> None:
    for value in (["a", "b"], ("a", "b"), {"a": 1, "b": 2}.keys(), iter("ab")):
        assert check_names(value, "requires", CAPABILITIES) == ("a", "b")


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), 2, -0.1, 10**400])
def test_a_fraction_is_a_number_from_0_to_1(value: Any) -> None:
    with pytest.raises(InvalidOption, match="progress must be a number from 0 to 1, not "):
        check_fraction(value, "progress")
    assert check_fraction(1, "progress") == 1.0


def test_numbers_are_no_truths_and_truths_no_numbers() -> None:
    with pytest.raises(InvalidOption):
        check_number(True, "limit", 0, 5)
    with pytest.raises(InvalidOption):
        check_real(True, "rate", 0, 5)
    with pytest.raises(InvalidOption):
        check_flag(1, "force")


def test_texts_can_be_stored() -> None:
    assert check_text("ä€𝄞", "key", 3) == "ä€𝄞"
    for value in ("\ud800", "a\0", "abcd", 5):
        with pytest.raises(InvalidOption):
            check_text(value, "key", 3)
    assert storable("a\ud800b\0c") == "a?b?c"


def test_patience() -> None:
    assert patience(None, "timeout") is None
    assert [patience(value, "timeout") for value in (0, 1.5, timedelta(seconds=2))] == [0.0, 1.5, 2.0]
    assert [patience(value, "timeout") for value in (-1, float("-inf"), timedelta(-1))] == [0.0, 0.0, 0.0]
    for value in (float("nan"), float("inf"), 10**400, True, "5", timedelta.max):
        with pytest.raises(InvalidOption, match="timeout"):
            patience(value, "timeout")


@pytest.mark.parametrize("value", [float("inf"), 10**400, 1e300, timedelta.max])
def test_durations_have_an_end(value: Any) -> None:
    with pytest.raises(InvalidOption, match="more than a hundred years"):
        duration(value, "delay")


def test_a_text_of_a_class_of_its_own_is_stored_as_text() -> None:
    class Colour(StrEnum):
        RED = "red"

    for check in (check_name, check_label):
        assert type(check(Colour.RED, "colour")) is str
    assert type(check_text(Colour.RED, "colour", 10)) is str
