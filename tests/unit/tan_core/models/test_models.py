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
    TanhCnnModel,
    WideResNetModel,
)


def make(spec, *, shape=(1, 28, 28), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return models.build(spec, shape=shape, num_classes=10, generator=generator)


def size(model) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


class TestBuild:
    def test_every_model_of_the_spec_is_built_and_no_other(self) -> None:
        assert set(models.BUILDERS) == set(MODEL_TYPES.values())

    @pytest.mark.parametrize("name", MODEL_TYPES)
    @pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (1, 17, 24)])
    def test_gives_one_logit_per_class_for_any_usual_image(self, name: str, shape) -> None:
        model = make(MODEL_TYPES[name](), shape=shape)

        assert model(torch.zeros(2, *shape)).shape == (2, 10)

    def test_the_tanh_network_has_the_published_number_of_parameters(self) -> None:
        assert size(make(TanhCnnModel())) == 26_010

    def test_the_wide_network_has_the_size_of_depth_16_and_width_4(self) -> None:
        assert size(make(WideResNetModel(), shape=(3, 32, 32))) == 2_748_890

    def test_a_table_has_linear_models_and_no_convolutions(self) -> None:
        assert size(make(LinearModel(), shape=(6,))) == 70
        assert size(make(MlpModel(hidden=[5]), shape=(6,))) == 95
        for spec in (TanhCnnModel(), WideResNetModel()):
            with pytest.raises(ParameterError, match="reads images") as error:
                make(spec, shape=(6,))
            assert error.value.field == "model.name"

    def test_an_image_too_small_for_the_model_is_refused(self) -> None:
        with pytest.raises(ParameterError, match="at least 4x4 pixels, the dataset has 3x3"):
            make(TanhCnnModel(), shape=(1, 3, 3))

    def test_groups_that_do_not_divide_the_channels_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="groups"):
            WideResNetModel.model_validate({"groups": 12})

    @pytest.mark.parametrize("name", MODEL_TYPES)
    def test_equal_seeds_give_equal_weights_whatever_the_global_seed_is(self, name: str) -> None:
        torch.manual_seed(1)
        first = make(MODEL_TYPES[name]()).state_dict()
        torch.manual_seed(2)
        again = make(MODEL_TYPES[name]()).state_dict()
        other = make(MODEL_TYPES[name](), seed=1).state_dict()

        assert all(torch.equal(first[key], again[key]) for key in first)
        assert not all(torch.equal(first[key], other[key]) for key in first)

    @pytest.mark.parametrize("name", MODEL_TYPES)
    def test_building_does_not_move_the_global_generator(self, name: str) -> None:
        before = torch.get_rng_state()

        make(MODEL_TYPES[name]())

        assert torch.equal(torch.get_rng_state(), before)
