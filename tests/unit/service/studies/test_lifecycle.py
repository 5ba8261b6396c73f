from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.studies.lifecycle import (
    ALLOWED,
    TERMINAL,
    IllegalTransitionError,
    StudyState,
    move,
)

PAIRS = [
    ("queued", "simulating"),
    ("queued", "awaiting_approval"),
    ("queued", "training"),
    ("queued", "failed"),
    ("queued", "cancelled"),
    ("simulating", "awaiting_approval"),
    ("simulating", "training"),
    ("simulating", "failed"),
    ("simulating", "cancelled"),
    ("awaiting_approval", "simulating"),
    ("awaiting_approval", "training"),
    ("awaiting_approval", "failed"),
    ("awaiting_approval", "cancelled"),
    ("training", "completed"),
    ("training", "failed"),
    ("training", "cancelled"),
]


class TestMove:
    @pytest.mark.parametrize(
        ("current", "proposed"), list(product(StudyState, StudyState)), ids=str
    )
    def test_only_the_listed_moves_are_possible(self, current, proposed):
        if (current, proposed) in PAIRS:
            assert move(current, proposed) is proposed
        else:
            with pytest.raises(IllegalTransitionError, match=f"{current} cannot become {proposed}"):
                move(current, proposed)

    def test_a_refusal_says_what_is_accepted(self):
        with pytest.raises(
            IllegalTransitionError,
            match="awaiting_approval, cancelled, failed, simulating, training",
        ):
            move(StudyState.QUEUED, StudyState.COMPLETED)

    def test_a_refusal_of_a_final_state_says_so(self):
        with pytest.raises(IllegalTransitionError, match="it is final"):
            move(StudyState.COMPLETED, StudyState.QUEUED)

    @given(st.lists(st.sampled_from(list(StudyState)), max_size=30))
    def test_nothing_leaves_a_final_state(self, proposals):
        state, was_final = StudyState.QUEUED, None
        for proposed in proposals:
            try:
                state = move(state, proposed)
            except IllegalTransitionError:
                continue
            assert was_final is None
            was_final = state if state.is_terminal else None


class TestStates:
    def test_every_state_has_its_moves(self):
        assert set(ALLOWED) == set(StudyState)

    def test_the_final_states_are_three(self):
        assert {"completed", "failed", "cancelled"} == TERMINAL

    def test_every_state_can_be_reached(self):
        reached, frontier = {StudyState.QUEUED}, [StudyState.QUEUED]
        while frontier:
            following = ALLOWED[frontier.pop()] - reached
            reached |= following
            frontier.extend(following)
        assert reached == set(StudyState)

    def test_every_state_can_come_to_an_end(self):
        for state in StudyState:
            assert state.is_terminal or ALLOWED[state] & TERMINAL
