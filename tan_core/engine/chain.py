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
from tan_core.engine.layers import is_changed_both_ways
from tan_core.engine.units import Unit
from tan_core.engine.ways import Passed, Prepare, Way, way_through


@dataclass(frozen=True, slots=True)
class _Link:
    layer: nn.Module
    prepare: Prepare | None
    """None of a layer without a way."""
    unit: Unit | None
    """None of a layer that is not trained."""


@dataclass(frozen=True, slots=True)
class Run:
    """One way there."""

    logits: Tensor
    """[V, ...]."""
    passed: list[tuple[_Link, Tensor | None, Passed]]
    """From the first trained layer on: what entered each, if its gradients are made of it, and what became of it."""


class Seen(NamedTuple):
    """One unit on the way back."""

    unit: Unit
    entered: Tensor | None
    """None where the unit does not read it."""
    gradient: Tensor
    """Of what left it."""
    passed: Passed
    """Its sums are filled where a gradient went back through it."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The layers of a model that is a chain."""

    model: nn.Module
    before: Sequence[_Link]
    """Ahead of the first layer that is trained: no gradient goes there."""
    links: Sequence[_Link]

    @classmethod
    def of(cls, model: nn.Module, units: Sequence[Unit]) -> "Chain | None":
        """The chain of a model; None where it is none."""
        _, layers = taken_apart(model)
        by_layer = {unit.layer: unit for unit in units if unit.is_plain}
        at = next((at for at, layer in enumerate(layers) if layer in by_layer), len(layers))
        every = [_Link(layer, way_through(layer), by_layer.get(layer)) for layer in layers]
        before, links = every[:at], every[at:]
        is_once = len({id(link.layer) for link in links}) == len(links)
        trained = sum(link.unit is not None for link in links)
        is_whole = trained == len(units) > 0 and all(link.prepare for link in links)
        is_in_place = any(
            getattr(inner, "inplace", False) for layer in layers[:at] for inner in layer.modules()
        )
        return cls(model, before, links) if is_once and is_whole and not is_in_place else None

    @property
    def is_unchanged(self) -> bool:
        """Whether nobody listens to its layers, has put others in their place, or replaced what they do."""
        containers, layers = taken_apart(self.model)
        if layers != [link.layer for link in (*self.before, *self.links)]:
            return False
        return not any(map(is_changed_both_ways, (*containers, *layers)))

    def ways(self) -> list[Way | None]:
        """Through each layer, while the parameters stay as they are; None where it is called as it is."""
        return [link.prepare and link.prepare() for link in (*self.before, *self.links)]

    def there(self, ways: Sequence[Way | None], inputs: Tensor) -> Run | None:
        """From the inputs, [V, ...], to the logits; None where a way cannot read what reaches it."""
        if not native.accepts(inputs):
            return None
        x, first = inputs, len(self.before)
        for link, way in zip(self.before, ways[:first], strict=True):
            run = way and way(x)
            x = run.output if run else link.layer(x)
        # What is not trained may make anything of its inputs.
        if not (isinstance(x, Tensor) and len(x) == len(inputs)):  # pyright: ignore[reportUnnecessaryIsInstance]
            return None
        passed: list[tuple[_Link, Tensor | None, Passed]] = []
        for link, way in zip(self.links, ways[first:], strict=True):
            run = way and way(x)
            if run is None:
                return None
            passed.append((link, x if link.unit and link.unit.reads_inputs else None, run))
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


def taken_apart(model: nn.Module) -> tuple[list[nn.Module], list[nn.Module]]:
    """Sequences, and the layers in them in the order in which they run."""
    if type(model) is not nn.Sequential:
        return [], [model]
    containers: list[nn.Module] = [model]
    layers: list[nn.Module] = []
    for inner in model:
        of_inner, layers_of_inner = taken_apart(inner)
        containers += of_inner
        layers += layers_of_inner
    return containers, layers
