"""What the list of studies is asked for, and why a study in it does not go on."""

from datetime import UTC, datetime
from typing import Any

import pytest

from service.dashboard.listing import ORDERS, headings, query_of, read_filters
from service.dashboard.view import why_not_running
from service.errors import InvalidInputError
from service.studies.lifecycle import StudyState
from service.studies.schemas import Archived, StudyOrder, StudySummary

NOW = datetime(2026, 3, 4, tzinfo=UTC)


def summary(state: str, **changes: Any) -> StudySummary:
    known: dict[str, Any] = {
        "id": "s-1", "tenant": "local", "name": "one", "tags": [], "archived": False, "state": state,
        "reason": None, "paused": False, "priority": 0, "queue_position": None, "dataset": "digits",
        "search_accounting": "public_proxy", "search_note": "", "epsilon": 3.0, "target_epsilon": 3.0,
        "delta": 1e-5, "accountant": "pld", "neighboring_relation": "add_or_remove_one", "best_accuracy": None,
        "predicted_accuracy": None, "predicted_low": None, "predicted_high": None, "test_accuracy": None,
        "created_at": NOW, "started_at": None, "finished_at": None,
    }  # fmt: skip
    return StudySummary.model_validate(known | changes)


class TestFilters:
    def test_what_is_empty_unknown_or_usual_is_no_filter(self) -> None:
        fields = [("name_contains", " "), ("tag", ""), ("sort", "-created_at"), ("odd", "x")]

        assert not read_filters([*fields, ("archived", "exclude")]).are_any

    def test_a_field_of_tags_holds_several(self) -> None:
        assert read_filters([("tag", " paper,fig:2  a ")]).fields == {
            "tag": ["paper", "fig:2", "a"]
        }

    def test_they_make_the_query_of_the_api(self) -> None:
        filters = read_filters(
            [("state", "failed"), ("state", "queued"), ("archived", "only"), ("sort", "name")]
        )

        query = query_of(filters, "cursor")

        assert query.state == [StudyState.FAILED, StudyState.QUEUED]
        assert (query.archived, query.sort) == (Archived.ONLY, StudyOrder.NAME)
        assert query.cursor == "cursor"
        assert filters.text == "state=failed&state=queued&archived=only&sort=name"

    @pytest.mark.parametrize("field", [("state", "odd"), ("name_contains", "a b"), ("sort", "x")])
    def test_one_that_means_nothing_is_refused_by_its_name(self, field: tuple[str, str]) -> None:
        with pytest.raises(InvalidInputError, match=field[0]):
            query_of(read_filters([field]), None)


class TestHeadings:
    def test_every_order_has_words(self) -> None:
        assert set(ORDERS) == set(StudyOrder)

    def test_a_second_click_turns_the_order_and_one_elsewhere_does_not(self) -> None:
        by_label = {each.label: each for each in headings(StudyOrder.MOST_REACHED)}

        assert by_label["Reached"].order is StudyOrder.LEAST_REACHED
        assert by_label["Reached"].direction == "descending"
        assert by_label["Privacy"].order is StudyOrder.LEAST_EPSILON
        assert by_label["Privacy"].direction is None

    def test_a_click_in_the_other_direction_comes_back_to_the_first(self) -> None:
        by_label = {each.label: each for each in headings(StudyOrder.LEAST_REACHED)}

        assert by_label["Reached"].order is StudyOrder.MOST_REACHED
        assert by_label["Reached"].direction == "ascending"


class TestWhyNotRunning:
    @pytest.mark.parametrize("state", ["simulating", "training", "completed"])
    def test_who_goes_on_or_is_done_needs_no_reason(self, state: str) -> None:
        assert why_not_running(summary(state), is_cancelling=False) is None

    @pytest.mark.parametrize(
        ("study", "is_cancelling", "reason"),
        [
            (summary("queued", queue_position=3), False, "number 3 in line"),
            (summary("queued", reason="waiting for a free slot"), False, "free slot"),
            (summary("simulating", paused=True), False, "paused by a user"),
            (summary("training", paused=True), True, "cancelled by a user"),
            (summary("awaiting_approval", reason="waits for tan-cli"), False, "waits for"),
            (summary("failed", reason="exit code 137"), False, "exit code 137"),
            (summary("cancelled"), False, "no reason was recorded"),
        ],
    )
    def test_everybody_else_has_one(
        self, study: StudySummary, is_cancelling: bool, reason: str
    ) -> None:
        assert reason in (why_not_running(study, is_cancelling=is_cancelling) or "")
