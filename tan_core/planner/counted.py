"""What the hits on a split count together, by what a study is scored by."""

import math
from dataclasses import dataclass
from typing import Self

from tan_core.spec.study import Metric, StudySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A split as a score sees it, from the stated shares of the classes: nothing is counted in the records.

    Args:
        whole: what all hits count together, where one on the rarest class counts 1 and no other more.
        effective: records that an accuracy would need to be drawn as loudly.
    """

    whole: float
    effective: float

    @classmethod
    def of(cls, num_units: int, spec: StudySpec) -> Self:
        """A split of so many units, as this study is scored."""
        return cls.by(num_units, spec.search.metric, spec.train.class_shares)

    @classmethod
    def by(cls, num_units: int, metric: Metric, class_shares: list[float] | None) -> Self:
        """The same of a metric and shares in any unit; without shares all records count alike.

        Example:
            >>> found = Counted.by(10_000, Metric.BALANCED_ACCURACY, [98, 2])
            >>> round(found.whole), round(found.effective)
            (400, 784)
        """
        if metric is Metric.ACCURACY or class_shares is None:
            return cls(whole=num_units, effective=num_units)
        total, classes = sum(class_shares), len(class_shares)
        return cls(
            whole=num_units * classes * min(class_shares) / total,
            effective=num_units * classes**2 / sum(total / share for share in class_shares),
        )

    @property
    def deviations(self) -> float:
        """What the draw of the split does to the count, in deviations of one record's being told right."""
        return self.whole / math.sqrt(self.effective) if self.effective else 0.0
