"""What comparisons have in common: how many can be chosen, and fields that stand beside each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from service.errors import InvalidInputError

FEWEST, MOST = 2, 6
T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """One field of what is compared; None where one has none of this name."""

    path: str
    values: Sequence[Any]
    known: Sequence[bool]
    """Whether each has anything to compare yet."""

    @property
    def differs(self) -> bool:
        """Whether they do not agree."""
        return any(self.others)

    @property
    def others(self) -> Sequence[bool]:
        """Whose value is not that of the first that is known."""
        pairs = list(zip(self.values, self.known, strict=True))
        first = next((value for value, is_known in pairs if is_known), None)
        return [is_known and value != first for value, is_known in pairs]


def chosen_few(chosen: Sequence[T], *, field: str, things: str, listed: str) -> list[T]:
    """What was chosen, each once, in the order of asking.

    Args:
        chosen: as the address has it.
        field: of the address.
        things: what they are, in a sentence.
        listed: where they are ticked.

    Raises:
        InvalidInputError: fewer than two, or more than six.
    """
    few = list(dict.fromkeys(chosen))
    if not FEWEST <= len(few) <= MOST:
        raise InvalidInputError.at(
            field,
            f"{FEWEST} to {MOST} {things} can be compared: tick them in {listed}; got {len(few)}",
        )
    return few
