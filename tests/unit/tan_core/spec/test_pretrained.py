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
        ("mlp", "norms", "train: norms: model mlp has no normalisation that has a scale or a shift; accepted: all, classifier, biases"),
        ("linear", "biases", "train: biases: model linear has no bias but that of its classifier; accepted: all"),
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


def test_a_declaration_cannot_be_left_out() -> None:
    with pytest.raises(ValidationError, match="data"):
        MlpModel.model_validate({"pretrained": {"path": "a.pt"}})


@pytest.mark.parametrize("model", [MlpModel(), TimmModel(name="timm:vit")])
def test_it_is_no_option_that_a_search_may_vary(model: Any) -> None:
    assert not [key for key in searchable_keys(model) if "pretrained" in key]


def test_a_model_without_one_is_written_as_before() -> None:
    assert "pretrained" not in MlpModel().model_dump()
    assert study().model_dump(mode="json")["model"]["pretrained"]["path"] == BEGUN["path"]
