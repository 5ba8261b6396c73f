"""What every accountant ends in: a privacy profile."""

from typing import Protocol


class PrivacyProfile(Protocol):
    """Delta as a function of epsilon, and back. Upper bounds, unless the maker says otherwise."""

    def delta(self, epsilon: float) -> float:
        """The least delta known to hold at an epsilon >= 0."""
        ...

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 known to hold at a delta."""
        ...
