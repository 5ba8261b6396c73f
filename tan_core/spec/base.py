"""The base of every spec: frozen, strict about unknown keys; true and false are no numbers."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator


class Frozen(BaseModel):
    """Immutable; an unknown key, NaN and infinity are errors, and so is a truth value for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_truth_values(cls, data: Any) -> Any:
        """Python counts true as 1: ``steps: true`` would be one step."""
        if isinstance(data, Mapping):
            for name, field in cls.model_fields.items():
                given = data.get(name)
                if isinstance(given, bool) and not _takes_truth_values(field.annotation):
                    raise ValueError(f"{name} is no truth value, got {str(given).lower()}")
        return data


@lru_cache(maxsize=None, typed=True)  # 0 and False are equal and not the same
def _takes_truth_values(annotation: Any) -> bool:
    inner = get_args(annotation)
    is_one = annotation in (bool, Any, object) or isinstance(annotation, bool)
    return is_one or any(map(_takes_truth_values, inner))
