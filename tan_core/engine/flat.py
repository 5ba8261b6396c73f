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
            ParameterError: one is no view of the vector any more, or would be trained and is none; the message names it.
        """
        own = {name: p.data_ptr() for name, p in model.named_parameters() if p.requires_grad}
        if own != self._places:
            places = self._places
            name = next(each for each in {**places, **own} if own.get(each) != places.get(each))
            raise ParameterError(
                f"parameter {name!r} of the model is no longer what it was when its trainer was made: the model was moved, converted, "
                "frozen in part or given another one since; do so before, and load values without assign=True",
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
