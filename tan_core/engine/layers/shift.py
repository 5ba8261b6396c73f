"""Layers that add a learned tensor to every example: position embeddings."""

# Shape legend: B = examples, K = views of each, V = B * K, T = positions, D = width.
from torch import Tensor

from tan_core.engine.layers.base import LayerGradients, squared_norms
from tan_core.models.position_embedding import PositionEmbedding


def position_embedding(
    layer: PositionEmbedding, _a: Tensor, g: Tensor, views: int
) -> LayerGradients:
    """The gradient of an example is the output gradient itself, summed over the views."""
    rows_BP = g.unflatten(0, (-1, views)).sum(1).flatten(1)
    shape = layer.weight.shape
    return LayerGradients(
        squared_norms(rows_BP), lambda weights_B: {"weight": (weights_B @ rows_BP).view(shape)}
    )
