"""Low-rank factors beside linear layers: where they are put, that they are exact, and what is released."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tan_core.engine import clipped_sum
from tan_core.engine.bookkeeping import Books
from tan_core.models import Checkpoint, build
from tan_core.models.low_rank import LowRankLinear, adapt, adaptable, merged
from tan_core.spec.models import MODEL_TYPES, MlpModel, ModelSpec
from tan_core.testing.oracle import clipped, example_gradients
from tests.support.models import SMALL_MODELS
from tests.unit.tan_core.engine.oracle import books_are_enough
from tests.unit.tan_core.engine.support import make_run, make_trainer, run

SHAPE, CLASSES = (1, 8, 8), 3
ADAPTED = ["mlp", "tanh-cnn", "vit-tiny"]
CONFIGS = [
    {"optimizer": "adamw", "weight_decay": 0.1, "ema_decay": 0.9, "learning_rate": 0.01},
    {"momentum": 0.9, "weight_decay": 0.1, "ema_decay": 0.5, "learning_rate": 0.1},
]


def plain(spec: ModelSpec, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    return build(spec, shape=SHAPE, num_classes=CLASSES, generator=generator)


def begun(spec: ModelSpec, *, rank: int = 2, seed: int = 0) -> nn.Module:
    """Adapted, from the weights of ``plain(spec)``."""
    named = {"path": "a.pt", "data": "public", "train": "lora", "rank": rank, "sha256": "ab" * 32}
    return build(
        type(spec).model_validate({**spec.model_dump(), "pretrained": named}),
        shape=SHAPE,
        num_classes=CLASSES,
        generator=torch.Generator().manual_seed(seed),
        checkpoint=Checkpoint(path="a.pt", weights=plain(spec).state_dict()),
    )


def trained(model: nn.Module) -> set[str]:
    return {name for name, p in model.named_parameters() if p.requires_grad}


class Twice(nn.Module):
    """One linear layer that runs twice and stands at two places, one of torch's, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.again = self.first
        self.other = nn.Linear(6, 6, bias=False)
        self.classifier = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.other(self.again(self.first(x).tanh()).tanh()).mean(1))


def adapted(model: nn.Module, *, rank: int = 2) -> nn.Module:
    """With factors away from 0, and all else frozen but the classifier."""
    layers = adaptable(model, besides=["classifier.weight"])
    names = adapt(model, layers, rank=rank, generator=torch.Generator().manual_seed(1))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names or name.startswith("classifier"))
        if "lora_B" in name:
            nn.init.normal_(parameter, generator=torch.Generator().manual_seed(2))
    return model


class TestWhereTheyArePut:
    def test_beside_every_linear_layer_before_the_classifier(self) -> None:
        layers = ("attention.qkv", "attention.projection", "mlp.0", "mlp.2")
        factors = {
            f"{block}.{layer}.lora_{factor}.weight"
            for block in (1, 2) for layer in layers for factor in "AB"
        }  # fmt: skip

        assert trained(begun(SMALL_MODELS["vit-tiny"])) == {*factors, "5.weight", "5.bias"}

    def test_they_have_their_rank(self) -> None:
        layer = begun(MlpModel(hidden=[20]), rank=5).get_submodule("1")

        assert isinstance(layer, LowRankLinear)
        assert (layer.lora_A.weight.shape, layer.lora_B.weight.shape) == ((5, 64), (20, 5))

    def test_at_every_place_of_a_layer_that_stands_at_several(self) -> None:
        model = adapted(Twice())

        assert isinstance(model.first, LowRankLinear)
        assert model.again is model.first

    def test_not_beside_what_would_not_run_them(self) -> None:
        hooked, own = nn.Linear(3, 3), nn.Linear(3, 3)
        hooked.register_forward_hook(lambda *_: None)
        own.forward = lambda x: x
        tied, table = nn.Linear(3, 5, bias=False), nn.Embedding(5, 3)
        tied.weight = table.weight
        normed = parametrizations.weight_norm(nn.Linear(3, 3))
        model = nn.ModuleDict(
            {"hooked": hooked, "own": own, "tied": tied, "table": table, "normed": normed,
             "attention": nn.MultiheadAttention(4, 2), "plain": nn.Linear(3, 3)}
        )  # fmt: skip

        assert [*adaptable(model)] == ["plain"]

    @pytest.mark.parametrize("name", sorted(MODEL_TYPES))
    def test_models_without_such_layers_say_so(self, name: str) -> None:
        is_adapted = name in ADAPTED

        assert ("lora" in (MODEL_TYPES[name].parts or ())) == is_adapted


class TestBeginning:
    @pytest.mark.parametrize("name", ADAPTED)
    def test_the_model_begins_as_it_was(self, name: str) -> None:
        spec, x = SMALL_MODELS[name], torch.randn(4, *SHAPE)

        assert torch.equal(begun(spec)(x), plain(spec)(x))

    def test_factors_follow_from_the_seed_and_from_nothing_else(self) -> None:
        spec = SMALL_MODELS["vit-tiny"]
        before = torch.get_rng_state()

        first, second, other = (begun(spec, seed=seed).state_dict() for seed in (1, 1, 2))

        assert torch.equal(torch.get_rng_state(), before)
        assert all(torch.equal(first[name], second[name]) for name in first)
        drawn = {name for name in first if not torch.equal(first[name], other[name])}
        assert drawn == {name for name in first if "lora_A" in name}


class TestExactness:
    """For registered models see test_parts.py."""

    @pytest.mark.parametrize("views", [1, 4])
    @pytest.mark.parametrize("examples", [0, 1, 5])
    def test_of_a_layer_that_runs_twice(self, examples: int, views: int) -> None:
        model = adapted(Twice()).double()
        x = torch.randn(examples * views, 4, 6, dtype=torch.float64)
        labels = torch.arange(examples) % CLASSES
        rows = example_gradients(model, x, labels, views=views)
        clip_norm = 0.99 * float(rows.norm(dim=1).median()) if examples else 1.0

        got = clipped_sum(model, x, labels, clip_norm=clip_norm, views=views)

        torch.testing.assert_close(got.sum, clipped(rows, clip_norm), rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(got.norms, rows.norm(dim=1), rtol=1e-6, atol=0)

    @pytest.mark.parametrize("name", ADAPTED)
    def test_books_are_enough_and_read_no_input_of_a_frozen_layer(self, name: str) -> None:
        model = begun(SMALL_MODELS[name])

        assert books_are_enough(model)
        reading = {unit.name for unit in Books(model)._units if unit.reads_inputs}
        assert all(
            "lora" in unit or not list(model.get_submodule(unit).children()) for unit in reading
        )
        assert len(reading) == len(trained(model)) - 1


class TestRelease:
    @pytest.mark.parametrize("config", CONFIGS, ids=["adamw", "momentum"])
    @pytest.mark.parametrize("name", ADAPTED)
    def test_what_is_released_is_the_plain_model(self, name: str, config: dict[str, Any]) -> None:
        spec = SMALL_MODELS[name]
        model, before = begun(spec), plain(spec).state_dict()
        layers = {key for key, layer in model.named_modules() if isinstance(layer, LowRankLinear)}
        classifier = trained(model) - {
            f"{key}.lora_{each}.weight" for key in layers for each in "AB"
        }
        trainer = make_trainer(make_run(), model=model, config=config)

        run(trainer, 4)

        released, whole = trainer.released_weights(), plain(spec, seed=9)
        whole.load_state_dict(released)
        moved = {key for key, value in released.items() if not torch.equal(value, before[key])}
        assert moved == classifier | {f"{key}.weight" for key in layers}
        frozen = before.keys() - classifier
        own = model.state_dict()
        assert all(torch.equal(own[key], before[key]) for key in frozen)
        x = torch.randn(4, *SHAPE)
        with torch.no_grad(), trainer._in_place(trainer.released):
            torch.testing.assert_close(whole(x), model(x), rtol=1e-4, atol=1e-5)

    def test_to_the_last_digits_of_float64(self) -> None:
        torch.manual_seed(0)
        model, whole = adapted(Twice()).double(), Twice().double()

        whole.load_state_dict(merged(model, model.state_dict()))

        x = torch.randn(5, 4, 6, dtype=torch.float64)
        torch.testing.assert_close(whole(x), model(x), rtol=1e-12, atol=1e-12)

    def test_a_model_without_factors_keeps_its_weights(self) -> None:
        weights = plain(SMALL_MODELS["mlp"]).state_dict()

        assert merged(plain(SMALL_MODELS["mlp"]), weights) == weights
