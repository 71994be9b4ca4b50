"""Blocks of ids, and spans of them, against sets of numbers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dibs.core.ids import uuid7
from dibs.engines.decisions.blocks import (
    END,
    HIGHEST,
    WIDE,
    Span,
    block_of,
    blocks_of,
    common,
    first_id,
    is_skewed,
    joined,
    slot_of,
    spans_of,
)

blocks = st.sets(st.integers(0, 60))


def numbers(spans: list[Span]) -> set[int]:
    """What spans contain; they must be in order and apart."""
    assert all(low <= high for low, high in spans)
    assert all(one[0] > other[1] for one, other in pairwise(spans))
    return {number for low, high in spans for number in range(low, high + 1)}


def exact(chosen: set[int]) -> list[Span]:
    """Spans without the small gaps that `spans_of` closes."""
    return [(each, each) for each in sorted(chosen, reverse=True)]


@given(blocks)
def test_spans_have_all_blocks_and_small_gaps(chosen: set[int]) -> None:
    assert chosen <= numbers(spans_of(chosen)) <= {each + n for each in chosen for n in (-1, 0, 1)}
    assert {each + n for each in chosen for n in range(WIDE)} <= numbers(spans_of(chosen, WIDE))


@given(blocks, blocks)
def test_what_is_in_both_or_either(one: set[int], other: set[int]) -> None:
    assert numbers(common(exact(one), exact(other))) == one & other
    assert numbers(joined(exact(one), exact(other))) == one | other
    wide = spans_of(other, WIDE)
    assert numbers(common(exact(one), wide)) == one & numbers(wide)
    assert numbers(joined(spans_of(one), wide)) == numbers(spans_of(one)) | numbers(wide)


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**62 - 1))
def test_ids_are_in_their_block(milliseconds: int, random: int) -> None:
    task_id = uuid7(milliseconds, 0, random)
    block = block_of(task_id)
    assert first_id(block) <= task_id < first_id(block + 1)
    assert block == slot_of(milliseconds * 1000)
    assert not is_skewed(block, milliseconds * 1000)


@given(st.lists(st.uuids().map(str), min_size=1, max_size=5))
def test_blocks_of_any_ids(ids: list[str]) -> None:
    assert {*blocks_of(ids)} == {block_of(each) for each in ids}
    assert all(first_id(block_of(each)) <= each <= first_id(block_of(each) + 1) for each in ids)


def test_the_ends() -> None:
    assert first_id(HIGHEST + 1) == END
    assert block_of("no id") == 0
    assert slot_of(-1) == 0
