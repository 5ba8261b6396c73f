"""The trainable parameters of a model as one vector."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tan_core.errors import ParameterError


class FlatParameters:
    """One contiguous vector; the model's trainable parameters become views into it.

    Args:
        model: its parameters keep their values and names.
    """

    def __init__(self, model: nn.Module) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.layout: tuple[tuple[str, tuple[int, ...]], ...] = tuple(
            (name, tuple(p.shape)) for name, p in named
        )
        self.vector = torch.cat([p.detach().reshape(-1) for _, p in named])
        for (_, parameter), view in zip(named, self.views(self.vector).values(), strict=True):
            parameter.data = view
        self._places = {name: parameter.data_ptr() for name, parameter in named}

    def check(self, model: nn.Module) -> None:
        """Refuse a model that has other parameters by now: it would be read with weights that nothing trains.

        Raises:
            ParameterError: one is no view of the vector any more; the message names it.
        """
        own = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
        for name, place in self._places.items():
            if own.get(name) != place:
                raise ParameterError(
                    f"parameter {name!r} of the model is no longer the one that is trained: the model was moved, converted or "
                    "given another one after its trainer was made; do so before, and load values without assign=True",
                    field="model",
                )

    def views(self, vector: Tensor) -> Mapping[str, Tensor]:
        """``vector`` cut into the parameters' shapes, by name."""
        sizes = [torch.Size(shape).numel() for _, shape in self.layout]
        pieces = vector.split(sizes)
        return {
            name: piece.view(shape)
            for (name, shape), piece in zip(self.layout, pieces, strict=True)
        }
