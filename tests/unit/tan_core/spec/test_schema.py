"""The JSON Schema of study.yaml: what is a study passes, what an editor could see does not."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tan_core.spec import TrainerConfig
from tan_core.spec.schema import study_schema
from tan_core.spec.yaml import load_study, parse_yaml

EXAMPLES = sorted(Path("examples").glob("*.yaml"))
DIGITS = parse_yaml(Path("examples/digits.yaml").read_text())
SCHEMA = study_schema(DIGITS)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def edited(path: str, value: Any) -> dict[str, Any]:
    study = deepcopy(DIGITS)
    *sections, key = path.split(".")
    place = study
    for section in sections:
        place = place[section]
    if value is ...:
        del place[key]
    else:
        place[key] = value
    return study


def test_it_is_a_schema_of_its_dialect() -> None:
    VALIDATOR.check_schema(SCHEMA)
    assert SCHEMA["$schema"].endswith("/2020-12/schema")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_passes(path: Path) -> None:
    VALIDATOR.validate(parse_yaml(path.read_text()))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("privacy.epsilon", -1),
        ("privacy.epsilon", "3"),
        ("privacy.delta", ...),
        ("privacy.delta", 1.5),
        ("search.accounting", "none"),
        ("search.trials", 0),
        ("search.trials", 1.5),
        ("search.rungs", ["8"]),
        ("search.rungs", "many"),
        ("search.space", {}),
        ("search.first", [{"learning_rate": [0.5]}]),
        ("search.first", [{}]),
        ("search.space.learning_rate", {"low": 1}),
        ("search.space.learning_rate", {"low": 1, "high": 2, "step": 1}),
        ("train.steps", "128"),
        ("train.steps", True),
        ("train.worker", 2),
        ("model", {"name": "gpt"}),
        ("model", {"hidden": [64]}),
        ("model", {"name": "mlp", "hidden": [0]}),
        ("promotion", "maybe"),
        ("dataset", ...),
        ("title", "x"),
    ],
)
def test_what_is_no_study_does_not_pass(path: str, value: Any) -> None:
    study = edited(path, value)
    assert not VALIDATOR.is_valid(study)
    with pytest.raises(ValueError, match=r"."):
        load_study(_as_yaml(study))


@pytest.mark.parametrize(
    "search",
    [{"trials": 3}, {"space": {"learning_rate": 1.0}}, {"first": [{"learning_rate": 1.0}]}],
    ids=str,
)
def test_without_a_search_what_belongs_to_one_does_not_pass(search: dict[str, Any]) -> None:
    VALIDATOR.validate(edited("search", {"accounting": "no_search"}))
    assert not VALIDATOR.is_valid(edited("search", {"accounting": "no_search", **search}))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("privacy.epsilon", 1e-5),
        ("train.steps", "auto"),
        ("model", {"name": "timm:resnet18"}),
        ("model", {"name": "python:lab.models:small", "options": {"width": 3}}),
        ("search.space.width", 3),
        ("search.space.learning_rate", 0.5),
        ("search.warm_start", ["s-0123456789ab"]),
        ("search.first", [{"learning_rate": 0.5}, {"learning_rate": 1, "ema_decay": 0.9}]),
    ],
)
def test_what_may_be_asked_for_passes(path: str, value: Any) -> None:
    VALIDATOR.validate(edited(path, value))


def properties(schema: dict[str, Any], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, field in schema.get("properties", {}).items():
        yield f"{name}.{key}", field


def test_every_field_is_described_and_every_word_explained() -> None:
    definitions = SCHEMA["$defs"]
    fields = [*properties(SCHEMA, "study")]
    for name, definition in definitions.items():
        fields += properties(definition, name)
        if "enum" in definition:
            assert len(definition["enumDescriptions"]) == len(definition["enum"]), name
            assert all(definition["enumDescriptions"]), name
    for name, field in fields:
        target = definitions.get(field.get("$ref", "").rpartition("/")[2], {})
        said = field.get("description") or target.get("description") or field.get("const")
        assert said, name
        assert "``" not in said, name


def test_an_editor_can_complete_what_may_be_searched() -> None:
    space = SCHEMA["$defs"]["SearchSpec"]["properties"]["space"]["properties"]
    assert set(space) == {*TrainerConfig.model_fields, "steps"} - {"class_shares"}


def test_the_fields_of_the_example_show_their_values() -> None:
    assert SCHEMA["$defs"]["PrivacySpec"]["properties"]["delta"]["examples"] == [1e-5]
    assert SCHEMA["properties"]["dataset"]["examples"] == ["digits"]
    assert SCHEMA["$defs"]["TrainSpec"]["properties"]["workers"]["default"] == 2


def _as_yaml(study: dict[str, Any]) -> str:
    import json

    return json.dumps(study)
