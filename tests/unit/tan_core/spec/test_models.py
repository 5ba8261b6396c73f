"""What a study may say of its model."""

import doctest

import pytest
from pydantic import TypeAdapter, ValidationError

from tan_core.spec import fields, models, space_keys
from tan_core.spec.fields import Place, field_of, model_options, searchable_keys
from tan_core.spec.models import (
    MODEL_TAGS,
    MODEL_TYPES,
    MlpModel,
    ModelSpec,
    ModulePrefixes,
    PythonModel,
    TimmModel,
    VitModel,
    WideResNetModel,
)

SPEC: TypeAdapter[ModelSpec] = TypeAdapter(ModelSpec)
PREFIXES = TypeAdapter(ModulePrefixes)


class TestModelSpec:
    @pytest.mark.parametrize("name", MODEL_TYPES)
    def test_a_name_alone_is_a_model_and_survives_a_message(self, name: str) -> None:
        spec = SPEC.validate_python({"name": name})

        assert type(spec) is MODEL_TYPES[name]
        assert SPEC.validate_json(SPEC.dump_json(spec)) == spec
        assert SPEC.validate_python(spec) is spec

    @pytest.mark.parametrize("name", ["timm:resnet18", "python:lab.models:small"])
    def test_options_of_models_from_elsewhere_keep_their_types(self, name: str) -> None:
        options = {"a": 1, "b": True, "c": 1.5, "d": "x"}
        spec = SPEC.validate_json(
            SPEC.dump_json(SPEC.validate_python({"name": name, "options": options}))
        )

        assert isinstance(spec, TimmModel | PythonModel)
        assert {key: (type(value), value) for key, value in spec.options.items()} == {
            key: (type(value), value) for key, value in options.items()
        }

    @pytest.mark.parametrize(
        "name",
        [
            "timm:",
            "timm:hf-hub:someone/net",
            "timm:../net",
            "python:lab",
            "python:lab:",
            "python::small",
            "python:lab.:small",
            "python:.lab:small",
            "python:lab:small.inner",
            "python:lab:small\n",
            "python:lab-1:small",
            "http:lab:small",
        ],
    )
    def test_odd_names_are_refused(self, name: str) -> None:
        with pytest.raises(ValidationError):
            SPEC.validate_python({"name": name})

    @pytest.mark.parametrize("option", ["pretrained", "checkpoint_path", "num_classes", "in_chans"])
    def test_timm_loads_nothing_and_takes_its_sizes_from_the_data(self, option: str) -> None:
        with pytest.raises(ValidationError, match=option):
            SPEC.validate_python({"name": "timm:resnet18", "options": {option: 1}})

    @pytest.mark.parametrize("by", ["group", "frozen"])
    @pytest.mark.parametrize("name", ["timm:resnet18", "python:lab.models:small"])
    def test_batch_normalisation_is_replaced_where_that_is_said(self, name: str, by: str) -> None:
        """Specs from before the option say the same as those that leave it out."""
        spec = SPEC.validate_python({"name": name, "replace_batch_norm": by})
        without = SPEC.validate_python({"name": name})

        assert SPEC.validate_json(SPEC.dump_json(spec)) == spec != without
        assert "replace_batch_norm" not in without.model_dump()
        assert model_options(spec) == set()
        assert field_of("model.replace_batch_norm", spec) is None

    @pytest.mark.parametrize(
        ("name", "value"),
        [("timm:resnet18", "layer"), ("timm:resnet18", True), ("wrn-16-4", "group")],
    )
    def test_nothing_else_takes_its_place(self, name: str, value: object) -> None:
        with pytest.raises(ValidationError, match="replace_batch_norm"):
            SPEC.validate_python({"name": name, "replace_batch_norm": value})

    @pytest.mark.parametrize("name", ["timm:resnet18", "python:lab.models:small"])
    def test_what_a_network_reads_of_images_is_the_same_for_all_candidates(self, name: str) -> None:
        given = {"size": 224, "mean": [0.5] * 3, "std": [0.25] * 3}
        spec = SPEC.validate_python({"name": name, "input": given})

        assert SPEC.validate_json(SPEC.dump_json(spec)) == spec
        assert "input" not in SPEC.validate_python({"name": name}).model_dump()
        assert model_options(spec) == set()
        assert field_of("model.input", spec) is None

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({}, "nothing is said; accepted: size, or mean and std"),
            ({"mean": [0.5]}, "mean and std belong together, std is missing"),
            ({"size": 8, "std": [0.5]}, "mean and std belong together, mean is missing"),
            ({"mean": [0.5], "std": [0.5, 0.5]}, "as many channels, got 1 and 2 numbers"),
            ({"mean": [0.5], "std": [0.0]}, "greater than 0"),
            ({"mean": [float("nan")], "std": [1.0]}, "finite"),
            ({"mean": [], "std": []}, "at least 1 item"),
            ({"size": 0}, "greater than or equal to 1"),
            ({"size": 224.5}, "integer"),
            ({"sides": 4}, "not permitted"),
        ],
    )
    def test_an_input_that_says_nothing_or_half_is_refused(
        self, given: dict[str, object], message: str
    ) -> None:
        with pytest.raises(ValidationError, match=message):
            SPEC.validate_python({"name": "timm:resnet18", "input": given})

    def test_models_of_ours_read_images_as_they_are(self) -> None:
        with pytest.raises(ValidationError, match="input"):
            SPEC.validate_python({"name": "wrn-16-4", "input": {"size": 32}})

    def test_every_member_of_the_union_has_its_tag(self) -> None:
        """A tag that is missing here would show up in the paths of errors."""
        kinds = set(SPEC.json_schema()["$defs"])

        assert kinds - {"Pretrained", "ModelInput"} == MODEL_TAGS

    def test_a_wide_network_reads_its_size_from_its_name(self) -> None:
        spec = WideResNetModel(name="wrn-28-10")

        assert (spec.depth, spec.width) == (28, 10)

    def test_what_one_scalar_can_set_may_be_searched(self) -> None:
        assert model_options(VitModel()) == {"patch_size", "depth", "width", "heads"}
        assert model_options(MlpModel()) == {"hidden", "activation"}
        assert model_options(PythonModel(name="python:lab:small")) == set()
        assert searchable_keys(PythonModel(name="python:lab:small"))[-1] == "model.options.NAME"

    @pytest.mark.parametrize(
        ("key", "place"),
        [
            ("model.options.width", ("model", "options.width")),
            ("options.width", ("model", "options.width")),
            ("learning_rate", ("train", "learning_rate")),
            ("width", None),
            ("model.width", None),
            ("model.options", None),
            ("model.options.", None),
            ("train.options.width", None),
            ("model.options.a.b", None),
        ],
    )
    def test_options_of_a_function_are_named_with_their_prefix(
        self, key: str, place: Place | None
    ) -> None:
        """A slip in a trainer's field would be one otherwise."""
        assert field_of(key, PythonModel(name="python:lab:small")) == place
        assert field_of(key, TimmModel(name="timm:resnet18")) == place

    @pytest.mark.parametrize("hidden", [True, [], 0, 1.5, "64", [[64]]], ids=str)
    def test_one_hidden_layer_is_a_whole_number_of_units(self, hidden: object) -> None:
        with pytest.raises(ValidationError):
            SPEC.validate_python({"name": "mlp", "hidden": hidden})

    def test_one_number_of_units_is_one_layer(self) -> None:
        assert SPEC.validate_python({"name": "mlp", "hidden": 32}) == MlpModel(hidden=[32])


def test_the_examples_in_the_docstrings_are_true() -> None:
    for module in (fields, space_keys):
        results = doctest.testmod(module)

        assert results.attempted > 0
        assert results.failed == 0


class TestPythonModel:
    @pytest.mark.parametrize(
        ("prefixes", "is_allowed"),
        [
            ([], False),
            (["lab"], True),
            (["lab.models"], True),
            (["zoo", "lab.models.cnn"], True),
            (["lab.models.cnn.small"], False),
            (["lab.mod"], False),
            (["la"], False),
            (["models.cnn"], False),
        ],
        ids=str,
    )
    def test_a_module_is_allowed_by_its_name_or_by_a_package_above_it(
        self, prefixes: list[str], is_allowed: bool
    ) -> None:
        assert PythonModel(name="python:lab.models.cnn:small").is_allowed(prefixes) is is_allowed

    def test_the_example_in_its_docstring_is_true(self) -> None:
        results = doctest.testmod(models)

        assert results.attempted
        assert not results.failed


class TestModulePrefixes:
    @pytest.mark.parametrize(
        ("text", "prefixes"),
        [("", ()), (" , ", ()), ("lab", ("lab",)), (" lab.models ,zoo", ("lab.models", "zoo"))],
    )
    def test_they_are_read_from_a_text_with_commas(
        self, text: str, prefixes: tuple[str, ...]
    ) -> None:
        assert PREFIXES.validate_python(text) == prefixes

    @pytest.mark.parametrize("text", [".", "lab.", "lab..models", "*", "lab.*", "lab zoo", "1lab"])
    def test_what_is_no_dotted_name_is_refused(self, text: str) -> None:
        with pytest.raises(ValidationError):
            PREFIXES.validate_python(text)
