"""The check lets good models pass and names the parameter or layer that a bad one hides."""

import doctest
from importlib import import_module

import pytest
import torch
from torch import nn
from torch.nn import functional

from tan_core import models
from tan_core.engine.coverage import check_coverage
from tan_core.errors import ParameterError
from tan_core.models.gain import Gain
from tan_core.spec.models import MODEL_TYPES
from tests.support.models import SMALL_MODELS


class Wired(nn.Module):
    """Layers, and a forward pass that uses them as it likes."""

    def __init__(self, wiring, **layers: nn.Module) -> None:
        super().__init__()
        self.wiring = wiring
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.wiring(self, x)


BEHIND = {
    "beside-its-layer": (lambda m, x: m.gain(m.first(x)) @ m.first.weight.mT, r"'first\.weight'"),
    "behind-a-zero": (lambda m, x: m.first(x) + m.gain(x) * m.gain.weight, r"'gain\.weight'"),
    "never-called": (lambda m, x: functional.linear(m.gain(x), m.first.weight), "'first' did not"),
    "not-first": (lambda m, x: m.gain(m.first(x[None])[0]), "'first' .* first dimension"),
    "by-condition": (lambda m, x: m.first(x), "'gain' did not run"),
}


def _sorted(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    order = x[:, 0].argsort()
    return x[order], order.argsort()


def _between(m, x: torch.Tensor) -> torch.Tensor:
    """One layer gets the examples sorted, and the next one as they came."""
    rising, back = _sorted(x)
    return m.last(m.first(rising).tanh()[back])


def _throughout(m, x: torch.Tensor) -> torch.Tensor:
    rising, back = _sorted(x)
    return m.last(m.first(rising).tanh())[back]


def _by(key, *, descending: bool = False):
    """Like a recurrent layer that is given the longest examples first."""

    def wiring(m, x: torch.Tensor) -> torch.Tensor:
        order = key(x).argsort(descending=descending, stable=True)
        return m.last(m.first(x[order]).tanh())[order.argsort()]

    return wiring


REORDERED = {
    "shortest-first": _by(lambda x: (x != 0).sum(1)),
    "longest-first": _by(lambda x: (x != 0).sum(1), descending=True),
    # In this one three random examples, and four others, came as they are.
    "in-a-direction": _by(lambda x: x @ torch.tensor([-0.87, 0.64, 0.68, -2.06])),
    "turned": lambda m, x: m.last(m.first(x.flip(0)).tanh().flip(0)),
    "sorted": _between,
    "sorted-throughout": _throughout,
}


class TestCheckCoverage:
    @pytest.mark.parametrize("name", SMALL_MODELS)
    def test_every_registered_model_passes(self, name: str) -> None:
        model = models.build(
            SMALL_MODELS[name],
            shape=(1, 8, 8),
            num_classes=3,
            generator=torch.Generator().manual_seed(0),
        )

        check_coverage(model, (1, 8, 8))

    def test_a_deep_network_that_meets_a_tie_in_float32_passes(self) -> None:
        """At this seed a ReLU goes the other way in another layout: 2 % of a weight's gradient."""
        model = models.build(
            MODEL_TYPES["wrn-40-4"].model_validate({"name": "wrn-40-4"}),
            shape=(3, 8, 8),
            num_classes=10,
            generator=torch.Generator().manual_seed(0),
        )

        check_coverage(model, (3, 8, 8))

    @pytest.mark.parametrize(("wiring", "message"), BEHIND.values(), ids=BEHIND)
    def test_a_use_behind_the_layer_is_named(self, wiring, message: str) -> None:
        model = Wired(wiring, first=nn.Linear(4, 4), gain=Gain(initial=0.0))

        with pytest.raises(ParameterError, match=message) as refused:
            check_coverage(model, (4,))

        assert refused.value.field == "model"

    @pytest.mark.parametrize("wiring", REORDERED.values(), ids=REORDERED)
    @pytest.mark.parametrize("first", [nn.Linear(4, 4), nn.PReLU(4)], ids=["known", "any"])
    def test_examples_in_another_order_are_refused(self, wiring, first: nn.Module) -> None:
        """Parts of different examples would be clipped as one, and the sum of all is as it should be."""
        model = Wired(wiring, first=first, last=nn.Linear(4, 3))

        with pytest.raises(ParameterError, match="in their order, as first dimension") as refused:
            check_coverage(model, (4,))

        assert refused.value.field == "model"

    def test_a_use_behind_the_layer_is_found_where_short_examples_give_no_number(self) -> None:
        def wiring(m, x: torch.Tensor) -> torch.Tensor:
            x = x / x[:, -1:]
            return m.last(m.first(x).tanh()) + functional.linear(x, m.first.weight[:3])

        with pytest.raises(ParameterError, match=r"parameter 'first\.weight' is used outside"):
            check_coverage(Wired(wiring, first=nn.Linear(4, 4), last=nn.Linear(4, 3)), (4,))

    def test_a_model_that_torch_cannot_train_is_refused(self) -> None:
        model = Wired(
            lambda m, x: m.last(m.first(x).tanh().mul_(2)),
            first=nn.Linear(4, 4),
            last=nn.Linear(4, 2),
        )

        with pytest.raises(
            ParameterError, match=r"cannot be trained privately: .* inplace"
        ) as refused:
            check_coverage(model, (4,))

        assert refused.value.field == "model"

    def test_shared_frozen_and_repeated_layers_pass(self) -> None:
        model = Wired(
            lambda m, x: m.third(m.second(m.first(m.first(x)))),
            first=nn.Linear(4, 4),
            second=nn.Linear(4, 4),
            third=nn.Linear(4, 4).requires_grad_(False),
        )
        model.second.weight = model.first.weight

        check_coverage(model, (4,))

    def test_the_model_itself_is_left_alone(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), Gain(initial=0.0))

        check_coverage(model, (4,))

        assert not model[1].weight.any()
        assert all(parameter.grad is None for parameter in model.parameters())

    def test_the_example_in_its_docstring_is_true(self) -> None:
        results = doctest.testmod(import_module("tan_core.engine.coverage"))

        assert results.attempted
        assert not results.failed
