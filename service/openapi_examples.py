"""Examples for the OpenAPI document, composed from its schemas.

What the parts say of themselves comes first,
then what a field of this name usually holds, then the least value that the schema allows.
"""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

STUDY = {
    "name": "digits-eps3",
    "privacy": {"epsilon": 3.0, "delta": 1e-5},
    "dataset": "digits",
    "model": {"name": "mlp", "hidden": [64]},
    "search": {
        "accounting": "declared_unaccounted",
        "trials": 12,
        "space": {"learning_rate": {"low": 0.125, "high": 4.0, "log": True}},
    },
    "train": {"batch_size": 256, "steps": 300, "clip_norm": 0.5, "workers": 2},
}
WHOLE: dict[str, Any] = {
    "StudySpec": STUDY,
    "DatasetRegistration": {
        "name": "mnist",
        "path": "/data/mnist",
        "epsilon": 10.0,
        "delta": 1e-6,
        "waiver": "ada: the digits of the tutorial",
    },
    "MechanismPlanRequest": {
        "mechanism": {
            "num_examples": 50_000,
            "expected_batch_size": 4096,
            "noise_multiplier": 3.0,
            "steps": 2500,
        },
        "delta": 1e-5,
    },
}
"""Of models whose fields must agree with each other."""
_SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_MOMENT = "2026-11-21T19:30:00Z"
USUAL: dict[str, Any] = {
    "accountant": "pld",
    "accuracy": 0.976,
    "actor": "token:4f2a91c07d",
    "alpha": 2,
    "best_accuracy": 0.974,
    "clip_norm": 1.0,
    "dataset": "digits",
    "delta": 1e-5,
    "detail": "there is no study 's-000000000000'",
    "epsilon": 2.94,
    "error": None,
    "event": "{}",
    "fault": None,
    "first_bad_seq": None,
    "high": 0.983,
    "id": "s-0123456789ab",
    "key": "digits-1",
    "kind": None,
    "label": "label",
    "learning_rate": 1.0,
    "level": 0.9,
    "low": 0.969,
    "message": "12 of 12 trials finished",
    "model": "mlp",
    "name": "digits-eps3",
    "neighboring_relation": "add_or_remove_one",
    "next_cursor": None,
    "noise_multiplier": 4.883,
    "num_classes": 10,
    "num_examples": 1295,
    "num_test": 360,
    "num_train": 1295,
    "num_train_records": 1295,
    "num_validation": 142,
    "num_entries": 27,
    "params": {"learning_rate": 1.0},
    "path": "/data/mnist",
    "pretrained": None,
    "plan": {"reference": {"expected_batch_size": 256, "noise_multiplier": 4.883, "steps": 300}},
    "reason": None,
    "repeats": [],
    "reservation_id": "s-0123456789ab",
    "run_id": "s-0123456789ab-private",
    "sampling_rate": 0.19768,
    "scope": "dataset:digits",
    "scope_id": "dataset:digits",
    "search_accounting": "declared_unaccounted",
    "search_note": "search on private data NOT accounted",
    "seq": 27,
    "sha256": _SHA256,
    "shape": [1, 8, 8],
    "source": None,
    "spec": STUDY,
    "step": 120,
    "steps": 300,
    "steps_per_second": 41.5,
    "study": "s-0123456789ab",
    "study_id": "s-0123456789ab",
    "tags": ["paper"],
    "tenant": "local",
    "test_accuracy": 0.979,
    "class_shares": [98.0, 2.0],
    "trial": 7,
    "trials_finished": 12,
    "trials_total": 12,
    "unit": "record",
    "url": "https://hooks.example/tan",
    "value": 0.974,
    "version": "1",
    "waiver": None,
}
"""Of a field of this name, where its schema accepts it."""


def example_of(schema: Schema, components: Mapping[str, Schema], name: str = "") -> Any:
    """A value that the schema accepts.

    Args:
        schema: of the value; references lead into ``components``.
        components: schemas by name.
        name: of the field that holds the value.
    """
    if "$ref" in schema:
        model = schema["$ref"].rpartition("/")[2]
        return WHOLE[model] if model in WHOLE else example_of(components[model], components, name)
    for said in ("const", "default"):
        if schema.get(said) is not None:
            return schema[said]
    if schema.get("examples"):
        return _with_nulls(schema["examples"][0], schema, components)
    if "enum" in schema:
        usual = USUAL.get(name)
        return usual if usual in schema["enum"] else schema["enum"][0]
    for union in ("oneOf", "anyOf"):
        if union in schema:
            return _of_union(schema[union], components, name)
    if "allOf" in schema:
        return example_of(schema["allOf"][0], components, name)
    return _of_type(schema, components, name)


def _with_nulls(value: Any, schema: Schema, components: Mapping[str, Schema]) -> Any:
    """The value with what FastAPI strips from the examples of models: fields that are null."""
    if "$ref" in schema:
        return _with_nulls(value, components[schema["$ref"].rpartition("/")[2]], components)
    if isinstance(value, list):
        return [_with_nulls(each, schema.get("items", {}), components) for each in value]
    if not isinstance(value, dict):
        return value
    fields = schema.get("properties", {})
    nulls = {name: None for name in schema.get("required", []) if name not in value}
    return {
        name: _with_nulls(each, fields.get(name, {}), components)
        for name, each in {**value, **nulls}.items()
    }


def _of_union(options: list[Schema], components: Mapping[str, Schema], name: str) -> Any:
    """Of the first option; where null is one, the usual value may be just that."""
    is_optional = any(option.get("type") == "null" for option in options)
    if is_optional and name in USUAL and USUAL[name] is None:
        return None
    first = next((option for option in options if option.get("type") != "null"), {"type": "null"})
    return example_of(first, components, name)


def _of_type(schema: Schema, components: Mapping[str, Schema], name: str) -> Any:
    kind = schema.get("type")
    usual = USUAL.get(name)
    if kind == "object":
        return _of_object(schema, components, usual)
    if kind == "array":
        if isinstance(usual, list):
            return usual
        if "prefixItems" in schema:
            return [example_of(each, components) for each in schema["prefixItems"]]
        return [example_of(schema.get("items", {}), components, name)]
    if kind == "string":
        return _of_string(schema, name, usual)
    if kind in ("integer", "number"):
        return _of_number(schema, kind, usual)
    if kind == "boolean":
        return True
    return usual


def _of_object(schema: Schema, components: Mapping[str, Schema], usual: Any) -> dict[str, Any]:
    if "properties" in schema:
        return {
            name: example_of(each, components, name) for name, each in schema["properties"].items()
        }
    if isinstance(usual, dict):
        return usual
    values = schema.get("additionalProperties")
    return {"pld": example_of(values, components)} if isinstance(values, dict) else {}


def _of_string(schema: Schema, name: str, usual: Any) -> str:
    if schema.get("format") == "date-time" or name.endswith("_at"):
        return _MOMENT
    if isinstance(usual, str):
        return usual
    if name.endswith(("sha256", "hash")):
        return _SHA256
    return "x" * max(1, schema.get("minLength", 0))


def _of_number(schema: Schema, kind: str, usual: Any) -> float:
    least = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    if isinstance(usual, int | float) and not isinstance(usual, bool):
        fits = usual >= least and (most is None or usual <= most)
        if fits and (kind == "number" or isinstance(usual, int)):
            return usual
    step = 1 if kind == "integer" else 0.5
    value = least + step if "exclusiveMinimum" in schema or least == 0 else least
    return int(value) if kind == "integer" else value
