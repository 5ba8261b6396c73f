"""What is frozen may be in another type than what is trained, and is checked as strictly."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional

from tan_core.engine.audit import TOLERANCE, tolerance
from tan_core.engine.coverage import check_coverage
from tan_core.engine.independence import check_independence
from tan_core.engine.verdicts import check_once
from tan_core.errors import ParameterError
from tan_core.execution import Simulation
from tan_core.models.gain import Gain
from tan_core.spec.train import Precision
from tan_core.testing.tiny import tiny_images
from tests.unit.tan_core.engine.oracle import assert_exact
from tests.unit.tan_core.engine.support import SHAPE, make_run, make_trainer, run, vector

TYPES = [
    (torch.bfloat16, torch.float32),
    (torch.float16, torch.float32),
    (torch.float64, torch.float32),
    (torch.float32, torch.float64),
]

each_pair = pytest.mark.parametrize(("frozen", "trained"), TYPES, ids=str)


class As(nn.Module):
    """The same numbers in another type."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.dtype)


class Mixes(nn.Module):
    """Adds a part of what the examples have in common."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.gain = Gain(initial=gain)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.gain(x - x.mean(0))


class Behind(nn.Module):
    """A head whose weight is used beside its layer as well."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + (x @ self.layer.weight.mT).tanh()


class Narrow(nn.Module):
    """A frozen weight in 8 bits, which are made more of before they are multiplied."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.randn(16, 64, generator=torch.Generator().manual_seed(0)) / 8
        self.weight = nn.Parameter(weight.to(torch.float8_e4m3fn), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight.to(x.dtype))


def test_a_weight_of_eight_bits_trains_the_head_that_its_numbers_do() -> None:
    """Torch does not know how far such numbers are from each other, only whether they are the same."""
    narrow, plain = Narrow(), nn.Linear(64, 16, bias=False).requires_grad_(False)
    plain.weight.data.copy_(narrow.weight.float())
    head = nn.Linear(16, 3)

    one, other = (
        vector(run(make_trainer(model=nn.Sequential(nn.Flatten(), each, deepcopy(head))), 3))
        for each in (narrow, plain)
    )

    assert torch.allclose(one, other, atol=1e-6)


BACKBONES = {
    "linear": lambda: [nn.Flatten(), nn.Linear(64, 16), nn.Tanh()],
    "convolution": lambda: [
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.GroupNorm(2, 8),
        nn.Conv2d(8, 16, 4),
        nn.Tanh(),
        nn.Flatten(),
    ],
}


def backbone(kind: str, *more: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*BACKBONES[kind](), *more)


def model_of(
    body: nn.Module,
    frozen: torch.dtype = torch.bfloat16,
    trained: torch.dtype = torch.float32,
    head: nn.Module | None = None,
) -> nn.Sequential:
    body = body.to(frozen).requires_grad_(False)
    head = nn.Linear(16, 3) if head is None else head
    return nn.Sequential(As(frozen), body, As(trained), head.to(trained))


class TestTraining:
    @each_pair
    @pytest.mark.parametrize("kind", BACKBONES)
    def test_a_run_is_that_of_its_head_on_what_the_backbone_makes(
        self, kind, frozen, trained
    ) -> None:
        model = model_of(backbone(kind), frozen, trained)
        with torch.no_grad():
            features = model[:-1](torch.from_numpy(tiny_images()[0]).to(trained) / 127.5 - 1)
        head = nn.Linear(16, 3).to(trained)
        head.load_state_dict(model[-1].state_dict())

        whole, alone = make_trainer(model=model), make_trainer(model=head, inputs=features)
        run(whole, 5)
        run(alone, 5)

        assert vector(whole).dtype == trained
        assert torch.allclose(vector(whole), vector(alone), rtol=0.02, atol=1e-3)
        assert (
            whole.released_weights()["1.1.weight" if kind == "linear" else "1.0.weight"].dtype
            == frozen
        )

    @each_pair
    @pytest.mark.parametrize("views", [1, 3])
    @pytest.mark.parametrize("kind", BACKBONES)
    def test_norms_and_sums_are_those_of_the_definition(self, kind, views, frozen, trained) -> None:
        model = model_of(backbone(kind), frozen, trained)
        inputs = torch.randn(8 * views, *SHAPE).to(trained)

        # Products of a batch and of its parts may be rounded otherwise in 16 bits.
        is_coarse = torch.finfo(frozen).bits == 16
        rtol = 1e-2 if is_coarse else 1e-5
        assert_exact(model, inputs, torch.arange(8) % 3, views=views, rtol=rtol)

    def test_what_is_trained_may_stand_before_what_is_frozen(self) -> None:
        body = nn.Linear(64, 3).bfloat16().requires_grad_(False)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), As(torch.bfloat16), body)

        trainer = make_trainer(model=model)
        before = vector(trainer).clone()
        run(trainer, 2)

        assert not torch.equal(vector(trainer), before)

    def test_a_simulation_and_an_evaluation_run_as_well(self) -> None:
        simulation = Simulation.of(make_run(), expected_batch_size=6)
        trainer = run(make_trainer(simulation, model=model_of(backbone("convolution"))), 2)

        assert 0 <= trainer.evaluate(torch.zeros(4, *SHAPE, dtype=torch.uint8), [0, 1, 2, 0]) <= 1

    def test_frozen_indices_and_flags_are_left_alone(self) -> None:
        class Picks(nn.Linear):
            def __init__(self) -> None:
                super().__init__(3, 3)
                self.order = nn.Parameter(torch.tensor([2, 0, 5]), requires_grad=False)
                self.on = nn.Parameter(torch.tensor([True, False, True]), requires_grad=False)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x.flatten(1)[:, self.order] * self.on)

        run(make_trainer(model=Picks()), 2)


class TestRefusals:
    @pytest.mark.parametrize("check", [check_independence, check_once])
    @each_pair
    def test_a_backbone_that_mixes(self, check, frozen, trained) -> None:
        model = model_of(backbone("linear", Mixes(0.5)), frozen, trained)

        with pytest.raises(ParameterError, match="mixes the examples"):
            check(model, SHAPE)

    @pytest.mark.parametrize("gain", [0.0, 1e-6])
    @each_pair
    def test_a_backbone_or_a_head_that_mixes_as_soon_as_it_grows(
        self, gain, frozen, trained
    ) -> None:
        for model in (
            model_of(backbone("linear", Mixes(gain)), frozen, trained),
            model_of(
                backbone("linear"), frozen, trained, nn.Sequential(Mixes(gain), nn.Linear(16, 3))
            ),
        ):
            with pytest.raises(ParameterError, match="mixes the examples"):
                check_independence(model, SHAPE)

    @each_pair
    def test_a_backbone_that_draws_or_keeps_a_state(self, frozen, trained) -> None:
        class Draws(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return functional.dropout(x)

        class Keeps(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("mean", torch.zeros(16))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                self.mean.lerp_(x.detach().mean(0), 0.5)
                return x

        with pytest.raises(ParameterError, match="two outputs for the same inputs"):
            check_independence(model_of(backbone("linear", Draws()), frozen, trained), SHAPE)
        with pytest.raises(ParameterError, match=r"buffer '1\.3\.mean' of the model changes"):
            check_independence(model_of(backbone("linear", Keeps()), frozen, trained), SHAPE)

    @each_pair
    def test_a_head_that_is_used_behind_its_layer(self, frozen, trained) -> None:
        model = model_of(backbone("linear"), frozen, trained, Behind())

        with pytest.raises(ParameterError, match=r"parameter '3\.layer\.weight' is used outside"):
            check_coverage(model, SHAPE)

    @each_pair
    def test_a_backbone_that_does_not_take_what_the_trainer_feeds(self, frozen, trained) -> None:
        model = model_of(backbone("linear"), frozen, trained)
        del model[0]

        for private in (True, False):
            execution = make_run() if private else Simulation.of(make_run(), expected_batch_size=6)
            with pytest.raises(ParameterError) as refused:
                make_trainer(execution, model=model)

            assert refused.value.field == "model"
            assert f"does not run on inputs of shape [B, 1, 8, 8] in {trained}" in str(
                refused.value
            )
            assert f"parts in {frozen} need theirs from the model's forward" in str(refused.value)

    def test_passes_in_bfloat16_of_a_model_in_other_types(self) -> None:
        with pytest.raises(ParameterError, match="the weights are float32") as refused:
            make_trainer(model=model_of(backbone("linear")), config={"precision": "bfloat16"})

        assert refused.value.field == "precision"

    def test_two_types_of_trained_parameters(self) -> None:
        body = nn.Linear(64, 16).double()
        model = nn.Sequential(
            nn.Flatten(), As(torch.float64), body, As(torch.float32), nn.Linear(16, 3)
        )

        with pytest.raises(
            ParameterError, match=r"'2\.bias' is torch\.float64 and '4\.bias' is torch\.float32"
        ) as refused:
            make_trainer(model=model)

        assert refused.value.field == "model"


class TestTolerance:
    @pytest.mark.parametrize(
        ("dtype", "precision"),
        [
            (torch.bfloat16, Precision.BFLOAT16),
            (torch.float16, Precision.BFLOAT16),
            (torch.float32, Precision.FLOAT32),
            (torch.float64, Precision.FLOAT32),
        ],
        ids=str,
    )
    def test_an_audit_allows_for_the_coarsest_numbers(self, dtype, precision) -> None:
        model = model_of(nn.Flatten(), head=nn.Linear(64, 3))
        model.append(nn.Linear(3, 3).to(dtype).requires_grad_(False))

        assert tolerance(model, Precision.FLOAT32) == TOLERANCE[precision]
        assert tolerance(model, Precision.BFLOAT16) == TOLERANCE[Precision.BFLOAT16]
