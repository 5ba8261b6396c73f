"""The JSON Schema of ``study.yaml``, for editors: what they complete, explain and underline.

It is made from the specs themselves, with the words that stand below their fields. What several fields
say only together, such as rungs that rise, is left to the server.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import pairwise
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from tan_core.spec.fields import OF_TRAINER
from tan_core.spec.study import StudySpec
from tan_core.spec.train import TrainSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Json = dict[str, Any]


def study_schema(example: Mapping[str, Any] | None = None) -> Json:
    """The schema as plain data, draft 2020-12.

    Args:
        example: a study; its values become the examples of the fields.
    """
    schema = StudySpec.model_json_schema(schema_generator=_Untitled)
    definitions = schema["$defs"]
    for each in dict.fromkeys(_reached(StudySpec)):
        _describe(schema if each is StudySpec else definitions.get(each.__name__), each)
    for reference in schema["properties"]["model"]["oneOf"]:
        # Each has the default that its class has, but without a name nobody knows the class.
        named = definitions[_name(reference)]
        named["required"] = sorted({*named.get("required", []), "name"})
    space = definitions["SearchSpec"]["properties"]["space"]
    definitions["Dimension"] = space["additionalProperties"]
    space["additionalProperties"] = {"$ref": "#/$defs/Dimension"}
    space["properties"] = {
        field: {"$ref": "#/$defs/Dimension", "description": text}
        for field, text in _searchable().items()
    }
    if example is not None:
        schema["examples"] = [dict(example)]
        _exemplify(schema, example, definitions)
    return {"$schema": DIALECT, **schema, "title": "study.yaml of TAN Search"}


class _Untitled(GenerateJsonSchema):
    """A field's key says what a title would say again."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _reached(kind: Any) -> Iterator[type[BaseModel] | type[Enum]]:
    """The models and enumerations that a type is made of, itself first."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        for field in kind.model_fields.values():
            yield from _reached(field.annotation)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        yield kind
    for inner in get_args(kind):
        yield from _reached(inner)


def _describe(schema: Json | None, kind: type[BaseModel] | type[Enum]) -> None:
    """Add the words below the fields, or below the members."""
    if schema is None:
        return
    words = _words(kind)
    if issubclass(kind, Enum):
        if words:
            schema["enumDescriptions"] = [words.get(member.name, "") for member in kind]
    else:
        for name, said in schema["properties"].items():
            if name in words:
                said["description"] = words[name]
    if "description" in schema:
        schema["description"] = _plain(schema["description"])


def _words(kind: type) -> dict[str, str]:
    """What stands below each field or member of a class and of those that it inherits from."""
    words: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if not each.__module__.startswith("tan_core"):
            continue
        (defined,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        body = defined.body if isinstance(defined, ast.ClassDef) else []
        for field, below in pairwise(body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name))
                    | ast.Assign(targets=[ast.Name(id=name)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    words[name] = _plain(inspect.cleandoc(text))
                case _:
                    pass
    return words


def _plain(text: str) -> str:
    """Without the marks of reStructuredText, on one line a paragraph."""
    unmarked = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
    return "\n\n".join(" ".join(part.split()) for part in unmarked.split("\n\n"))


def _searchable() -> dict[str, str]:
    """The fields of the trainer that every study can search, and what they are."""
    words = _words(TrainSpec)
    names = [*OF_TRAINER, "steps"]
    return {name: words[name] for name in names}


def _exemplify(schema: Json, example: Mapping[str, Any], definitions: Json) -> None:
    """Let every field that the example holds show its value there."""
    for name, value in example.items():
        field = schema.get("properties", {}).get(name)
        if field is None:
            continue
        if "$ref" in field and isinstance(value, Mapping):
            _exemplify(definitions[_name(field)], value, definitions)
        else:
            field["examples"] = [value]


def _name(reference: Json) -> str:
    return reference["$ref"].rpartition("/")[2]
