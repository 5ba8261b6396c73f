"""Optimisers over one flat vector. They only see the noisy gradient: post-processing, free of cost."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from tan_core.spec.train import Optimizer, TrainerConfig

ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8


class FlatOptimizer(Protocol):
    """One update of the flat parameters in place."""

    def update(self, parameters: Tensor, gradient: Tensor) -> None:
        """Move ``parameters`` by one step; ``gradient`` may be overwritten."""
        ...

    def state(self) -> Mapping[str, Tensor]:
        """Everything that the next update depends on, by name."""
        ...


def make_optimizer(config: TrainerConfig, like: Tensor) -> FlatOptimizer:
    """The optimiser of ``config`` for parameters ``like``, in its initial state."""
    if config.optimizer is Optimizer.ADAM:
        return Adam(config.learning_rate, first_decay=config.momentum or ADAM_BETAS[0], like=like)
    return Sgd(config.learning_rate, momentum=config.momentum, like=like)


class Sgd:
    """Gradient descent, with heavy-ball momentum when it is above 0."""

    def __init__(self, learning_rate: float, *, momentum: float, like: Tensor) -> None:
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._velocity = torch.zeros_like(like) if momentum else None

    def update(self, parameters: Tensor, gradient: Tensor) -> None:
        """Move by the velocity, which is ``momentum`` times itself plus the gradient."""
        if self._velocity is not None:
            gradient = self._velocity.mul_(self._momentum).add_(gradient)
        parameters.sub_(gradient, alpha=self._learning_rate)

    def state(self) -> Mapping[str, Tensor]:
        """The velocity, where there is momentum."""
        return {} if self._velocity is None else {"velocity": self._velocity}


class Adam:
    """Adam with bias correction; a configured momentum above 0 replaces the first decay of 0.9."""

    def __init__(self, learning_rate: float, *, first_decay: float, like: Tensor) -> None:
        self._learning_rate = learning_rate
        self._betas = (first_decay, ADAM_BETAS[1])
        self._first = torch.zeros_like(like)
        self._second = torch.zeros_like(like)
        self._count = torch.zeros((), dtype=torch.float64)

    def update(self, parameters: Tensor, gradient: Tensor) -> None:
        """One Adam step on the noisy gradient."""
        first, second = self._betas
        self._count += 1
        count = float(self._count)
        self._first.lerp_(gradient, 1 - first)
        self._second.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        scale = (self._second / (1 - second**count)).sqrt_().add_(ADAM_EPSILON)
        parameters.addcdiv_(self._first, scale, value=-self._learning_rate / (1 - first**count))

    def state(self) -> Mapping[str, Tensor]:
        """Both moments and the number of updates."""
        return {"first_moment": self._first, "second_moment": self._second, "count": self._count}
