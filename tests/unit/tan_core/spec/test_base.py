"""What every spec refuses."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from tan_core.spec import load_study
from tan_core.spec.models import MlpModel, NfResNetModel, WideResNetModel
from tan_core.spec.problems import field_problems
from tan_core.spec.space import Choices, Range
from tan_core.spec.study import PrivacySpec, SearchSpec, StudySpec
from tan_core.spec.train import TrainerConfig, TrainSpec
from tan_core.spec.yaml import parse_yaml


class TestTruthValues:
    """Python counts true as 1: ``microbatch_size: true`` would be one example."""

    @pytest.mark.parametrize(
        ("spec", "field"),
        [(TrainerConfig, "clip_norm"), (NfResNetModel, "skip_gain"), (Range, "low")],
    )
    def test_are_no_numbers(self, spec, field: str) -> None:
        known = {"low": 0.1, "high": 1.0} if spec is Range else {}

        with pytest.raises(ValidationError, match=f"{field} takes a number, no truth value"):
            spec(**{**known, field: True})

    def test_are_taken_where_they_are_meant(self) -> None:
        assert TrainerConfig(horizontal_flip=True).horizontal_flip
        assert WideResNetModel(name="wrn-16-4", weight_standardization=True).weight_standardization
        assert Range(low=0.1, high=1.0, log=True).log


class TestQuotedNumbers:
    """``steps: "128"`` is a text; Python would read it as a number."""

    @pytest.mark.parametrize(
        ("spec", "given", "path"),
        [
            (TrainSpec, {"steps": "128"}, "steps"),
            (TrainSpec, {"batch_size": " 1_000 "}, "batch_size"),
            (TrainSpec, {"clip_norm": "0.5"}, "clip_norm"),
            (PrivacySpec, {"epsilon": "3", "delta": 1e-5}, "epsilon"),
            (MlpModel, {"hidden": [64, "32"]}, "hidden.1"),
            (
                SearchSpec,
                {"accounting": "public_proxy", "rungs": ["8"], "space": {"a": 1}},
                "rungs.0",
            ),
            (Range, {"low": "0.1", "high": 1.0}, "low"),
        ],
    )
    def test_are_refused_at_their_place_with_the_cure(
        self, spec: type, given: dict, path: str
    ) -> None:
        with pytest.raises(ValidationError, match="write it without quotes") as caught:
            spec(**given)
        (problem,) = field_problems(caught.value, spec)
        assert problem.path == path
        assert str(problem.value) in problem.message

    @pytest.mark.parametrize("written", ["1e-5", "1E-05", "1.0e-5", "0.00001"])
    def test_a_number_in_yaml_is_a_number_however_it_is_written(self, written: str) -> None:
        study = Path("examples/digits.yaml").read_text().replace("1.0e-5", written)
        assert load_study(study).privacy.delta == 1e-5

    def test_what_yaml_1_1_reads_as_a_text_is_a_number_still(self) -> None:
        assert PrivacySpec(epsilon=3, delta="1e-5").delta == 1e-5
        study = parse_yaml(Path("examples/digits.yaml").read_text())
        study["privacy"]["delta"] = "1e-5"
        assert StudySpec.model_validate(study).privacy.delta == 1e-5

    def test_text_is_taken_where_it_is_meant(self) -> None:
        assert TrainSpec(steps="auto").steps == "auto"
        assert Choices(choices=["128", 128]).choices == ["128", 128]

    def test_every_one_is_named_at_once(self) -> None:
        with pytest.raises(ValidationError) as caught:
            TrainSpec(steps="1", batch_size="2", horizontal_flip=True, momentum=True)
        paths = {problem.path for problem in field_problems(caught.value, TrainSpec)}
        assert paths == {"steps", "batch_size", "momentum"}
