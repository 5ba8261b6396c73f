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


class Centres(Does):
    """Takes off the mean of what it has read, which moves so slowly that no output tells; kept wherever ``keep`` puts it."""

    def __init__(self, keep) -> None:
        super().__init__(lambda x: x)
        keep(self, torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        self.mean.lerp_(out.detach().mean(0), 1e-6)
        return out - self.mean


class Notes(Does):
    """Keeps what it has read last, as a frozen parameter that nothing reads."""

    def __init__(self) -> None:
        super().__init__(lambda x: x)
        self.last = nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        with torch.no_grad():
            self.last.copy_(out[0])
        return out


class Averages(Does):
    """The same as a number of Python."""

    mean = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        self.mean = 0.999999 * self.mean + 1e-6 * float(out.mean())
        return out - self.mean


class WritesItsWeights(nn.Linear):
    """Shortens the weights of the class that the first example is of."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x.flatten(1))
        with torch.no_grad():
            self.weight[out[0].argmax()] *= 0.99
        return out


class Begins(Does):
    """Makes a tensor of what it reads first."""

    def __init__(self, begun) -> None:
        super().__init__(lambda x: x)
        self.begun = begun

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "first"):
            self.begun(self, x.detach().sum(0).flatten())
        return super().forward(x)


def autoscale(x: torch.Tensor) -> torch.Tensor:
    return x / 255 if x.abs().max() > 30 else x


def clips_on_the_way_back(x: torch.Tensor) -> torch.Tensor:
    if x.requires_grad:
        x.register_hook(lambda g: g / g.norm().clamp(min=10.0))
    return x


def batch_norm(x: torch.Tensor) -> torch.Tensor:
    return functional.batch_norm(x, None, None, training=True)


def setattr_of(name: str):
    return lambda model, value: setattr(model, name, value)


def as_frozen(name: str):
    return lambda model, value: setattr(model, name, nn.Parameter(value, requires_grad=False))


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
    (Centres(setattr_of("mean")), "attribute 'mean' of the model changes when it runs again"),
    (Centres(as_frozen("mean")), "frozen parameter 'mean' of the model changes when it runs:"),
    (Averages(lambda x: x), "attribute 'mean' of the model changes when it runs again"),
    (Notes(), "frozen parameter 'last' of the model changes"),
    (
        Begins(lambda m, x: m.register_buffer("first", x)),
        "'first' comes into being when the model runs",
    ),
    (
        Begins(lambda m, x: m.register_parameter("first", nn.Parameter(x))),
        "'first' comes into being when the model runs",
    ),
    (WritesItsWeights(64, 3), "parameter 'weight' of the model changes"),
    (Does(autoscale), "mixes the examples"),
    (Does(clips_on_the_way_back), "its gradient, changes with the others"),
    (Does(lambda x: x.squeeze()), r"\[B, classes\] .* got shape \[3\] for B = 1"),
    (Does(lambda x: x / len(x) if len(x) < 2 else x / 2), "mixes the examples"),
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
    "tensor",
    "frozen",
    "number",
    "unread",
    "late-buffer",
    "late-parameter",
    "weights",
    "largest",
    "gradients",
    "squeezed",
    "alone",
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

    def test_what_a_model_notes_of_its_inputs_or_counts_may_stay(self) -> None:
        """None of it changes what it says next."""

        class Looks(Does):
            calls = 0

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                self.calls += 1
                self.seen, self.shape, self.cache = x.detach(), x.shape, {len(x): torch.arange(3.0)}
                return super().forward(x)

        check_independence(Looks(lambda x: x), (1, 8, 8))

    def test_a_model_that_does_not_take_huge_inputs_passes(self) -> None:
        def refuse(x: torch.Tensor) -> torch.Tensor:
            if x.abs().max() > 100:
                raise ValueError("these are no images")
            return x

        check_independence(Does(refuse), (1, 8, 8))

    def test_a_buffer_that_holds_no_number_is_the_same_when_it_still_does(self) -> None:
        model = nn.Linear(4, 3)
        model.register_buffer("unknown", torch.full((2,), torch.nan))

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
