"""The table of states: every state can be reached and left as the design says."""

from __future__ import annotations

import pytest

from dibs.core.states import ENDED, TRANSITIONS, UNFINISHED, WAITING, Move, State, after, mermaid


def leaves(state: State | None) -> dict[Move, State]:
    return {move: target for (source, move), target in TRANSITIONS.items() if source is state}


def reachable(start: State | None) -> set[State]:
    found: set[State] = set()
    frontier = set(leaves(start).values())
    while frontier:
        found |= frontier
        frontier = {target for state in frontier for target in leaves(state).values()} - found
    return found


def test_every_state_is_reached_from_nothing() -> None:
    assert reachable(None) == set(State)


def test_every_unfinished_state_can_end_in_every_way() -> None:
    for state in UNFINISHED:
        assert reachable(state) >= ENDED


def test_every_move_is_used() -> None:
    assert {move for _, move in TRANSITIONS} == set(Move)


def test_states_are_waiting_running_or_ended() -> None:
    assert WAITING | {State.RUNNING} | ENDED == set(State)
    assert not WAITING & ENDED
    assert set(State) - ENDED == UNFINISHED


def test_nothing_leaves_an_end_but_replay() -> None:
    assert leaves(State.COMPLETED) == {}
    assert leaves(State.DEAD) == {Move.REPLAY: State.PENDING, Move.REBLOCK: State.BLOCKED}
    assert leaves(State.CANCELLED) == {Move.REBLOCK: State.BLOCKED}


def test_any_waiting_state_may_be_cancelled_or_buried() -> None:
    for state in UNFINISHED:
        assert leaves(state)[Move.CANCEL] is State.CANCELLED
        assert leaves(state)[Move.BURY] is State.DEAD


def test_only_pending_tasks_are_claimed_and_only_running_ones_complete() -> None:
    assert [source for source, move in TRANSITIONS if move is Move.CLAIM] == [State.PENDING]
    assert [source for source, move in TRANSITIONS if move is Move.COMPLETE] == [State.RUNNING]


def test_a_move_means_the_same_from_everywhere() -> None:
    for move in Move:
        assert len({target for (_, used), target in TRANSITIONS.items() if used is move}) == 1


def test_what_is_not_in_the_table_can_not_happen() -> None:
    with pytest.raises(KeyError):
        after(State.COMPLETED, Move.CLAIM)


def test_the_diagram_shows_every_transition() -> None:
    diagram = mermaid()
    for (source, move), target in TRANSITIONS.items():
        line = next(
            line for line in diagram.splitlines() if line.strip().startswith(f"{source or '[*]'} --> {target}:")
        )
        assert move in line
    assert "completed --> [*]" in diagram
