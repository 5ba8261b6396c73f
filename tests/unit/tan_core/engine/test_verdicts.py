"""One verdict for simulations of one architecture, and none for anything that may compute otherwise."""

import copy
import doctest
from functools import partial
from importlib import import_module

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from tan_core import models
from tan_core.engine import trainer, verdicts
from tan_core.engine.verdicts import architecture, check_once
from tan_core.errors import ParameterError
from tan_core.execution import Simulation
from tan_core.spec.models import MODEL_TYPES
from tests.unit.tan_core.engine.support import make_run, make_trainer


class Scales(nn.Module):
    """A model with an attribute, a buffer, a frozen layer and a function."""

    def __init__(self, by: object = 1.0, mask=(1.0, 0.0), function=torch.tanh) -> None:
        super().__init__()
        self.by, self.function = by, function
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("mask", torch.tensor(mask))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.function(self.first(x) * self.by))


class Mixes(nn.Linear):
    """A layer that subtracts the mean over the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x - x.mean(0))


def frozen(model: Scales) -> Scales:
    model.first.requires_grad_(False)
    return model


def shared(model: Scales) -> Scales:
    model.second.weight = model.first.weight
    return model


def same_layer(model: Scales) -> Scales:
    model.second = model.first
    return model


def hooked(model: Scales) -> Scales:
    model.first.register_forward_hook(mixed)
    return model


def replaced(model: Scales) -> Scales:
    model.first.forward = mixed
    return model


def mixed(*arguments):
    return arguments[-1] - arguments[-1].mean(0)


def other_class(model: Scales) -> Scales:
    model.second = Mixes(4, 4)
    return model


def captures(value):
    return lambda x: x * value


OTHERS = {
    "attribute": Scales(2.0),
    "type of an attribute": Scales(1),
    "nested attribute": Scales({"by": [1.0, 2.0]}),
    "buffer": Scales(mask=(1.0, 1.0)),
    "function": Scales(function=torch.sigmoid),
    "captured value": Scales(function=captures(1.0)),
    "frozen": frozen(Scales()),
    "shared parameter": shared(Scales()),
    "shared layer": same_layer(Scales()),
    "hook": hooked(Scales()),
    "replaced method": replaced(Scales()),
    "class of a layer": other_class(Scales()),
    "mode": Scales().eval(),
    "type": Scales().double(),
    "weight norm": parametrizations.weight_norm(Scales().first),
}


@pytest.fixture(autouse=True)
def nothing_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "_passed", set())


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The checks that run, by name."""
    ran: list[str] = []
    for module in (verdicts, trainer):
        for name in ("check_independence", "check_coverage"):
            own = getattr(module, name)
            monkeypatch.setattr(module, name, lambda *a, n=name, f=own: (ran.append(n), f(*a)))
    return ran


class TestArchitecture:
    @pytest.mark.parametrize("name", ["linear", "mlp", "tanh-cnn", "wrn-16-4", "vit-tiny"])
    def test_models_of_one_description_are_equal_whatever_they_hold(self, name: str) -> None:
        one, other = (
            models.build(
                MODEL_TYPES[name](),
                shape=(1, 32, 32),
                num_classes=3,
                generator=torch.Generator().manual_seed(seed),
            )
            for seed in (0, 1)
        )

        assert architecture(one) is not None
        assert architecture(one) == architecture(other) == architecture(copy.deepcopy(one))

    @pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
    def test_what_may_compute_otherwise_is_not_equal(self, other: nn.Module) -> None:
        assert architecture(Scales()) == architecture(Scales())
        assert architecture(other) != architecture(Scales())

    def test_two_others_are_not_equal_either(self) -> None:
        known = [key for key in map(architecture, OTHERS.values()) if key is not None]

        assert len(set(known)) == len(known) >= len(OTHERS) - 1

    def test_values_captured_by_one_function_are_looked_at(self) -> None:
        captured = [1.0]
        model = Scales(function=captures(captured))
        before = architecture(model)

        captured[0] = 2.0

        assert architecture(model) != before

    @pytest.mark.parametrize("anything", [object(), partial(torch.tanh), [].append])
    def test_an_object_that_may_hold_anything_equals_nothing(self, anything: object) -> None:
        assert architecture(Scales(anything)) is None


def calls_itself(layer: nn.Module) -> nn.Module:
    """A local function that holds itself: a description of it would have no end."""

    def again(depth: int) -> int:
        return again(depth - 1) if depth else 0

    layer.again = again  # type: ignore[assignment]
    return layer


class TestIndescribable:
    def test_it_equals_nothing_and_fails_nobody(self) -> None:
        cyclic = nn.Linear(4, 3)
        cyclic.itself = {}  # type: ignore[assignment]
        cyclic.itself["itself"] = cyclic.itself

        assert architecture(calls_itself(nn.Linear(4, 3))) is None
        assert architecture(cyclic) is None


class TestCheckOnce:
    def test_an_equal_model_is_not_checked_again(self, checks: list[str]) -> None:
        check_once(nn.Linear(4, 3), (4,))
        check_once(nn.Linear(4, 3), (4,))

        assert checks == ["check_independence", "check_coverage"]

    @pytest.mark.parametrize(("outputs", "shape"), [(3, (2, 2)), (2, (4,))])
    def test_another_shape_or_model_is(self, checks: list[str], outputs: int, shape) -> None:
        check_once(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), (4,))
        check_once(nn.Sequential(nn.Flatten(), nn.Linear(4, outputs)), shape)

        assert len(checks) == 4

    def test_a_refusal_is_not_remembered_as_a_pass(self) -> None:
        for _ in range(2):
            with pytest.raises(ParameterError, match="mixes the examples"):
                check_once(Mixes(4, 3), (4,))

    def test_what_cannot_be_described_is_checked_every_time(self, checks: list[str]) -> None:
        model = Scales()
        model.note = object()
        check_once(model, (4,))
        check_once(model, (4,))

        assert len(checks) == 4

    def test_it_forgets_when_it_has_seen_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(verdicts, "_MOST", 2)

        for outputs in (2, 3, 4):
            check_once(nn.Linear(4, outputs), (4,))

        assert len(verdicts._passed) == 1


class TestTrainer:
    def test_simulations_of_one_model_check_it_once(self, checks: list[str]) -> None:
        execution = Simulation.of(make_run(), expected_batch_size=3)
        make_trainer(execution)
        make_trainer(execution)

        assert checks == ["check_independence", "check_coverage"]

    def test_a_private_run_always_checks(self, checks: list[str]) -> None:
        make_trainer(Simulation.of(make_run(), expected_batch_size=3))
        make_trainer(make_run())
        make_trainer(make_run())

        assert checks == ["check_independence", "check_coverage"] * 3


def test_the_examples_in_its_docstrings_are_true() -> None:
    results = doctest.testmod(import_module("tan_core.engine.verdicts"))

    assert results.attempted
    assert not results.failed
