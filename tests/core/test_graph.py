"""Edges and what they say, cycles, the order of a batch, and inherited urgency: against plain brute force."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs.core.graph import Rule, Verdict, find_cycle, inherited_within, judge, prerequisites_first
from dibs.core.states import ENDED, UNFINISHED, State

Graph = dict[str, list[str]]
NODES = "abcdefg"
OUTSIDE = "z"


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any edges among a few tasks, some to a task that is not in the batch."""
    nodes = draw(st.lists(st.sampled_from(NODES), unique=True, max_size=len(NODES)))
    needs = st.lists(st.sampled_from([*nodes, OUTSIDE]), max_size=4)
    return {node: draw(needs) for node in nodes}


@st.composite
def batches(draw: st.DrawFn) -> Graph:
    """Edges without a cycle, the tasks in any order."""
    nodes = draw(st.permutations(NODES))
    edges: Graph = {}
    for place, node in enumerate(nodes):
        edges[node] = draw(st.lists(st.sampled_from([*nodes[:place], OUTSIDE]), max_size=4))
    return {node: edges[node] for node in draw(st.permutations(nodes))}


def reaches(edges: Graph, start: str) -> set[str]:
    """All that a task waits for, at any distance: grown until nothing is added."""
    found = set(edges.get(start, ()))
    while True:
        wider = found.union(*(edges.get(node, ()) for node in found))
        if wider == found:
            return found
        found = wider


@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize("state", sorted(UNFINISHED))
def test_an_edge_waits_for_the_unfinished(rule: Rule, state: State) -> None:
    assert judge(rule, state) is Verdict.WAIT


@pytest.mark.parametrize(
    ("rule", "completed", "failed"),
    [
        (Rule.CANCEL, Verdict.GO, Verdict.CANCEL),
        (Rule.FAIL, Verdict.GO, Verdict.BURY),
        (Rule.RUN, Verdict.GO, Verdict.GO),
        (Rule.IF_FAILED, Verdict.CANCEL, Verdict.GO),
    ],
)
def test_what_each_rule_says_of_an_end(rule: Rule, completed: Verdict, failed: Verdict) -> None:
    assert judge(rule, State.COMPLETED) is completed
    assert [judge(rule, state) for state in sorted(ENDED - {State.COMPLETED})] == [failed, failed]


@given(graphs())
def test_a_cycle_is_found_exactly_when_there_is_one(edges: Graph) -> None:
    has_ring = any(node in reaches(edges, node) for node in edges)
    assert (find_cycle(edges) is not None) == has_ring


@given(graphs())
def test_the_cycle_that_is_named_is_real(edges: Graph) -> None:
    cycle = find_cycle(edges)
    if cycle is not None:
        assert len(cycle) >= 2
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1, "nobody else comes twice"
        assert all(follower in edges[node] for node, follower in pairwise(cycle))


def test_a_task_that_waits_for_itself() -> None:
    assert find_cycle({"a": ["a"]}) == ["a", "a"]


def test_a_long_chain_is_no_cycle_and_no_recursion() -> None:
    many = 50_000
    chain = {str(number): [str(number + 1)] for number in range(many)}
    assert find_cycle(chain) is None
    assert prerequisites_first(chain) == [str(number) for number in reversed(range(many))]
    chain[str(many)] = ["0"]
    cycle = find_cycle(chain)
    assert cycle is not None
    assert len(cycle) == many + 2


@given(batches())
def test_prerequisites_come_first(edges: Graph) -> None:
    order = prerequisites_first(edges)
    assert sorted(order) == sorted(edges)
    place = {node: number for number, node in enumerate(order)}
    assert all(place[need] < place[node] for node in edges for need in edges[node] if need in edges)


@given(batches())
def test_an_order_that_is_right_is_kept(edges: Graph) -> None:
    right = {node: edges[node] for node in prerequisites_first(edges)}
    assert prerequisites_first(right) == list(right)


@given(batches(), st.lists(st.integers(0, 100), min_size=len(NODES), max_size=len(NODES)))
def test_urgency_is_inherited_from_all_that_wait(edges: Graph, numbers: list[int]) -> None:
    priorities = dict(zip(edges, numbers, strict=True))
    inherited = inherited_within(prerequisites_first(edges), edges, priorities)
    for node in edges:
        waiting = [priorities[other] for other in edges if node in reaches(edges, other)]
        assert inherited.get(node, 0) == max(waiting, default=0)
    assert OUTSIDE not in inherited
