"""How a search proposes, what it may process, and whom it learns from."""

from typing import Any

import pytest
from pydantic import ValidationError

from tan_core.spec import SearchAccounting, SearchSpec, StudySpec, field_problems, load_study


def search(**changes: Any) -> SearchSpec:
    space = {"learning_rate": {"low": 0.25, "high": 16.0, "log": True}}
    return SearchSpec.model_validate({"accounting": "public_proxy", "space": space} | changes)


def test_without_a_word_it_is_tpe_for_one_private_run_from_earlier_studies() -> None:
    found = search()

    assert (found.sampler, found.budget, found.warm_start) == ("tpe", 1.0, "auto")


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "gp", "random", "grid"])
def test_every_sampler_is_named_as_it_is_shown(sampler: str) -> None:
    assert search(sampler=sampler).model_dump(mode="json")["sampler"] == sampler


@pytest.mark.parametrize("budget", [1e-3, 0.5, 1000])
def test_the_budget_is_any_positive_number_of_private_runs(budget: float) -> None:
    assert search(budget=budget).budget == budget


@pytest.mark.parametrize("warm_start", ["none", ["s-0123456789ab", "s-ba9876543210"]])
def test_studies_are_named_by_their_ids_or_not_at_all(warm_start: Any) -> None:
    found = search(warm_start=warm_start)

    assert found.warm_start == warm_start
    assert SearchSpec.model_validate_json(found.model_dump_json()) == found


def test_none_in_a_file_is_the_word() -> None:
    study = load_study(
        """
name: study
privacy: {epsilon: 3.0, delta: 1e-5}
dataset: digits
model: {name: mlp}
search:
  accounting: public_proxy
  warm_start: none
  space: {learning_rate: 1.0}
"""
    )

    assert study.search.warm_start == "none"


def given(**changes: Any) -> dict[str, Any]:
    study = {
        "name": "given",
        "privacy": {"epsilon": 3.0, "delta": 1e-5},
        "dataset": "digits",
        "model": {"name": "mlp"},
        "search": {"accounting": "no_search"},
    }
    return study | changes


class TestWithoutASearch:
    def test_nothing_has_to_be_said_beside_it(self) -> None:
        study = StudySpec.model_validate(given())

        assert not study.has_search
        assert (study.search.trials, study.search.space) == (0, {})
        assert StudySpec.model_validate(study.model_dump(mode="json")) == study

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("trials", 3),
            ("space", {"learning_rate": 1.0}),
            ("dataset", "public"),
            ("rungs", [8]),
            ("sampler", "random"),
            ("budget", 2.0),
            ("warm_start", "none"),
            ("first", [{"learning_rate": 1.0}]),
            ("seed", 1),
        ],
    )
    def test_what_only_a_search_reads_is_refused(self, field: str, value: Any) -> None:
        with pytest.raises(ValidationError) as refused:
            StudySpec.model_validate(given(search={"accounting": "no_search", field: value}))

        (problem,) = field_problems(refused.value, StudySpec)
        assert problem.path == f"search.{field}"
        assert "nothing is searched" in problem.message

    def test_a_space_is_told_as_it_was_written(self) -> None:
        space = {"learning_rate": {"low": 0.5, "high": 2.0}}
        with pytest.raises(ValidationError) as refused:
            StudySpec.model_validate(given(search={"accounting": "no_search", "space": space}))

        (problem,) = field_problems(refused.value, StudySpec)
        assert problem.value == str(space)

    @pytest.mark.parametrize("mode", [m for m in SearchAccounting if m != "no_search"])
    def test_a_search_needs_trials_and_something_to_vary(self, mode: SearchAccounting) -> None:
        with pytest.raises(ValidationError) as refused:
            StudySpec.model_validate(given(search={"accounting": mode.value, "trials": 0}))

        problems = field_problems(refused.value, StudySpec)
        assert [each.path for each in problems] == ["search.trials", "search.space"]
        assert all("no_search" in each.message for each in problems)
