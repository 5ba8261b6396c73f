"""What a verification says, thing by thing. Apart from it, for who shows a verdict need not price."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked."""

    name: str
    is_good: bool
    detail: str
