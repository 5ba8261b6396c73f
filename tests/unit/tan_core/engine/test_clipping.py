"""Rules of clipping: each bounds the sum, or is kept away from whatever is private."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tan_core.engine import clipped_sum
from tan_core.engine.clipping import automatic_clipping, clipping_rule
from tan_core.errors import UnaccountedError
from tan_core.execution import Simulation
from tan_core.spec.train import TrainerConfig
from tests.unit.tan_core.engine.support import make_run, make_trainer, run, vector

norms = st.floats(0, 1e30)
clip_norms = st.floats(1e-6, 1e6)
stabilities = st.floats(1e-6, 1e6)


def rule(name: str, stability: float = 0.01):
    return clipping_rule(
        TrainerConfig.model_validate({"clipping": name, "clipping_stability": stability})
    )


def weight(name: str, norm: float, clip_norm: float, stability: float = 0.01) -> float:
    norms_B = torch.tensor([norm], dtype=torch.float64)
    return float(rule(name, stability)(norms_B, clip_norm))


def small_model() -> nn.Linear:
    model = nn.Linear(5, 3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
    return model


def batch(count: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    scales = torch.logspace(-4, 2, count)[:, None]
    return torch.randn(count, 5, generator=generator) * scales, torch.arange(count) % 3


def gradients(model: nn.Module) -> list[torch.Tensor]:
    """One backward pass per example."""
    found = []
    for x, label in zip(*batch(), strict=True):
        loss = functional.cross_entropy(model(x[None]), label[None])
        found.append(
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())])
        )
    return found


class TestRule:
    @given(norm=norms, clip_norm=clip_norms, stability=stabilities)
    @pytest.mark.parametrize("name", ["per_example", "automatic"])
    def test_no_gradient_is_longer_than_the_clip_norm(
        self, name: str, norm: float, clip_norm: float, stability: float
    ) -> None:
        assert weight(name, norm, clip_norm, stability) * norm <= clip_norm * (1 + 1e-15)

    @given(norm=norms, clip_norm=clip_norms)
    def test_per_example_leaves_what_is_short_and_shortens_the_rest(
        self, norm: float, clip_norm: float
    ) -> None:
        expected = 1.0 if norm <= clip_norm else clip_norm / norm

        assert weight("per_example", norm, clip_norm) == pytest.approx(expected)

    def test_automatic_makes_gradients_far_above_the_stability_equally_long(self) -> None:
        lengths = [weight("automatic", norm, 0.5) * norm for norm in (1e3, 1e6, 1e9)]

        assert lengths == pytest.approx([0.5] * 3, rel=1e-4)

    def test_automatic_keeps_a_zero_gradient_at_zero_with_a_finite_weight(self) -> None:
        assert weight("automatic", 0.0, 0.5, 0.01) == pytest.approx(50)

    @given(norm=norms, clip_norm=clip_norms)
    def test_none_leaves_every_gradient(self, norm: float, clip_norm: float) -> None:
        assert weight("none", norm, clip_norm) == 1


class TestSum:
    @pytest.mark.parametrize(
        ("name", "weigh"),
        [
            ("per_example", lambda n: 1.0 if n <= 0.3 else 0.3 / n),
            ("automatic", lambda n: 0.3 / (n + 0.01)),
            ("none", lambda n: 1.0),
        ],
    )
    @pytest.mark.parametrize("microbatch_size", [1, 4, 256])
    def test_it_is_that_of_one_backward_pass_per_example(
        self, name: str, weigh, microbatch_size: int
    ) -> None:
        model = small_model()
        expected = sum(g * weigh(float(g.norm())) for g in gradients(model))

        found = clipped_sum(
            model, *batch(), clip_norm=0.3, microbatch_size=microbatch_size, rule=rule(name)
        )

        assert torch.allclose(found.sum, expected, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("name", ["per_example", "automatic"])
    @given(clip_norm=st.floats(1e-3, 1e3), left_out=st.integers(0, 5))
    @settings(max_examples=30)
    def test_leaving_out_one_example_moves_it_by_at_most_the_clip_norm(
        self, name: str, clip_norm: float, left_out: int
    ) -> None:
        inputs, labels = batch()
        kept = torch.arange(6) != left_out

        whole, fewer = (
            clipped_sum(small_model(), x, y, clip_norm=clip_norm, rule=rule(name)).sum.double()
            for x, y in ((inputs, labels), (inputs[kept], labels[kept]))
        )

        assert float((whole - fewer).norm()) <= clip_norm * (1 + 1e-5)

    @pytest.mark.parametrize("margin", [90.0, 100.0, 200.0])
    def test_an_example_without_a_gradient_is_a_number_under_the_least_stability(
        self, margin: float
    ) -> None:
        """Its weight was infinite, and the weights of the model said by no number that it was there."""
        model, (inputs, labels) = small_model(), batch()
        with torch.no_grad():
            model.weight.zero_()
            model.bias.copy_(torch.tensor([margin, 0, 0]))
        least = partial(automatic_clipping, stability=5e-324)

        found = clipped_sum(model, inputs[:1], labels[:1], clip_norm=0.3, rule=least).sum

        assert float(found.double().norm()) <= 0.3 * (1 + 1e-5)

    @pytest.mark.parametrize("name", ["per_example", "automatic", "none"])
    def test_a_poisoned_example_contributes_nothing(self, name: str) -> None:
        inputs, labels = batch()
        poisoned = inputs.clone()
        poisoned[2] = math.nan
        kept = torch.arange(6) != 2

        found = clipped_sum(small_model(), poisoned, labels, clip_norm=0.3, rule=rule(name))
        clean = clipped_sum(
            small_model(), inputs[kept], labels[kept], clip_norm=0.3, rule=rule(name)
        )

        assert torch.allclose(found.sum, clean.sum, rtol=1e-6)


class TestUnclipped:
    def test_a_simulation_may_train_without_clipping_and_has_no_epsilon(self) -> None:
        simulation = Simulation.of(make_run(clip_norm=1e-3), expected_batch_size=6)
        clipped, unclipped = (
            run(make_trainer(simulation, config={"clipping": name}), 1)
            for name in ("per_example", "none")
        )

        assert not torch.allclose(vector(clipped), vector(unclipped))
        with pytest.raises(UnaccountedError):
            _ = simulation.epsilon
