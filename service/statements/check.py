"""What a verification says, thing by thing. Apart from it, for who shows a verdict need not price."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked."""

    name: str
    is_good: bool | None
    """None: nothing speaks against it, and it cannot be told whether it holds."""
    detail: str

    @property
    def is_bad(self) -> bool:
        """Whether it does not hold."""
        return self.is_good is False

    @property
    def verdict(self) -> Literal["good", "bad", "open"]:
        """In a word."""
        if self.is_good is None:
            return "open"
        return "good" if self.is_good else "bad"
