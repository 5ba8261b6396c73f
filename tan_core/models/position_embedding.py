"""Where in a sequence a token stands, learned."""

import torch
from torch import Tensor, nn


class PositionEmbedding(nn.Module):
    """Tokens plus one learned vector per position.

    Args:
        positions: T, length of every sequence.
        width: D, size of a token.

    Example:
        >>> PositionEmbedding(2, 3)(torch.ones(5, 2, 3)).shape
        torch.Size([5, 2, 3])
    """

    def __init__(self, positions: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(positions, width))

    def forward(self, x: Tensor) -> Tensor:
        """The shifted tokens, [V, T, D]."""
        return x + self.weight
