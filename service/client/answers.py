"""Reads answers of services that are newer or older than this program."""

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)


def understood(answer: type[Model], content: bytes) -> Model:
    """The answer. What a newer service says besides is left out.

    A field that an older service does not know yet is None where the field allows that, as of a study
    that has no such thing; nothing else is made up.

    Raises:
        ValidationError: it is no such answer.
    """
    try:
        return answer.model_validate_json(content, extra="ignore")
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        if any(fault["type"] != "missing" for fault in faults):
            raise
        document = json.loads(content)
        for fault in faults:
            _put_null(document, fault["loc"])
        try:
            return answer.model_validate_json(json.dumps(document), extra="ignore")
        except ValidationError:
            raise error from None


def _put_null(document: Any, path: Sequence[int | str]) -> None:
    """Where no part of the path names a kind of model; what is not found stays a fault."""
    *parents, last = path
    for part in parents:
        try:
            document = document[part]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(document, dict):
        document[last] = None
