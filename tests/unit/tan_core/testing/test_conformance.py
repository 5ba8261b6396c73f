"""Each of the tests that are shipped for models fails where it should."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core.engine import ClippedSum, clipped_sum
from tan_core.errors import ParameterError
from tan_core.testing import conformance
from tan_core.testing.conformance import ModelConformance
from tan_core.testing.tiny import NUM_CLASSES, SHAPE, tiny_model


class Tiny(ModelConformance):
    shape, num_classes = SHAPE, NUM_CLASSES

    def make_model(self) -> nn.Module:
        return tiny_model()


class Mixing(nn.Module):
    """Takes the mean of the batch off."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer((x - x.mean(0)).flatten(1))


class Behind(nn.Module):
    """Uses a weight outside of the layer that has it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(64, 64), nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        once = self.layer(x.flatten(1)).tanh()
        return self.last(functional.linear(once, self.layer.weight))


def of(model: Callable[[], nn.Module]) -> ModelConformance:
    tested = Tiny()
    tested.make_model = model  # type: ignore[method-assign]
    return tested


@pytest.mark.parametrize(
    "model",
    [Mixing, Behind, lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 3))],
)
def test_a_model_that_cannot_be_private_is_refused(model: Callable[[], nn.Module]) -> None:
    with pytest.raises(ParameterError):
        of(model).test_it_is_accepted_for_private_training()


@pytest.mark.parametrize("model", [Mixing, Behind])
def test_where_examples_meet_or_gradients_are_missing_norms_differ(
    model: Callable[[], nn.Module],
) -> None:
    with pytest.raises(AssertionError, match="differ: 1 views of each, contiguous"):
        of(model).test_each_example_is_clipped_by_the_norm_of_its_own_gradient()


Fault = Callable[[ClippedSum, Tensor, dict[str, Any]], Tensor]
FAULTS: dict[str, tuple[Fault, str]] = {
    "test_each_example_is_clipped_by_the_norm_of_its_own_gradient": (
        lambda found, inputs, given: found.sum * 1.001,
        "the sum is off",
    ),
    "test_one_example_moves_the_sum_by_at_most_the_clipping_norm": (
        lambda found, inputs, given: found.sum * (1 + 1e-3 * len(inputs)),
        "moved the sum by 1.0",
    ),
    "test_microbatches_change_nothing": (
        lambda found, inputs, given: found.sum * (1 + 1e-5 * given.get("microbatch_size", 0)),
        "are off by",
    ),
    "test_an_empty_batch_adds_nothing": (
        lambda found, inputs, given: found.sum + (len(inputs) == 0),
        "adds something",
    ),
    "test_an_example_that_is_not_finite_adds_nothing": (
        lambda found, inputs, given: found.sum + 0.1 * float(inputs.isnan().any()),
        "it moved the sum by",
    ),
}


@pytest.mark.parametrize("test", FAULTS)
def test_a_fault_of_the_engine_is_seen(test: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, told = FAULTS[test]

    def faulty(model: nn.Module, inputs: Tensor, labels: Tensor, **given: Any) -> ClippedSum:
        found = clipped_sum(model, inputs, labels, **given)
        return replace(found, sum=fault(found, inputs, given))

    getattr(Tiny(), test)()
    monkeypatch.setattr(conformance, "clipped_sum", faulty)
    with pytest.raises(AssertionError, match=told):
        getattr(Tiny(), test)()


def test_no_test_is_left_out() -> None:
    shipped = {name for name in vars(ModelConformance) if name.startswith("test_")}
    assert shipped == {*FAULTS, "test_it_is_accepted_for_private_training"}


def test_a_backbone_in_sixteen_bits_stays_as_it_is() -> None:
    def model() -> nn.Module:
        backbone = nn.Linear(64, 16, dtype=torch.bfloat16).requires_grad_(False)

        class Coarse(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.backbone, self.head = backbone, nn.Linear(16, 3)

            def forward(self, x: Tensor) -> Tensor:
                return self.head(self.backbone(x.flatten(1).bfloat16()).float().tanh())

        return Coarse()

    tested = of(model)
    for name in (*FAULTS, "test_it_is_accepted_for_private_training"):
        getattr(tested, name)()


def test_a_subclass_without_a_model_is_told_so() -> None:
    with pytest.raises(NotImplementedError, match="make_model"):
        ModelConformance().test_it_is_accepted_for_private_training()
