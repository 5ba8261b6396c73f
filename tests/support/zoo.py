"""A network as people have them: batch normalisation, a residual branch that is added in place, dropout."""

import torch
from torch import Tensor, nn


class Network(nn.Module):
    """Reads [B, C, H, W]."""

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, 32, 3, padding=1), nn.BatchNorm2d(32))
        self.branch = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32))
        self.pool, self.drop = nn.AdaptiveAvgPool2d(4), nn.Dropout(0.2)
        self.head = nn.ModuleDict({"fc": nn.Linear(512, num_classes)})

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        y = self.branch(x)
        y += x
        return self.head["fc"](self.drop(self.pool(y.relu_()).flatten(1)))


def network(*, shape: list[int], num_classes: int) -> nn.Module:
    """What a study names."""
    return Network(shape[0], num_classes)
