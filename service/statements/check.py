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


def check_public(statement: Mapping[str, Any], *, public: bool, sha256: str) -> Check:
    """Of a statement that names no ledger: whether its data have none.

    Args:
        statement: one without a ``ledger``.
        public: whether its dataset is registered so.
        sha256: of that dataset's content.
    """
    about = statement["dataset"]
    if not public:
        return Check(
            "ledger", False, f"it names none, and dataset {about['name']!r:.40} is private"
        )
    if about.get("sha256") != sha256:
        return Check("ledger", False, "it names none, and its data are not those that are public")
    return Check("ledger", True, "none: the data is public")
