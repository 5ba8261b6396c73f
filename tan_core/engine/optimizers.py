"""Optimisers over one flat vector. They only see the noisy gradient: post-processing, free of cost."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from tan_core.spec.train import Optimizer, TrainerConfig


class FlatOptimizer(Protocol):
    """One update of the flat parameters in place."""

    def update(
        self, parameters: Tensor, gradient: Tensor, *, learning_rate: float, step: int
    ) -> None:
        """Move ``parameters`` by one step; ``gradient`` may be overwritten.

        Args:
            parameters: [P].
            gradient: [P], noisy and divided.
            learning_rate: of this step.
            step: updates before this one.
        """
        ...

    def state(self) -> Mapping[str, Tensor]:
        """Everything that the next update depends on beside ``step``, by name."""
        ...


def make_optimizer(config: TrainerConfig, like: Tensor) -> FlatOptimizer:
    """The optimiser of ``config`` for parameters ``like``, in its initial state.

    References:
        The updates are those of ``torch.optim.SGD``, ``Adam`` and ``AdamW``. Loshchilov and Hutter
        (2019) on the weight decay of the last.
    """
    if config.optimizer is Optimizer.SGD:
        return Sgd(config, like)
    return Adam(config, like)


class Sgd:
    """Gradient descent, with dampened heavy-ball momentum when ``momentum`` is above 0."""

    def __init__(self, config: TrainerConfig, like: Tensor) -> None:
        self._momentum = config.momentum
        self._dampening = config.dampening
        self._weight_decay = config.weight_decay
        self._velocity = torch.zeros_like(like) if config.momentum else None

    def update(
        self, parameters: Tensor, gradient: Tensor, *, learning_rate: float, step: int
    ) -> None:
        """Move by the velocity: ``momentum`` times itself plus ``1 - dampening`` times the gradient."""
        if self._weight_decay:
            gradient.add_(parameters, alpha=self._weight_decay)
        if self._velocity is not None:
            # The first velocity is the gradient itself, undampened.
            weight = 1 - self._dampening if step else 1
            gradient = self._velocity.mul_(self._momentum).add_(gradient, alpha=weight)
        parameters.sub_(gradient, alpha=learning_rate)

    def state(self) -> Mapping[str, Tensor]:
        """The velocity, where there is momentum."""
        return {} if self._velocity is None else {"velocity": self._velocity}


class Adam:
    """Adam with bias correction; a configured momentum above 0 replaces ``beta1``."""

    def __init__(self, config: TrainerConfig, like: Tensor) -> None:
        self._betas = (config.momentum or config.beta1, config.beta2)
        self._epsilon = config.adam_epsilon
        self._weight_decay = config.weight_decay
        self._is_decoupled = config.optimizer is Optimizer.ADAMW
        self._first = torch.zeros_like(like)
        self._second = torch.zeros_like(like)

    def update(
        self, parameters: Tensor, gradient: Tensor, *, learning_rate: float, step: int
    ) -> None:
        """One Adam step on the noisy gradient."""
        first, second = self._betas
        count = step + 1
        if self._weight_decay and self._is_decoupled:
            parameters.mul_(1 - learning_rate * self._weight_decay)
        elif self._weight_decay:
            gradient.add_(parameters, alpha=self._weight_decay)
        self._first.lerp_(gradient, 1 - first)
        self._second.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        scale = (self._second / (1 - second**count)).sqrt_().add_(self._epsilon)
        parameters.addcdiv_(self._first, scale, value=-learning_rate / (1 - first**count))

    def state(self) -> Mapping[str, Tensor]:
        """Both moments."""
        return {"first_moment": self._first, "second_moment": self._second}
