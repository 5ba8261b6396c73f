"""Models that are layers one after the other: there and back by hand, without autograd.

The same numbers as by autograd, to the last bit, in three quarters of the time where batches are small, as those of
simulations are. A model that does more, by a branch, a hook or a layer without a way of its own, is none.
"""

# Shape legend: V = views.
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from tan_core.engine import native
from tan_core.engine.units import Unit
from tan_core.engine.ways import Passed, Way, has_way, way_through

_HOOKS = (
    "forward",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
"""What may make a call of a layer, or a gradient through it, more than its class says."""


@dataclass(frozen=True, slots=True)
class _Link:
    layer: nn.Module
    unit: Unit | None
    """None of a layer that is not trained."""


@dataclass(frozen=True, slots=True)
class Run:
    """One way there."""

    logits: Tensor
    """[V, ...]."""
    passed: list[tuple[_Link, Tensor, Passed]]
    """From the first trained layer on: what entered each, and what became of it."""


class Seen(NamedTuple):
    """One unit on the way back."""

    unit: Unit
    entered: Tensor
    gradient: Tensor
    """Of what left it."""
    passed: Passed
    """Its sums are filled where a gradient went back through it."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The layers of a model that is a chain."""

    model: nn.Module
    before: Sequence[nn.Module]
    """Ahead of the first layer that is trained: no gradient goes there."""
    links: Sequence[_Link]

    @classmethod
    def of(cls, model: nn.Module, units: Sequence[Unit]) -> "Chain | None":
        """The chain of a model; None where it is none."""
        _, layers = _taken_apart(model)
        by_layer = {unit.layer: unit for unit in units if unit.is_plain}
        at = next((at for at, layer in enumerate(layers) if layer in by_layer), len(layers))
        links = [_Link(layer, by_layer.get(layer)) for layer in layers[at:]]
        is_once = len({id(link.layer) for link in links}) == len(links)
        trained = sum(link.unit is not None for link in links)
        is_whole = trained == len(units) > 0 and all(has_way(link.layer) for link in links)
        is_in_place = any(
            getattr(inner, "inplace", False) for layer in layers[:at] for inner in layer.modules()
        )
        return cls(model, layers[:at], links) if is_once and is_whole and not is_in_place else None

    @property
    def is_unchanged(self) -> bool:
        """Whether nobody listens to its layers, has put others in their place, or replaced what they do."""
        containers, layers = _taken_apart(self.model)
        if layers != [*self.before, *(link.layer for link in self.links)]:
            return False
        every = (*containers, *layers)
        return not any(vars(layer).get(name) for layer in every for name in _HOOKS)

    def ways(self) -> list[Way]:
        """Through each link, while the parameters stay as they are."""
        return [way_through(link.layer) for link in self.links]

    def there(self, ways: Sequence[Way], inputs: Tensor) -> Run | None:
        """From the inputs, [V, ...], to the logits; None where a way cannot read what reaches it."""
        if not native.accepts(inputs):
            return None
        x = inputs
        for layer in self.before:
            run = way_through(layer)(x) if has_way(layer) else None
            x = layer(x) if run is None else run.output
        # What is not trained may make anything of its inputs.
        if not (isinstance(x, Tensor) and len(x) == len(inputs)):  # pyright: ignore[reportUnnecessaryIsInstance]
            return None
        passed: list[tuple[_Link, Tensor, Passed]] = []
        for link, way in zip(self.links, ways, strict=True):
            run = way(x)
            if run is None:
                return None
            passed.append((link, x, run))
            x = run.output
        return Run(x, passed)

    def back(self, run: Run, g: Tensor) -> Iterator[Seen]:
        """What the books need of each unit, last layers first; what the run holds goes as it is read.

        Args:
            run: of this chain; it is empty afterwards.
            g: by its logits, [V, ...].
        """
        while run.passed:
            link, entered, through = run.passed.pop()
            following = through.back(g, *through.kept) if run.passed else g
            if link.unit is not None:
                yield Seen(link.unit, entered, g, through)
            g = following


def _taken_apart(model: nn.Module) -> tuple[list[nn.Module], list[nn.Module]]:
    """Sequences, and the layers in them in the order in which they run."""
    if type(model) is not nn.Sequential:
        return [], [model]
    containers: list[nn.Module] = [model]
    layers: list[nn.Module] = []
    for inner in model:
        of_inner, layers_of_inner = _taken_apart(inner)
        containers += of_inner
        layers += layers_of_inner
    return containers, layers
