"""The audit lets good models pass and finds what no rule about layers can see."""

import doctest
from importlib import import_module

import pytest
import torch
from torch import nn

from tan_core import models
from tan_core.engine import bookkeeping
from tan_core.engine.audit import audit
from tan_core.errors import ParameterError
from tests.support.models import SMALL_MODELS


class Mixes(nn.Module):
    """No layer of its own, and yet no example is alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - 0.5 * x.mean(0)


class UsesAWeightTwice(nn.Module):
    """Once by its layer, once behind its back."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) @ self.layer.weight


def make_batch(shape, examples: int = 6, views: int = 2):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(examples * views, *shape, generator=generator)
    return inputs, torch.randint(0, 3, (examples,), generator=generator)


def run_audit(model: nn.Module, inputs, labels, *, num_examples: int = 3) -> float:
    generator = torch.Generator().manual_seed(0)
    views = max(1, len(inputs) // max(1, len(labels)))
    return audit(model, inputs, labels, views, num_examples=num_examples, generator=generator)


class TestAudit:
    @pytest.mark.parametrize("name", SMALL_MODELS)
    def test_every_registered_model_passes(self, name: str) -> None:
        generator = torch.Generator().manual_seed(0)
        model = models.build(
            SMALL_MODELS[name], shape=(1, 8, 8), num_classes=3, generator=generator
        )

        assert run_audit(model, *make_batch((1, 8, 8))) < 1e-3

    @pytest.mark.parametrize(
        "model",
        [nn.Sequential(nn.Linear(4, 4), Mixes(), nn.Linear(4, 3)), UsesAWeightTwice()],
        ids=["mixed", "twice"],
    )
    def test_a_model_that_the_rules_let_through_is_caught(self, model: nn.Module) -> None:
        assert bookkeeping.supports(model)

        with pytest.raises(RuntimeError, match="cannot be trained privately"):
            run_audit(model, *make_batch((4,)))

    def test_an_example_that_clipping_leaves_out_passes(self) -> None:
        inputs, labels = make_batch((4,), views=1)
        inputs[:] = float("nan")

        assert run_audit(nn.Linear(4, 3), inputs, labels) == 0

    def test_an_empty_batch_passes(self) -> None:
        inputs, labels = make_batch((4,), examples=0)

        assert run_audit(nn.Linear(4, 3), inputs, labels) == 0

    def test_no_example_at_all_is_refused(self) -> None:
        with pytest.raises(ParameterError, match="num_examples"):
            run_audit(nn.Linear(4, 3), *make_batch((4,)), num_examples=0)

    def test_the_example_in_its_docstring_is_true(self) -> None:
        results = doctest.testmod(import_module("tan_core.engine.audit"))

        assert results.attempted
        assert not results.failed
