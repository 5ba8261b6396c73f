"""A model on features that are computed once takes no augmentation, fixed or searched."""

from typing import Any

import pytest
from pydantic import ValidationError

from tan_core.spec import StudySpec, field_problems
from tan_core.spec.features import feature_models, features_note
from tan_core.spec.fields import needs_of


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

        [problem] = field_problems(caught.value, StudySpec)
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
def test_features_can_be_searched(name: str) -> None:
    """Of the three normalizations two read the same features."""
    spec = study(
        name,
        {
            "normalization": {"choices": ["group", "none", "whitened"]},
            "model.patches": {"choices": [False, True]},
            "flip_invariant": True,
            "groups": {"choices": [9, 81]},
        },
    )

    found = feature_models(spec.model, spec.search.space)

    assert len(found) == 6
    assert [(each.is_whitened, each.patches) for each in found[::2]] == [
        (False, False),
        (False, False),
        (True, False),
    ]
    assert {each.features for each in found} == {
        (is_whitened, True, patches) for is_whitened in (False, True) for patches in (False, True)
    }


def test_a_space_without_features_has_those_of_the_model() -> None:
    spec = study(options={"patches": True}, space={"groups": {"choices": [9, 81]}})

    assert feature_models(spec.model, spec.search.space) == [spec.model]


def test_groups_are_read_where_coefficients_are_normalised_in_groups_alone() -> None:
    spec = study(space={"normalization": {"choices": ["group", "whitened"]}, "groups": 9})

    [need] = needs_of(spec.field_of("groups"), spec.model)

    assert need.other == "normalization"
    assert [need.is_met(value) for value in ("group", "none", "whitened")] == [True, False, False]
    # Other models have groups, too.
    wide = study("wrn-16-4").model
    assert needs_of(("model", "groups"), wide) == []


def test_a_value_that_is_no_boolean_is_named_once() -> None:
    with pytest.raises(ValidationError) as caught:
        study(space={"flip_invariant": {"choices": [1]}})

    [problem] = field_problems(caught.value, StudySpec)
    assert problem.path == "search.space.flip_invariant.choices.0"


def test_groups_that_no_candidate_reads_are_refused() -> None:
    whitened = {"normalization": "whitened"}
    with pytest.raises(ValidationError) as caught:
        study(space={"groups": {"choices": [9, 27]}}, options=whitened)

    [problem] = field_problems(caught.value, StudySpec)
    assert problem.path == "search.space.groups.choices.0"
    assert study(options=whitened).model == study(space=whitened, options=whitened).model


def test_groups_that_some_whitened_candidate_would_have_are_refused() -> None:
    with pytest.raises(ValidationError) as caught:
        study(space={"normalization": {"choices": ["group", "whitened"]}}, options={"groups": 81})

    [problem] = field_problems(caught.value, StudySpec)
    assert problem.path == "search.space.normalization.choices.1"
    assert "accepted: leave it out, or 27" in problem.message


@pytest.mark.parametrize(
    ("options", "normalization"),
    [
        ({"normalization": "whitened"}, {"choices": ["group", "whitened"]}),
        ({"normalization": "whitened"}, "group"),
        ({"normalization": "none"}, {"choices": ["none", "group"]}),
    ],
)
def test_groups_are_held_against_the_normalization_that_reads_them(
    options: dict[str, Any], normalization: Any
) -> None:
    groups = {"choices": [9, 27]}

    spec = study(space={"normalization": normalization, "groups": groups}, options=options)

    assert spec.searchable()


def test_groups_that_nobody_would_ask_for_are_refused() -> None:
    """Every candidate would be the same."""
    with pytest.raises(ValidationError) as caught:
        study(space={"groups": {"choices": [9, 81]}}, options={"normalization": "none"})

    [problem] = field_problems(caught.value, StudySpec)
    assert problem.path == "search.space.groups"
    assert "has no effect: normalization must be group, got none" in problem.message
    # Fixed ones do no harm, and stored studies name every option.
    assert study(options={"normalization": "none", "groups": 9}).model.groups == 9


def test_groups_that_the_whitening_does_not_have_are_refused() -> None:
    whitened = {"normalization": "whitened"}
    with pytest.raises(ValidationError) as caught:
        study(options={**whitened, "groups": 9})

    [problem] = field_problems(caught.value, StudySpec)
    assert problem.path == "model.groups"
    assert "accepted: leave it out, or 27" in problem.message
    # Stored studies name every option.
    assert study(options={**whitened, "groups": 27}).model == study(options=whitened).model
    assert study(options={"groups": 9}).model.groups == 9


PRETRAINED = {"path": "a.pt", "data": "public", "train": "classifier"}


def note_of(spec: StudySpec) -> str | None:
    return features_note(spec.model, spec.train.trainer(), spec.search.space)


def test_where_the_classifier_alone_is_trained_features_are_said_to_be_computed_once() -> None:
    assert note_of(study("vit-tiny", options={"pretrained": PRETRAINED})) == (
        "only the classifier is trained: the features of each record are computed once"
    )
    # Of others' code one run shows it, which a plan does not make.
    told = note_of(study("timm:resnet18", options={"pretrained": PRETRAINED}))
    assert told is not None
    assert told.endswith("else the whole model runs at every step")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"horizontal_flip": True}, "train.horizontal_flip"),
        ({"space": {"color_jitter": {"low": 0.0, "high": 0.5}}}, "search.space.color_jitter"),
        ({"space": {"model.depth": {"choices": [6, 12]}}}, "search.space.model.depth"),
    ],
)
def test_what_keeps_features_from_being_computed_once_is_named(
    given: dict[str, Any], field: str
) -> None:
    told = note_of(study("vit-tiny", options={"pretrained": PRETRAINED}, **given))

    assert told is not None
    assert f"runs at every step because of {field}: " in told


@pytest.mark.parametrize("train", ["all", "norms", "lora"])
def test_nothing_is_said_of_features_where_more_is_trained(train: str) -> None:
    assert (
        note_of(study("vit-tiny", options={"pretrained": {**PRETRAINED, "train": train}})) is None
    )
    assert note_of(study("scatter-cnn", options={"pretrained": PRETRAINED})) is None
