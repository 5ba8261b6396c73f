import hashlib
import json
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tan_core.wire import (
    LEAST_TOLD,
    MAX_REASON_LENGTH,
    OTHER,
    WIRE_VERSION,
    Assignment,
    Finish,
    Heartbeat,
    HeartbeatReply,
    RungScore,
    Scores,
    SegmentEnd,
    SegmentGrant,
    SegmentRequest,
    Tally,
    TrialRecord,
    TrialReport,
    TrialState,
    clean_reason,
    pool_small,
)


def make_record(**changes: object) -> TrialRecord:
    fields = {"number": 0, "state": "failed", "params": {"learning_rate": 1.0}, **changes}
    return TrialRecord.model_validate(fields)


class TestVersion:
    MESSAGES = (Assignment, Heartbeat, HeartbeatReply, TrialReport, SegmentRequest, SegmentGrant, SegmentEnd, Finish)  # fmt: skip
    DIGEST: ClassVar = {
        3: "886795c0d713708f",
        4: "eb9889a8faf1ff3a",
        5: "f4e1e3b3f474d862",
        6: "6d3182451e1cfd20",
        7: "6d3182451e1cfd20",  # where one guarantee is for a user, scores count users
        8: "cd86877cfdc9d630",
        9: "682c4632cbc432b4",  # a charged trial leaves its weights, for the private run to begin with
        10: "c0421bbf3666a2c1",  # a charged trial goes on from the weights of an earlier one
        11: "8207035d980aae9d",  # a simulation tells how many of its gradients were clipped; a search has points of its own
        12: "76af685f92693e9d",  # a private run is told what it is scored by; shares of classes, columns as they are stated, batch norms replaced
        13: "2a65da2b90cb2355",  # of a checkpoint the norms or the biases may be trained
        14: "f3b5e2caf8d62a8a",  # or low-rank factors of a rank
        15: "b92553f0e720fa6f",  # batch norms may be frozen, and what a network reads of images is said
        16: "3c10c7f4c6b832e8",  # heartbeats say how far features are
        17: "398f7fcecd0e66e8",  # and how many ranks a private run has
        18: "bcdb3c8e1fa2df67",  # and what an attempt waits for; a score tells what part of a GPU it had
    }
    """By version: what the fields of all messages and their types hash to."""

    def test_it_is_another_one_whenever_a_message_is(self) -> None:
        """A new row here, and WIRE_VERSION with it: else a worker of another day meets fields that it does not know."""
        fields = [_shape(TypeAdapter(message).json_schema()) for message in self.MESSAGES]
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]

        assert self.DIGEST.get(WIRE_VERSION) == digest


SHAPE = {"$defs", "$ref", "additionalProperties", "anyOf", "const", "enum", "items", "oneOf", "properties", "required", "type"}  # fmt: skip


def _shape(schema: Any) -> Any:
    """A JSON schema without words, limits and defaults."""
    if isinstance(schema, list):
        return [_shape(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _shape(each) for key, each in schema.items() if key in SHAPE}
    for key in ("properties", "$defs"):
        if key in found:
            found[key] = {name: _shape(each) for name, each in schema[key].items()}
    return found


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


def tallies(**nums: int) -> list[Tally]:
    return [Tally(name=name, num=num, correct=num // 2) for name, num in nums.items()]


def sizes(parts: list[Tally]) -> dict[str, int]:
    return {part.name: part.num for part in parts}


class TestPoolSmall:
    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"a": 10, "b": 200}, {"a": 10, "b": 200}),
            ({"a": 9, "b": 200, "c": 8}, {"b": 200, OTHER: 17}),
            # Nine records are what the whole has beyond the others: the next smallest hides them.
            ({"a": 9, "b": 200, "c": 10}, {"b": 200, OTHER: 19}),
            ({"a": 1, "b": 200}, {OTHER: 201}),
            ({"a": 4, "b": 5}, {}),
            ({OTHER: 300, "b": 200, "c": 1}, {"b": 200, OTHER: 301}),  # a group of that name
            ({}, {}),
        ],
    )
    def test_what_is_too_small_is_told_together(self, given, told):
        assert sizes(pool_small(tallies(**given))) == told

    @pytest.mark.parametrize(
        ("given", "users", "told"),
        [
            ({"a": 50, "b": 50}, [range(10), range(10)], {"a": 50, "b": 50}),
            ({"a": 50, "b": 50}, [range(10), range(9)], {OTHER: 100}),
            ({"a": 50, "b": 50, "c": 90}, [range(20), [1], range(10)], {"a": 50, OTHER: 140}),
            # Two parts of nine users each, and these are the same nine: the next smallest joins them.
            ({"a": 20, "b": 20, "c": 12, "d": 90}, [range(9), range(9), range(20, 32), range(30)], {"d": 90, OTHER: 52}),
            ({"a": 50, "b": 50}, [range(5), range(4)], {}),
        ],
    )  # fmt: skip
    def test_where_it_is_known_whose_records_are_users_are_counted(self, given, users, told):
        found = pool_small(tallies(**given), [frozenset(each) for each in users])

        assert sizes(found) == told
        assert pool_small(found) == found

    parts = st.lists(
        st.builds(
            Tally,
            name=st.sampled_from(["a", "b", "c", OTHER]),
            num=st.integers(5, 30),
            correct=st.integers(0, 5),
        ),
        max_size=8,
    )

    @given(parts)
    def test_no_sum_over_few_records_can_be_told_and_none_is_lost(self, parts):
        told = pool_small(parts)

        assert all(part.num >= LEAST_TOLD for part in told)
        assert pool_small(told) == told
        assert sum(part.name == OTHER for part in told) <= 1
        whole = sum(part.num for part in parts)
        assert sum(part.num for part in told) == (whole if whole >= LEAST_TOLD else 0)
        if told:
            assert sum(part.correct for part in told) == sum(part.correct for part in parts)

    @given(parts)
    def test_what_is_told_depends_on_sizes_alone(self, parts):
        other = [part.model_copy(update={"correct": 0}) for part in parts]
        assert [(part.name, part.num) for part in pool_small(parts)] == [
            (part.name, part.num) for part in pool_small(other)
        ]

    def test_whoever_counts_and_whenever_it_was_stored(self):
        stored = {"num": 30, "correct": 20, "groups": []}
        stored |= {"classes": [{"name": "0", "num": 3, "correct": 3}, {"name": "1", "num": 27, "correct": 17}]}  # fmt: skip
        assert sizes(Scores.model_validate(stored).classes) == {OTHER: 30}


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

    SCORE: ClassVar = {"rung": 0, "expected_batch_size": 32, "noise_multiplier": 1, "steps": 9, "accuracy": 0.5, "seconds": 1}  # fmt: skip

    def test_a_score_of_a_worker_that_did_not_tell_what_was_clipped_is_read(self):
        assert RungScore.model_validate(self.SCORE).clipped_fraction is None
        assert RungScore.model_validate({**self.SCORE, "clipped_fraction": 1}).clipped_fraction == 1

    @pytest.mark.parametrize("share", [-0.01, 1.01, float("nan")])
    def test_what_is_no_share_is_refused(self, share: float):
        with pytest.raises(ValidationError, match="clipped_fraction"):
            RungScore.model_validate({**self.SCORE, "clipped_fraction": share})

    def test_a_request_that_cannot_be_stored_is_refused(self):
        with pytest.raises(ValidationError, match="cannot be stored"):
            SegmentRequest(fence=1, start_step=0, num_steps=1, request_id="a\x00")
