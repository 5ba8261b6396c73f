import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from tan_core.spec import FieldProblem, StudySpec, field_problems

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
    return field_problems(caught.value)


class TestFieldProblems:
    @pytest.mark.parametrize(
        ("path_written", "value", "path", "fragment"),
        [
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
            ("model/depth", 3, "model.depth", "unknown key"),
            ("model", {"name": "mlp", "hidden": [8, 0]}, "model.hidden.1", "greater"),
            ("search/rungs", [64, 32], "search.rungs", "rise strictly"),
            ("search/rungs", "many", "search.rungs", "'auto'; or: "),
            ("search/rungs", [0], "search.rungs.0", "greater"),
            ("search/sampler", "grid", "search.sampler", "'tpe', 'cmaes', 'gp' or 'random'"),
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
            ("search/space/train.learning_rate", 2.0, "search.space.train.learning_rate", "already names"),
            ("search/space/steps", {"choices": [10, "auto"]}, "search.space.steps.choices.1", "must be a number"),
            ("search/space/steps", {"low": 1.0, "high": 9.0}, "search.space.steps", "integers"),
            ("search/accounting", "none", "search.accounting", "'public_proxy'"),
            ("privacy/epsilon", None, "privacy.epsilon", "a target is needed"),
            ("privacy/epsilon", float("inf"), "privacy.epsilon", "finite"),
            ("train/batch_size", 0, "train.batch_size", "greater"),
            ("surplus", {}, "surplus", "unknown key"),
        ],
    )  # fmt: skip
    def test_a_fault_has_the_path_that_the_user_wrote(
        self, path_written: str, value: Any, path: str, fragment: str
    ) -> None:
        found = problems({path_written: value})

        assert [problem.path for problem in found] == [path]
        assert fragment in found[0].message

    def test_a_missing_section_is_named(self) -> None:
        study = {key: value for key, value in STUDY.items() if key != "privacy"}

        with pytest.raises(ValidationError) as caught:
            StudySpec.model_validate(study)

        assert [problem.path for problem in field_problems(caught.value)] == ["privacy"]

    def test_every_fault_is_told_at_once(self) -> None:
        found = problems({"name": "a b", "privacy/delta": 2, "model/width": 0, "oops": 1})

        assert {problem.path for problem in found} == {
            "name",
            "privacy.delta",
            "model.width",
            "oops",
        }

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

        (found,) = field_problems(caught.value, prefix=("study",))
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
