"""Every model that has a name of its own passes what is shipped for models of others."""

import pytest
import torch
from torch import nn

from tan_core import models
from tan_core.testing.conformance import ModelConformance
from tests.support.models import SMALL_MODELS

DEEP = ("nf-resnet-50", "wrn-16-4")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in DEEP)) for name in SMALL_MODELS],
)
class TestEachModel(ModelConformance):
    shape, num_classes = (1, 8, 8), 3

    @pytest.fixture(autouse=True)
    def _named(self, name: str) -> None:
        self.name = name

    def make_model(self) -> nn.Module:
        return models.build(
            SMALL_MODELS[self.name],
            shape=self.shape,
            num_classes=self.num_classes,
            generator=torch.Generator().manual_seed(0),
        )
