"""The registry of models: complete, sized as published, drawn from one generator only."""

import pytest
import torch
from pydantic import ValidationError

from tan_core import models
from tan_core.errors import ParameterError
from tan_core.spec.models import (
    MODEL_TYPES,
    LinearModel,
    MlpModel,
    NfResNetModel,
    TanhCnnModel,
    VitModel,
    WideResNetModel,
)
from tests.support.models import SMALL_MODELS

FIRST_VALUES = [-0.0014408392598852515, 0.10323861986398697, -0.15839511156082153]
SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32), (1, 17, 24), (3, 64, 70)]


def make(spec, *, shape=(1, 28, 28), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return models.build(spec, shape=shape, num_classes=10, generator=generator)


def size(model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


class TestBuild:
    def test_every_model_of_the_spec_is_built_and_no_other(self) -> None:
        assert set(models.BUILDERS) == set(MODEL_TYPES.values())

    def test_a_small_model_of_every_family_is_tested(self) -> None:
        assert {type(spec) for spec in SMALL_MODELS.values()} == set(MODEL_TYPES.values())

    @pytest.mark.parametrize("name", SMALL_MODELS)
    @pytest.mark.parametrize("shape", SHAPES)
    def test_gives_one_logit_per_class_for_any_usual_image(self, name: str, shape) -> None:
        model = make(SMALL_MODELS[name], shape=shape)

        with torch.no_grad():
            assert model(torch.zeros(2, *shape)).shape == (2, 10)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"spec": "tanh-cnn"}, "spec must be a Model, got 'tanh-cnn'"),
            ({"spec": TanhCnnModel}, "spec must be a Model, got an object of type"),
            ({"generator": None}, "generator must be a Generator, got None"),
            ({"generator": 0}, "generator must be a Generator, got 0"),
            ({"num_classes": 0}, "num_classes must be an integer >= 1, got 0"),
            ({"num_classes": 2.5}, "num_classes must be an integer >= 1, got 2.5"),
            ({"shape": 784}, "shape must be the whole numbers"),
            ({"shape": (1, 28.0, 28)}, "shape must be the whole numbers"),
            ({"shape": ()}, "shape must be the whole numbers"),
        ],
        ids=str,
    )
    def test_arguments_of_another_kind_are_refused_by_name(self, changes, said: str) -> None:
        arguments = {
            "spec": TanhCnnModel(),
            "shape": (1, 28, 28),
            "num_classes": 10,
            "generator": torch.Generator(),
        }

        with pytest.raises(ParameterError) as refused:
            models.build(**arguments | changes)

        assert str(refused.value).startswith(said)
        assert refused.value.field == next(iter(changes))

    def test_the_tanh_network_has_the_published_number_of_parameters(self) -> None:
        assert size(make(TanhCnnModel())) == 26_010

    @pytest.mark.parametrize(
        ("name", "millions"), [("wrn-16-4", 2.75), ("wrn-40-4", 8.95), ("wrn-28-10", 36.48)]
    )
    def test_wide_networks_have_the_published_sizes(self, name: str, millions: float) -> None:
        """Zagoruyko and Komodakis (2016), table 4: 2.8, 8.9 and 36.5 million."""
        spec = MODEL_TYPES[name].model_validate({"name": name})

        assert round(size(make(spec, shape=(3, 32, 32))) / 1e6, 2) == millions

    def test_the_default_wide_network_is_the_one_that_was_there_before(self) -> None:
        """Its parameters by name and shape, and the first drawn values of a seed."""
        model = make(WideResNetModel(), shape=(3, 32, 32))
        names = [name for name, _ in model.named_parameters()]
        first = next(model.parameters()).flatten()[:3].tolist()

        assert size(model) == 2_748_890
        assert names[:4] == ["0.weight", "1.norm1.weight", "1.norm1.bias", "1.conv1.weight"]
        assert names[-3:] == ["8.bias", "11.weight", "11.bias"]
        assert first == pytest.approx(FIRST_VALUES)

    def test_the_transformer_has_the_size_of_vit_tiny(self) -> None:
        """Touvron et al. (2021), table 1: 5.7 million with 1,000 classes; here without a class token."""
        generator = torch.Generator().manual_seed(0)
        model = models.build(
            VitModel(patch_size=16), shape=(3, 224, 224), num_classes=1000, generator=generator
        )

        assert size(model) == 5_717_416 - 192 - 192  # the token, and its position

    def test_the_normaliser_free_network_has_the_size_of_resnet_50(self) -> None:
        """25.6 million with 1,000 classes: ResNet-50's, gains and biases for the norms' parameters."""
        generator = torch.Generator().manual_seed(0)
        model = models.build(
            NfResNetModel(), shape=(3, 224, 224), num_classes=1000, generator=generator
        )

        assert round(size(model) / 1e6, 1) == 25.6

    def test_a_table_has_linear_models_and_no_convolutions(self) -> None:
        assert size(make(LinearModel(), shape=(6,))) == 70
        assert size(make(MlpModel(hidden=[5]), shape=(6,))) == 95
        for spec in (TanhCnnModel(), WideResNetModel(), NfResNetModel(width=1), VitModel(depth=1)):
            with pytest.raises(ParameterError, match="reads images") as error:
                make(spec, shape=(6,))
            assert error.value.field == "model.name"

    def test_an_image_too_small_for_the_model_is_refused(self) -> None:
        with pytest.raises(ParameterError, match="at least 4x4 pixels, the dataset has 3x3"):
            make(TanhCnnModel(), shape=(1, 3, 3))

    def test_groups_that_do_not_divide_the_channels_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="groups"):
            WideResNetModel.model_validate({"groups": 12})

    @pytest.mark.parametrize("name", SMALL_MODELS)
    def test_equal_seeds_give_equal_weights_whatever_the_global_seed_is(self, name: str) -> None:
        torch.manual_seed(1)
        first = make(SMALL_MODELS[name]).state_dict()
        torch.manual_seed(2)
        again = make(SMALL_MODELS[name]).state_dict()
        other = make(SMALL_MODELS[name], seed=1).state_dict()

        assert all(torch.equal(first[key], again[key]) for key in first)
        assert not all(torch.equal(first[key], other[key]) for key in first)

    @pytest.mark.parametrize("name", SMALL_MODELS)
    def test_building_does_not_move_the_global_generator(self, name: str) -> None:
        before = torch.get_rng_state()

        make(SMALL_MODELS[name])

        assert torch.equal(torch.get_rng_state(), before)
