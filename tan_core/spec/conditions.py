"""Which dimensions of a space a candidate reads, for what its others are."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tan_core.spec.fields import Place, field_of, needs_of
from tan_core.spec.models import ModelSpec
from tan_core.spec.needs import Need
from tan_core.spec.space import Scalar
from tan_core.spec.train import TrainerConfig


class Conditions:
    """What the keys of a space need of one another to be read: ``beta2`` an optimizer that has one, say.

    Args:
        keys: of the space.
        trainer: the values of fields that are not searched.
        model: whose options the keys may name.

    Example:
        >>> from tan_core.spec.models import MlpModel
        >>> conditions = Conditions(["beta2", "optimizer"], TrainerConfig(), MlpModel())
        >>> conditions.keys
        ('optimizer', 'beta2')
        >>> [conditions.is_read("beta2", {"optimizer": each}) for each in ("sgd", "adam")]
        [False, True]
    """

    def __init__(self, keys: Collection[str], trainer: TrainerConfig, model: ModelSpec) -> None:
        # What a need asks is no part of it: Tune writes its searchers down.
        self._trainer, self._model = trainer, model
        self._places = {key: field_of(key, model) for key in keys}
        self.keys = (*sorted(keys, key=lambda key: len([*self.needed(key)])),)
        """In the order in which they are asked: what others depend on comes first."""

    @property
    def deciding(self) -> list[str]:
        """The keys that decide whether another one is read."""
        asked = {other for key in self.keys for other, _ in self.needed(key)}
        return [key for key in self.keys if self._places[key] in asked]

    def is_read(self, key: str, chosen: Mapping[str, Scalar]) -> bool:
        """Whether a candidate with these values of earlier keys reads the dimension."""
        return all(need.is_met(self.value(other, chosen)) for other, need in self.needed(key))

    def needed(self, key: str) -> Iterator[tuple[Place, Need]]:
        """The fields that decide whether a dimension is read."""
        place = self._places[key]
        if place is not None:
            for need in needs_of(place, self._model, self._places.values()):
                yield (place[0], need.other), need

    def is_settled(self, place: Place, chosen: Mapping[str, Scalar]) -> bool:
        """Whether these values say what the field is: one of them does, or no key names it."""
        return all(key in chosen for key, named in self._places.items() if named == place)

    def value(self, place: Place, chosen: Mapping[str, Scalar]) -> Any:
        """What the field is in a candidate with these values."""
        for key, value in chosen.items():
            if self._places.get(key) == place:
                return value
        section, field = place
        return getattr(self._trainer if section == "train" else self._model, field)
