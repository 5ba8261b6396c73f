"""What a field has to find in another one to be read at all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Need:
    """What ``field`` has to find in ``other``, a field beside it, to be read at all."""

    field: str
    other: str
    is_met: Callable[[Any], bool]
    wanted: str
