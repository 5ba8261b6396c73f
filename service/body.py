"""Request bodies that are a study.yaml: JSON or YAML text in, one mapping out."""

import json
from typing import Any, TypeVar

from anyio import to_thread
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from service.errors import InvalidInputError, UnsupportedMediaError
from tan_core.spec import field_problems
from tan_core.spec.yaml import parse_yaml

YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml"})
Model = TypeVar("Model", bound=BaseModel)


async def read_mapping(request: Request, *, yaml: bool = True) -> dict[str, Any]:
    """The mapping in the body.

    Raises:
        UnsupportedMediaError: the content type is neither JSON nor, where accepted, YAML.
        HTTPException: 400, the text cannot be parsed.
        InvalidInputError: what was parsed is not a mapping.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    raw = await request.body()
    if media_type == "application/json" or media_type.endswith("+json"):
        value = _parse_json(raw)
    elif yaml and media_type in YAML_TYPES:
        value = await to_thread.run_sync(_parse_yaml, raw)  # slow: others are served meanwhile
    else:
        accepted = "application/json" + (" or application/yaml" if yaml else "")
        raise UnsupportedMediaError(
            f"the body must be {accepted}, got content type {media_type[:100]!r}"
        )
    if not isinstance(value, dict):
        raise InvalidInputError(f"expected a mapping of keys, got {type(value).__name__}")
    return value


def validate(model: type[Model], value: Any, *, prefix: tuple[str, ...] = ()) -> Model:
    """The value as ``model``, or an error that lists every field at fault."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidInputError.of(field_problems(error, model, prefix=prefix)) from None


def _parse_json(raw: bytes) -> Any:
    try:
        return json.loads(raw, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping; a key written twice is an error, since one of its values would be dropped."""
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise HTTPException(400, f"key {key[:100]!r} is written twice")
        mapping[key] = value
    return mapping


def _parse_yaml(raw: bytes) -> Any:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise HTTPException(400, "the body is not UTF-8") from None
    return parse_yaml(text)
