"""A model on features that are computed once takes no augmentation, fixed or searched."""

from typing import Any

import pytest
from pydantic import ValidationError

from tan_core.spec import StudySpec, field_problems


def study(
    name: str = "scatter-linear",
    space: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **train: Any,
) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "study",
            "privacy": {"epsilon": 3.0, "delta": 1e-5},
            "dataset": "mnist",
            "model": {"name": name, **(options or {})},
            "search": {
                "accounting": "public_proxy",
                "space": {"learning_rate": 1.0, **(space or {})},
            },
            "train": train,
        }
    )


AUGMENTED = [
    ("augmentation_multiplicity", 4),
    ("crop_padding", 2),
    ("horizontal_flip", True),
    ("color_jitter", 0.1),
]


@pytest.mark.parametrize("name", ["scatter-linear", "scatter-cnn"])
@pytest.mark.parametrize(("field", "value"), AUGMENTED)
def test_augmentation_is_refused_by_its_path_wherever_it_stands(
    name: str, field: str, value: Any
) -> None:
    plain = {"augmentation_multiplicity": 1, "crop_padding": 0, "color_jitter": 0.0}.get(
        field, False
    )
    for path, sections in [
        (f"train.{field}", {field: value}),
        (f"search.space.{field}", {"space": {field: {"choices": [plain, value]}}}),
    ]:
        with pytest.raises(ValidationError) as caught:
            study(name, **sections)

        [problem] = field_problems(caught.value)
        assert problem.path == path
        assert f"model {name} trains on features" in problem.message


@pytest.mark.parametrize(("field", "value"), AUGMENTED)
def test_other_models_take_it(field: str, value: Any) -> None:
    assert getattr(study("tanh-cnn", **{field: value}).train, field) == value


def test_fields_that_change_no_record_may_be_written_down() -> None:
    spec = study(
        augmentation_multiplicity=1, crop_padding="auto", horizontal_flip=False, color_jitter=0
    )

    assert spec.model.name == "scatter-linear"


def test_the_options_of_the_head_can_be_searched() -> None:
    spec = study(space={"groups": {"choices": [9, 27, 81]}, "normalization": "group"})

    assert spec.field_of("groups") == ("model", "groups")


@pytest.mark.parametrize("name", ["scatter-linear", "scatter-cnn"])
@pytest.mark.parametrize(
    ("option", "own", "searched", "place", "accepted"),
    [
        ("normalization", "group", "whitened", "", "group, none"),
        ("normalization", "group", {"choices": ["group", "whitened"]}, ".choices.1", "group, none"),
        ("normalization", "whitened", {"choices": ["none", "whitened"]}, ".choices.0", "whitened"),
        ("flip_invariant", False, True, "", "false"),
        ("flip_invariant", True, {"choices": [True, False]}, ".choices.1", "true"),
        ("patches", False, {"choices": [False, True]}, ".choices.1", "false"),
        ("patches", True, False, "", "true"),
    ],
)
def test_all_candidates_have_the_same_features(
    name: str, option: str, own: str | bool, searched: Any, place: str, accepted: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        study(name, {option: searched}, {option: own})

    [problem] = field_problems(caught.value)
    assert problem.path == f"search.space.{option}{place}"
    assert "features are computed once for all candidates" in problem.message
    assert f"which is {str(own).lower()}; accepted: {accepted}" in problem.message


def test_what_keeps_the_features_may_stand_in_the_space() -> None:
    space = {"normalization": {"choices": ["group", "none"]}, "flip_invariant": True}

    spec = study(space=space, options={"flip_invariant": True})

    assert spec.field_of("flip_invariant") == ("model", "flip_invariant")


def test_a_value_that_is_no_boolean_is_named_once() -> None:
    with pytest.raises(ValidationError) as caught:
        study(space={"flip_invariant": {"choices": [1]}})

    [problem] = field_problems(caught.value)
    assert problem.path == "search.space.flip_invariant.choices.0"


def test_whitened_patches_are_refused() -> None:
    with pytest.raises(ValidationError) as caught:
        study(options={"normalization": "whitened", "patches": True})

    [problem] = field_problems(caught.value)
    assert problem.path == "model.patches"
    assert "whitened is of coefficients alone; accepted: false" in problem.message
    # Stored studies name every option.
    whitened = {"normalization": "whitened"}
    assert study(options={**whitened, "patches": False}).model == study(options=whitened).model


def test_groups_that_no_candidate_reads_are_refused() -> None:
    whitened = {"normalization": "whitened"}
    with pytest.raises(ValidationError) as caught:
        study(space={"groups": {"choices": [9, 27]}}, options=whitened)

    [problem] = field_problems(caught.value)
    assert problem.path == "search.space.groups.choices.0"
    assert study(options=whitened).model == study(space=whitened, options=whitened).model


def test_groups_that_the_whitening_does_not_have_are_refused() -> None:
    whitened = {"normalization": "whitened"}
    with pytest.raises(ValidationError) as caught:
        study(options={**whitened, "groups": 9})

    [problem] = field_problems(caught.value)
    assert problem.path == "model.groups"
    assert "accepted: leave it out, or 27" in problem.message
    # Stored studies name every option.
    assert study(options={**whitened, "groups": 27}).model == study(options=whitened).model
    assert study(options={"groups": 9}).model.groups == 9
