import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tan_core.wire import (
    MAX_REASON_LENGTH,
    Finish,
    SegmentRequest,
    TrialRecord,
    TrialState,
    clean_reason,
)


def make_record(**changes: object) -> TrialRecord:
    fields = {"number": 0, "state": "failed", "params": {"learning_rate": 1.0}, **changes}
    return TrialRecord.model_validate(fields)


class TestCleanReason:
    def test_drops_what_cannot_be_stored_and_keeps_lines(self):
        assert clean_reason("a\x00b\x1b[31m\r\n\tc\ud800\x85") == "ab[31m\n\tc"

    def test_letters_of_every_script_stay(self):
        assert clean_reason("ε = 2.2, Grüße, 数据 🙂") == "ε = 2.2, Grüße, 数据 🙂"

    def test_long_text_ends_at_the_cap_and_shows_that_it_was_cut(self):
        assert clean_reason("x" * MAX_REASON_LENGTH) == "x" * MAX_REASON_LENGTH
        assert clean_reason("x" * 10**6) == "x" * (MAX_REASON_LENGTH - 1) + "…"

    @given(st.text(st.characters(exclude_categories=()), max_size=100))
    def test_the_result_is_utf_8_without_nul_and_does_not_change_again(self, text: str):
        cleaned = clean_reason(text)

        assert b"\x00" not in cleaned.encode()
        assert clean_reason(cleaned) == cleaned


class TestReports:
    def test_the_reason_of_a_trial_and_of_an_attempt_is_cleaned(self):
        assert make_record(reason="died\x00").reason == "died"
        assert Finish(fence=1, outcome="failed", reason="died\x00").reason == "died"
        assert make_record().reason is None

    @pytest.mark.parametrize("params", [{"optimizer": "sgd\x00"}, {"a\ud800": 1}, {"a\x00": True}])
    def test_parameters_are_refused_rather_than_changed(self, params: dict[str, object]):
        with pytest.raises(ValidationError, match=r"cannot be stored|unicode"):
            make_record(params=params)

    def test_parameters_keep_their_types(self):
        params = {"a": True, "b": 1, "c": 0.5, "d": "sgd"}
        kept = make_record(params=params).params

        assert kept == params
        assert [type(value) for value in kept.values()] == [bool, int, float, str]
        assert make_record().state is TrialState.FAILED

    def test_a_request_that_cannot_be_stored_is_refused(self):
        with pytest.raises(ValidationError, match="cannot be stored"):
            SegmentRequest(fence=1, start_step=0, num_steps=1, request_id="a\x00")
