"""Embeddings: an example's gradient has as many rows as it has different words."""

# Shape legend: B = examples, K = views of each, T = K * positions, D = width, U = different words of
# an example, over all examples.
import torch
from torch import Tensor, nn

from tan_core.engine.layers.base import LayerGradients, as_positions, squared_norms


def is_plain(layer: nn.Module) -> bool:
    """Whether a row depends on nothing but itself, and gradients are dense."""
    return isinstance(layer, nn.Embedding) and not (
        layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse
    )


def embedding(layer: nn.Embedding, a: Tensor, g: Tensor, views: int) -> LayerGradients:
    """The row of a word sees the sum of the output gradients wherever the word stands."""
    words_BT = as_positions(a[..., None], views)[..., 0]
    g_BTD = as_positions(g, views)
    if layer.padding_idx is not None:
        g_BTD = g_BTD * (words_BT != layer.padding_idx)[..., None]
    examples = torch.arange(len(words_BT), device=a.device)
    # One number for each pair of example and word.
    pairs, place = torch.unique(
        examples[:, None] * layer.num_embeddings + words_BT, return_inverse=True
    )
    rows_UD = g.new_zeros(len(pairs), g.shape[-1]).index_add_(
        0, place.flatten(), g_BTD.flatten(0, 1)
    )
    owners_U = pairs // layer.num_embeddings
    squared_U = squared_norms(rows_UD)
    squared_B = squared_U.new_zeros(len(words_BT)).index_add_(0, owners_U, squared_U)

    def weighted_sum(weights_B: Tensor) -> dict[str, Tensor]:
        weight = rows_UD.new_zeros(layer.num_embeddings, rows_UD.shape[1])
        weighted_UD = rows_UD * weights_B[owners_U, None]
        return {"weight": weight.index_add_(0, pairs % layer.num_embeddings, weighted_UD)}

    return LayerGradients(squared_B, weighted_sum)
