"""What a verification says, thing by thing. Apart from it, for who shows a verdict need not price."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


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


def check_study(statement: Mapping[str, Any], study_id: str) -> list[Check]:
    """Nothing where it is of the study that was asked for: one of another may be good itself."""
    about = statement.get("study")
    found = about.get("id") if isinstance(about, Mapping) else None
    if found == study_id:
        return []
    return [Check("study", False, f"it is of study {found!r:.40}, asked for was {study_id!r}")]
