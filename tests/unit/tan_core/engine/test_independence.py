"""Models that look right layer by layer and are not: found on random inputs, before any data."""

import doctest
from importlib import import_module

import pytest
import torch
from torch import nn
from torch.nn import functional

from tan_core import models
from tan_core.engine.independence import check_independence
from tan_core.errors import ParameterError
from tan_core.models.gain import Gain
from tan_core.spec.models import MODEL_TYPES
from tests.unit.tan_core.engine.support import make_trainer


class Does(nn.Module):
    """A model of one linear layer, and then something."""

    def __init__(self, something, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 3), *layers)
        self.something = something

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.something(self.layers(x))


class Counts(Does):
    """Keeps the mean of what it has read."""

    def __init__(self) -> None:
        super().__init__(lambda x: x)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        self.mean.lerp_(out.detach().mean(0), 0.1)
        return out


class StartsSmall(nn.Module):
    """A branch that mixes, and adds (almost) nothing as long as its gain is (almost) zero."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.gain = Gain(initial=gain)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.gain(x - x.mean(0))


def batch_norm(x: torch.Tensor) -> torch.Tensor:
    return functional.batch_norm(x, None, None, training=True)


REFUSED = [
    (Does(lambda x: x - x.mean(0)), "mixes the examples"),
    (Does(lambda x: x / x.norm()), "mixes the examples"),
    (Does(lambda x: x.flip(0)), "mixes the examples"),
    (Does(batch_norm), "mixes the examples"),
    (Does(StartsSmall(0.0)), "mixes the examples"),
    (Does(StartsSmall(1e-6)), "mixes the examples"),
    (Does(functional.dropout), "two outputs for the same inputs"),
    (Does(lambda x: x + torch.randn(3)), "two outputs for the same inputs"),
    (Counts(), "buffer 'mean' of the model changes"),
]
IDS = [
    "mean",
    "norm",
    "order",
    "batch-norm",
    "zero-gain",
    "small-gain",
    "dropout",
    "noise",
    "buffer",
]


class TestCheckIndependence:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("name", ["linear", "mlp", "tanh-cnn", "wrn-16-4"])
    def test_a_registered_model_passes_untouched(self, name: str, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        model = models.build(
            MODEL_TYPES[name](), shape=(1, 8, 8), num_classes=3, generator=generator
        ).to(dtype)
        before = {name: value.clone() for name, value in model.state_dict().items()}

        check_independence(model, (1, 8, 8))

        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())

    @pytest.mark.parametrize(("model", "message"), REFUSED, ids=IDS)
    def test_what_no_rule_about_layers_sees_is_refused(self, model, message: str) -> None:
        with pytest.raises(ParameterError, match=message) as refused:
            check_independence(model, (1, 8, 8))

        assert refused.value.field == "model"

    @pytest.mark.parametrize(("model", "message"), REFUSED, ids=IDS)
    def test_the_trainer_asks_before_it_reads_any_data(self, model, message: str) -> None:
        with pytest.raises(ParameterError, match=message):
            make_trainer(model=model)

    def test_a_model_that_takes_its_own_weights_alone_passes(self) -> None:
        """As one that inverts a matrix of them."""

        class Particular(nn.Linear):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                if self.bias.max() > 0:
                    raise RuntimeError("these are not mine")
                return super().forward(x)

        model = Particular(4, 3)
        nn.init.constant_(model.bias, -1.0)

        check_independence(model, (4,))

    def test_a_model_of_zeros_passes(self) -> None:
        model = nn.Linear(4, 3)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)

        check_independence(model, (4,))

    def test_the_example_in_its_docstring_is_true(self) -> None:
        results = doctest.testmod(import_module("tan_core.engine.independence"))

        assert results.attempted
        assert not results.failed
