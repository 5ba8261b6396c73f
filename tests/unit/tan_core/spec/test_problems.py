import json
import math
import time
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from tan_core.spec import (
    MODEL_TYPES,
    BudgetSpec,
    FieldProblem,
    PrivacySpec,
    Range,
    SearchSpec,
    StudySpec,
    TrainSpec,
    field_problems,
)
from tan_core.spec.models import MODEL_SOURCES
from tan_core.spec.pretrained import Pretrained
from tan_core.spec.problems import problems_of
from tan_core.spec.study import EvaluationSpec

STUDY: dict[str, Any] = {
    "name": "study",
    "privacy": {"epsilon": 3.0, "delta": 1e-5},
    "dataset": "digits",
    "model": {"name": "tanh-cnn"},
    "search": {
        "accounting": "public_proxy",
        "space": {"learning_rate": {"low": 0.25, "high": 16.0, "log": True}},
    },
}


def with_values(changes: dict[str, Any]) -> dict[str, Any]:
    """The study with values put at ``section/key`` paths."""
    study = json.loads(json.dumps(STUDY))
    for path, value in changes.items():
        *parents, last = path.split("/")
        place = study
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return study


def problems(changes: dict[str, Any]) -> list[FieldProblem]:
    with pytest.raises(ValidationError) as caught:
        StudySpec.model_validate(with_values(changes))
    return field_problems(caught.value, StudySpec)


class TestFieldProblems:
    @pytest.mark.parametrize(
        ("path_written", "value", "path", "fragment"),
        [
            ("priority", 1e308, "priority", "no number so large is accepted here"),
            ("model/name", "vgg", "model.name", "accepted: linear, mlp, tanh-cnn, "),
            ("model", {}, "model.name", "accepted: linear, mlp"),
            ("model", {"name": 3}, "model.name", "timm:NAME, python:MODULE:FACTORY"),
            ("model", {"name": "timm:Big Net"}, "model.name", "pattern"),
            ("model", {"name": "python:lab.cnn"}, "model.name", "pattern"),
            ("model", {"name": "wrn-28-10", "groups": 3}, "model.groups", "16"),
            ("model", {"name": "vit-tiny", "heads": 5}, "model.heads", "divide width = 192, got 5"),
            (
                "model",
                {"name": "timm:vgg11", "options": {"pretrained": True}},
                "model.options",
                "pretrained: set by the data or never",
            ),
            (
                "model",
                {"name": "python:lab.cnn:make", "options": {"rate": math.nan}},
                "model.options.rate",
                "a number, a text or true/false",
            ),
            ("model", "mlp", "model", "a mapping"),
            ("model/width", 0, "model.width", "greater than or equal to 1"),
            ("model/depth", 3, "model.depth", "unknown key; accepted: pretrained, name, width, hidden"),
            ("model", {"name": "mlp", "hidden": [8, 0]}, "model.hidden.1", "greater"),
            ("search/rungs", [64, 32], "search.rungs", "rise strictly"),
            ("search/rungs", "many", "search.rungs", "'auto'; or: "),
            ("search/rungs", [0], "search.rungs.0", "greater"),
            ("search/sampler", "oracle", "search.sampler", "'tpe', 'cmaes', 'gp', 'random' or 'grid'"),
            ("search/budget", 0, "search.budget", "greater than 0"),
            ("search/budget", 1001, "search.budget", "1000"),
            ("search/budget", math.nan, "search.budget", "finite"),
            ("search/warm_start", "mnist", "search.warm_start", "'auto' or 'none'; or: "),
            ("search/warm_start", None, "search.warm_start", "'auto' or 'none'; or: "),
            ("search/warm_start", [], "search.warm_start", "at least 1"),
            ("search/warm_start", ["s-0123456789ab"] * 17, "search.warm_start", "at most 16"),
            ("search/warm_start", ["s-0123456789ab", "mnist"], "search.warm_start.1", "s-[0-9a-f]{12}"),
            ("search/warm_start", ["s-0123456789ab\n"], "search.warm_start.0", "s-[0-9a-f]{12}"),
            ("search/space/learning_rate", {"low": 4, "high": 1}, "search.space.learning_rate", "low must be below high"),
            ("search/space/steps", {"low": 1, "high": 10**20}, "search.space.steps", "whole numbers up to 2^53"),
            ("search/space/learning_rate", {"low": float("nan"), "high": 1}, "search.space.learning_rate.low", "finite number"),
            ("search/space/learning_rate", {"low": -1.0, "high": 1}, "search.space.learning_rate.low", "greater than 0"),
            ("search/space/learning_rate", {"low": "a", "high": 1}, "search.space.learning_rate.low", "finite number"),
            ("search/space/learning_rate", {"choices": []}, "search.space.learning_rate.choices", "at least 1"),
            ("search/space/learning_rate", {"choices": [1.0, {}]}, "search.space.learning_rate.choices.1", "a number, a text"),
            ("search/space/learning_rate", [1, 2], "search.space.learning_rate", "{choices: [...]}"),
            ("search/space/width", {"choices": [8, 0]}, "search.space.width.choices.1", "greater"),
            ("search/space/model.width", {"choices": [8, 0]}, "search.space.model.width.choices.1", "greater"),
            ("search/space/momentum", 2.0, "search.space.momentum", "less than 1"),
            ("search/space/range", 2.0, "search.space.range", "not a trainer or model field"),
            ("search/space/learning_rte", 2.0, "search.space.learning_rte", "field: did you mean learning_rate? accepted: "),
            ("search/space/train.momentun", 2.0, "search.space.train.momentun", "field: did you mean momentum?"),
            ("search/space/widthh", 8, "search.space.widthh", "field: did you mean model.width?"),
            ("search/space/train.learning_rate", 2.0, "search.space.train.learning_rate", "already names"),
            ("search/space/steps", {"choices": [10, "auto"]}, "search.space.steps.choices.1", "must be a number"),
            ("search/space/steps", {"low": 1.0, "high": 9.0}, "search.space.steps", "integers"),
            ("search/accounting", "none", "search.accounting", "'public_proxy'"),
            ("privacy/epsilon", None, "privacy.epsilon", "a target is needed"),
            ("privacy/epsilon", float("inf"), "privacy.epsilon", "finite"),
            ("train/batch_size", 0, "train.batch_size", "greater"),
            ("surplus", {}, "surplus", "unknown key; accepted: name, privacy, dataset, model, search, "),
            ("evaluation/by_class", "maybe", "evaluation.by_class", "'auto'; or: Input should be a valid boolean"),
            ("search/space/int", 3, "search.space.int", "not a trainer or model field"),
            ("train/int", 3, "train.int", "unknown key; accepted: learning_rate, "),
        ],
    )  # fmt: skip
    def test_a_fault_has_the_path_that_the_user_wrote(
        self, path_written: str, value: Any, path: str, fragment: str
    ) -> None:
        found = problems({path_written: value})

        assert [problem.path for problem in found] == [path]
        assert fragment in found[0].message

    def test_a_union_is_no_part_of_a_path_and_its_members_are_no_scalars(self) -> None:
        (found,) = problems({"evaluation/by_class": [True]})

        assert found.path == "evaluation.by_class"
        assert "a number, a text" not in found.message

    @pytest.mark.parametrize(
        ("section", "kind"),
        [
            ("", StudySpec),
            ("privacy/", PrivacySpec),
            ("model/pretrained/", Pretrained),
            ("search/", SearchSpec),
            ("search/space/learning_rate/", Range),
            ("train/", TrainSpec),
            ("budget/", BudgetSpec),
            ("evaluation/", EvaluationSpec),
        ],
    )
    def test_an_unknown_key_says_what_its_section_accepts(
        self, section: str, kind: type[BaseModel]
    ) -> None:
        path = f"{section}unheard_of"
        said = {problem.path: problem.message for problem in problems({path: 3})}

        accepted = ", ".join(kind.model_fields)
        assert said[path.replace("/", ".")] == f"unknown key; accepted: {accepted}"

    @pytest.mark.parametrize("name", [*MODEL_TYPES, "timm:vgg11", "python:lab.cnn:make"])
    def test_an_unknown_option_says_what_the_model_that_is_named_accepts(self, name: str) -> None:
        (found,) = problems({"model": {"name": name, "unheard_of": 4}})

        kind = MODEL_TYPES.get(name) or MODEL_SOURCES[name.partition(":")[0]]
        assert found.message == f"unknown key; accepted: {', '.join(kind.model_fields)}"

    def test_choices_have_no_other_key(self) -> None:
        (found,) = problems({"search/space/learning_rate": {"choices": [1.0], "low": 3}})

        assert found.path == "search.space.learning_rate.low"
        assert found.message == "unknown key; accepted: choices"

    @pytest.mark.parametrize(
        ("path", "near"),
        [
            ("evaluation/by_clas", "by_class"),
            ("train/batchsize", "batch_size"),
            ("train/learning-rate", "learning_rate"),
            ("model/widths", "width"),
            ("search/space/learning_rate/hihg", "high"),
            ("privacies", "privacy"),
        ],
    )
    def test_a_key_that_is_close_to_one_is_taken_for_a_slip(self, path: str, near: str) -> None:
        found = {problem.path: problem.message for problem in problems({path: 1})}

        said = found[path.replace("/", ".")]
        assert said.startswith(f"unknown key: did you mean {near}? accepted: ")

    @pytest.mark.parametrize(
        "path",
        [
            "dataset", "privacy", "privacy/delta", "privacy/accountant", "model", "search/space",
            "search/rungs", "evaluation/by_class", "search/space/learning_rate", "promotion",
        ],
    )  # fmt: skip
    def test_null_is_shown_where_it_is_no_value(self, path: str) -> None:
        (found,) = problems({path: None})

        assert found.path == path.replace("/", ".")
        assert found.message.endswith(", got null")
        assert found.message.count("null") == 1

    def test_what_was_left_out_is_not_said_to_be_null(self) -> None:
        missing = problems({"privacy": {}})
        no_target = problems({"privacy/epsilon": None})

        assert not any("null" in problem.message for problem in (*missing, *no_target))

    def test_of_a_model_that_is_not_known_there_are_no_keys_to_list(self) -> None:
        (found,) = problems_of(
            [{"type": "extra_forbidden", "loc": ("a",), "input": 1, "msg": ""}], None
        )

        assert found.message == "unknown key"

    def test_a_body_full_of_unknown_keys_is_answered_at_once(self) -> None:
        train = {f"key_{number}_of_many_that_nobody_knows": 1 for number in range(20_000)}
        start = time.process_time()
        found = problems({"train": train})

        assert time.process_time() - start < 5
        assert len(found) == 1000
        assert found[0].message.startswith("unknown key; accepted: ")
        assert found[-1].message == "unknown key"

    def test_a_missing_section_is_named(self) -> None:
        study = {key: value for key, value in STUDY.items() if key != "privacy"}

        with pytest.raises(ValidationError) as caught:
            StudySpec.model_validate(study)

        assert [problem.path for problem in field_problems(caught.value, StudySpec)] == ["privacy"]

    def test_every_fault_is_told_at_once(self) -> None:
        found = problems({"name": "a b", "privacy/delta": 2, "model/width": 0, "oops": 1})

        assert {problem.path for problem in found} == {
            "name",
            "privacy.delta",
            "model.width",
            "oops",
        }

    @pytest.mark.parametrize(
        ("changes", "others"),
        [
            ({"privacy/delta": 2}, ["privacy.delta"]),
            ({"privacy": {}, "oops": 1}, ["privacy.delta", "oops"]),
            ({"priority": "3", "promotion": "never"}, ["priority"]),
            ({"model/width": 0}, ["model.width"]),
            ({"train/precision": "half", "search/rungs": [64, 32]}, ["train.precision", "search.rungs"]),
            ({"search/space/momentum": {"low": 2}}, ["search.space.momentum.high"]),
            ({"train/max_batch_size": 0}, ["train.max_batch_size"]),
        ],
        ids=str,
    )  # fmt: skip
    def test_a_slip_in_the_space_is_told_with_the_faults_of_other_sections(
        self, changes: dict[str, Any], others: list[str]
    ) -> None:
        slip = {"search/space/learning_rte": 2.0, "search/space/model.wdth": {"choices": [8]}}
        alone = {problem.path: problem for problem in problems(changes)}
        slips = {problem.path: problem for problem in problems(slip)}
        both = {problem.path: problem for problem in problems(changes | slip)}

        assert sorted(alone) == sorted(others)
        assert both == alone | slips
        assert "did you mean learning_rate? accepted: " in both["search.space.learning_rte"].message
        assert "did you mean model.width?" in both["search.space.model.wdth"].message

    def test_a_key_of_the_space_is_told_of_once(self) -> None:
        found = problems({"privacy/delta": 2, "search/space/learning_rte": [1, 2]})

        assert [problem.path for problem in found] == ["privacy.delta", "search.space.learning_rte"]
        assert found[1].message == problems({"search/space/momentum": [1, 2]})[0].message

    @pytest.mark.parametrize(
        "changes",
        [
            {"model/name": "vgg"}, {"model": None}, {"search": []}, {"search/space": [1]},
            {"privacy/delta": 2, "search/space": {f"key{number}": 1 for number in range(65)}},
        ],
        ids=lambda changes: str(changes)[:40],
    )  # fmt: skip
    def test_keys_of_no_known_model_or_of_no_space_are_not_told_of(
        self, changes: dict[str, Any]
    ) -> None:
        slip = {} if "search/space" in changes or "search" in changes else {"search/space/rte": 1}
        told = {problem.path for problem in problems(slip | changes)}
        assert not any(path.startswith("search.space.") for path in told)

    def test_a_rung_above_the_batch_is_a_fault_of_the_rungs(self) -> None:
        found = problems({"train/batch_size": 64, "search/rungs": [16, 128]})

        assert [(p.path, p.value) for p in found] == [("search.rungs", 128)]

    @pytest.mark.parametrize("key", ["steps", "train.steps"])
    def test_steps_are_not_searched_at_fixed_noise(self, key: str) -> None:
        found = problems(
            {
                "train/noise_multiplier": 2.0,
                "train/batch_size": 64,
                "search/space": {key: {"choices": [5, 7]}},
            }
        )

        assert [problem.path for problem in found] == [f"search.space.{key}"]

    def test_a_range_over_numbers_that_the_field_does_not_take_names_those_that_it_does(
        self,
    ) -> None:
        (found,) = problems(
            {
                "model": {"name": "wrn-16-4"},
                "search/space": {"groups": {"low": 1, "high": 8}},
            }
        )

        assert (found.path, found.value) == ("search.space.groups", "low=1, high=8")
        assert found.message.endswith("write choices: [1, 2, 4, 8]")

    def test_a_range_between_neighbours_that_the_field_takes_is_one(self) -> None:
        between = {"model": {"name": "wrn-16-4"}, "search/space": {"groups": {"low": 1, "high": 2}}}

        assert "groups" in StudySpec.model_validate(with_values(between)).search.space

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), "x" * 10_000])
    def test_a_value_is_small_and_safe_as_json(self, value: Any) -> None:
        (found,) = problems({"privacy/delta": value})

        text = json.dumps(found.model_dump(), allow_nan=False)

        assert len(text) < 500

    def test_a_prefix_goes_before_every_path(self) -> None:
        with pytest.raises(ValidationError) as caught:
            StudySpec.model_validate(with_values({"model/name": "vgg"}))

        (found,) = field_problems(caught.value, StudySpec, prefix=("study",))
        assert found.path == "study.model.name"


class TestSearchedSteps:
    @pytest.mark.parametrize("key", ["steps", "train.steps"])
    @pytest.mark.parametrize("dimension", [600, {"choices": [600, 1200]}, {"low": 10, "high": 99}])
    def test_fixed_steps_beside_searched_ones_are_refused(self, key: str, dimension: Any) -> None:
        found = problems({f"search/space/{key}": dimension, "train/steps": 600})

        assert [problem.path for problem in found] == [f"search.space.{key}"]
        assert "leave train.steps auto" in found[0].message

    def test_every_conflict_is_named_at_once(self) -> None:
        changes = {"search/space/steps": 600, "train/steps": 600, "train/noise_multiplier": 2.0}
        [problem] = problems(changes)

        assert "train.noise_multiplier is fixed" in problem.message
        assert "train.steps is fixed" in problem.message


def test_of_very_many_faults_the_first_are_told() -> None:
    fault = {"type": "missing", "msg": "Field required", "input": {}}
    details = [{**fault, "loc": ("scores", number)} for number in range(400_000)]

    started = time.process_time()
    told = problems_of(details, None)

    assert time.process_time() - started < 1
    assert [problem.path for problem in told[:2]] == ["scores.0", "scores.1"]
    assert len(told) == 1000
