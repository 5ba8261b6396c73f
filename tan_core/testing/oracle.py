"""The definition of a clipped sum, written out: one backward pass of plain autograd per example."""

# Shape legend: B = examples, K = views of each, P = trainable parameters.
import torch
from torch import Tensor, nn
from torch.nn import functional


def example_gradients(
    model: nn.Module, inputs: Tensor, labels: Tensor, *, views: int = 1
) -> Tensor:
    """[B, P], in the type of the parameters: of cross-entropy, the mean over an example's views.

    Shares nothing with :mod:`tan_core.engine`, and takes as long as that sounds.

    Args:
        model: gives [B * K, classes] logits; its trainable parameters in its own order are the P.
        inputs: [B * K, ...]; the K views of an example stand together.
        labels: [B], integers.
        views: K >= 1.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    views_BK = inputs.unflatten(0, (len(labels), views))
    # Twice, for the mean is the same: alone, a view has another way back through some norms of torch 2.13.
    if views == 1:
        views_BK = views_BK.repeat_interleave(2, 1)
    rows = [
        torch.cat(
            [
                gradient.flatten()
                for gradient in torch.autograd.grad(
                    functional.cross_entropy(model(own), label.expand(len(own))),
                    parameters,
                    materialize_grads=True,
                    allow_unused=True,
                )
            ]
        )
        for own, label in zip(views_BK, labels, strict=True)
    ]
    return (
        torch.stack(rows)
        if rows
        else parameters[0].new_zeros(0, sum(map(Tensor.numel, parameters)))
    )


def clipped(gradients_BP: Tensor, clip_norm: float) -> Tensor:
    """[P]: the sum of the rows, each of a norm of ``clip_norm`` at most."""
    norms_B = gradients_BP.norm(dim=1).clamp_min(torch.finfo(gradients_BP.dtype).tiny)
    return (clip_norm / norms_B).clamp_max(1) @ gradients_BP
