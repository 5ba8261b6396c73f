"""Each optimiser against torch's own, fed with the same gradients and learning rates."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tan_core.engine.optimizers import make_optimizer
from tan_core.spec.train import TrainerConfig

STEPS = 5
fractions = st.floats(0, 0.99)
decays = st.one_of(st.just(0.0), st.floats(1e-3, 0.5))
Reference = Callable[[list[torch.Tensor]], torch.optim.Optimizer]


def gradients() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return list(torch.randn(STEPS, 7, generator=generator, dtype=torch.float64))


def start() -> torch.Tensor:
    return torch.linspace(-2, 3, 7, dtype=torch.float64)


def ours(**fields: Any) -> torch.Tensor:
    parameters = start()
    optimizer = make_optimizer(TrainerConfig.model_validate(fields), parameters)
    for step, gradient in enumerate(gradients()):
        optimizer.update(parameters, gradient, learning_rate=0.3 / (1 + step), step=step)
    return parameters


def theirs(make_reference: Reference) -> torch.Tensor:
    parameter = start().requires_grad_()
    reference = make_reference([parameter])
    for step, gradient in enumerate(gradients()):
        reference.param_groups[0]["lr"] = 0.3 / (1 + step)
        parameter.grad = gradient
        reference.step()
    return parameter.detach()


class TestSgd:
    @given(momentum=fractions, dampening=fractions, weight_decay=decays)
    def test_updates_are_those_of_torch(self, momentum, dampening, weight_decay) -> None:
        fields = {"momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}

        expected = theirs(lambda p: torch.optim.SGD(p, lr=1, **fields))

        assert torch.allclose(ours(**fields), expected, rtol=1e-10, atol=1e-12)

    @given(dampening=fractions)
    def test_dampening_of_no_momentum_changes_nothing(self, dampening) -> None:
        assert torch.equal(ours(dampening=dampening), ours())


class TestAdam:
    @pytest.mark.parametrize(
        ("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)]
    )
    @given(beta1=fractions, beta2=fractions, epsilon=st.floats(1e-8, 1), weight_decay=decays)
    def test_updates_are_those_of_torch(
        self, name, kind, beta1, beta2, epsilon, weight_decay
    ) -> None:
        fields = {"beta1": beta1, "beta2": beta2, "adam_epsilon": epsilon}

        expected = theirs(
            lambda p: kind(p, betas=(beta1, beta2), eps=epsilon, weight_decay=weight_decay)
        )

        found = ours(optimizer=name, weight_decay=weight_decay, **fields)
        assert torch.allclose(found, expected, rtol=1e-8, atol=1e-10)

    def test_a_momentum_replaces_the_first_beta(self) -> None:
        assert torch.equal(
            ours(optimizer="adam", momentum=0.5, beta1=0.2), ours(optimizer="adam", beta1=0.5)
        )

    def test_without_weight_decay_both_are_one(self) -> None:
        assert torch.equal(ours(optimizer="adam"), ours(optimizer="adamw"))


class TestState:
    @pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
    def test_it_is_all_that_the_next_update_depends_on(self, optimizer: str) -> None:
        config = TrainerConfig.model_validate(
            {"optimizer": optimizer, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}
        )
        parameters = start()
        first, second = make_optimizer(config, parameters), make_optimizer(config, parameters)
        before, after = gradients()[:2]
        first.update(parameters, before, learning_rate=0.1, step=0)
        resumed = parameters.clone()

        for name, tensor in second.state().items():
            tensor.copy_(first.state()[name])
        first.update(parameters, after.clone(), learning_rate=0.1, step=1)
        second.update(resumed, after.clone(), learning_rate=0.1, step=1)

        assert torch.equal(parameters, resumed)
