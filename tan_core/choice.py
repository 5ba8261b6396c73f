"""Closed sets of words that a caller may pass as plain strings."""

import re
from enum import StrEnum
from typing import NoReturn

from tan_core.errors import ParameterError


class Choice(StrEnum):
    """A string enum that refuses an unknown word by name, and says which are accepted."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
        raise ParameterError(f"{name} must be one of {', '.join(cls)}, got {value!r}", field=name)
