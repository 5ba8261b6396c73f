from typing import Any

import pytest
from pydantic import ValidationError

from tan_core.spec import StudySpec
from tan_core.spec.fields import searchable_keys
from tan_core.spec.models import MlpModel, TimmModel
from tan_core.spec.problems import field_problems

BEGUN = {"path": "resnet.safetensors", "data": "ImageNet, public photographs"}


def study(model: str = "mlp", **pretrained: Any) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "s",
            "privacy": {"epsilon": 3.0, "delta": 1e-5},
            "dataset": "digits",
            "model": {"name": model, "pretrained": {**BEGUN, **pretrained}},
            "search": {"accounting": "public_proxy", "space": {"learning_rate": 1.0}},
        }
    )


def test_the_data_are_declared_in_words() -> None:
    pretrained = study(data="  lines\nof words\n").model.pretrained

    assert pretrained is not None
    assert (pretrained.data, pretrained.train, pretrained.sha256) == (
        "lines\nof words",
        "all",
        None,
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data", ""),
        ("data", "  "),
        ("data", "nul \x00"),
        ("path", "model.pkl"),
        ("path", "model"),
        ("path", "bell \a.pt"),
        ("path", ".pt"),
        ("train", "backbone"),
        ("sha256", "ab"),
        ("sha256", "G" * 64),
        ("weights", "x"),
    ],
)
def test_what_is_refused_is_named(field: str, value: str) -> None:
    with pytest.raises(ValidationError) as caught:
        study(**{field: value})

    assert [error["loc"][-2:] for error in caught.value.errors()] == [("pretrained", field)]


@pytest.mark.parametrize(
    ("model", "train", "told"),
    [
        ("mlp", "norms", "train: norms: model mlp has no normalisation that has a scale or a shift; accepted: all, classifier, biases, lora"),
        ("linear", "biases", "train: biases: model linear has no bias but that of its classifier; accepted: all"),
        ("wrn-16-4", "lora", "train: lora: model wrn-16-4 has no linear layer before its classifier that factors can be put beside; accepted: all, classifier, norms, biases"),
    ],
)  # fmt: skip
def test_a_part_that_a_model_does_not_have_is_refused_with_those_that_it_has(
    model: str, train: str, told: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        study(model, train=train)

    (problem,) = field_problems(caught.value, StudySpec)
    assert (problem.path, problem.message, problem.value) == (
        "model.pretrained.train",
        told,
        train,
    )


@pytest.mark.parametrize("name", ["python:lab:cnn", "timm:vgg11", "vit-tiny", "wrn-16-4"])
@pytest.mark.parametrize("train", ["norms", "biases"])
def test_a_part_that_a_model_may_have_is_taken(name: str, train: str) -> None:
    model = study(name, train=train).model

    assert model.pretrained is not None
    assert model.pretrained.train == train
    assert model.trains_network


class TestRank:
    def test_it_is_8_where_factors_are_trained_and_nobody_says(self) -> None:
        ranks = [
            study(train=train, **given).model.pretrained.rank  # type: ignore[union-attr]
            for train, given in [("lora", {}), ("lora", {"rank": 3}), ("all", {}), ("biases", {})]
        ]

        assert ranks == [8, 3, None, None]

    @pytest.mark.parametrize("rank", [0, -1, 1025, 2.5, True, "many"])
    def test_it_is_a_whole_number_from_1(self, rank: Any) -> None:
        with pytest.raises(ValidationError) as caught:
            study(train="lora", rank=rank)

        assert {p.path for p in field_problems(caught.value, StudySpec)} == {
            "model.pretrained.rank"
        }

    @pytest.mark.parametrize("train", ["all", "classifier", "biases"])
    def test_where_no_factors_are_trained_it_is_refused(self, train: str) -> None:
        with pytest.raises(ValidationError) as caught:
            study(train=train, rank=4)

        (problem,) = field_problems(caught.value, StudySpec)
        assert (problem.path, problem.value) == ("model.pretrained.rank", 4)
        assert f"of train: lora, and nothing else; train is {train}" in problem.message

    def test_it_is_written_where_it_is_and_read_again(self) -> None:
        written = study(train="lora").model_dump(mode="json")

        assert written["model"]["pretrained"]["rank"] == 8
        assert StudySpec.model_validate(written).model_dump(mode="json") == written
        assert "rank" not in study().model_dump(mode="json")["model"]["pretrained"]


def test_a_declaration_cannot_be_left_out() -> None:
    with pytest.raises(ValidationError, match="data"):
        MlpModel.model_validate({"pretrained": {"path": "a.pt"}})


@pytest.mark.parametrize("model", [MlpModel(), TimmModel(name="timm:vit")])
def test_it_is_no_option_that_a_search_may_vary(model: Any) -> None:
    assert not [key for key in searchable_keys(model) if "pretrained" in key]


def test_a_model_without_one_is_written_as_before() -> None:
    assert "pretrained" not in MlpModel().model_dump()
    assert study().model_dump(mode="json")["model"]["pretrained"]["path"] == BEGUN["path"]


def test_statistics_are_frozen_of_a_file_alone() -> None:
    given = study("timm:resnet18").model_dump(mode="json", exclude_none=True)
    given["model"]["replace_batch_norm"] = "frozen"
    frozen = StudySpec.model_validate(given)
    assert isinstance(frozen.model, TimmModel)
    assert frozen.model.replace_batch_norm == "frozen"
    del given["model"]["pretrained"]

    with pytest.raises(ValidationError) as caught:
        StudySpec.model_validate(given)

    (problem,) = field_problems(caught.value, StudySpec)
    assert problem.path == "model.replace_batch_norm"
    assert "and none is named; accepted without: group" in problem.message
