"""A run is lost when a parameter or its loss is no number any more."""

import pytest
import torch

from tan_core.engine.divergence import is_diverged


class TestIsDiverged:
    def test_finite_parameters_are_healthy(self) -> None:
        assert not is_diverged(torch.ones(3), 2.0)
        assert not is_diverged(torch.ones(3))

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
    def test_one_bad_number_is_enough(self, value: float) -> None:
        assert is_diverged(torch.tensor([1.0, value]))
        assert is_diverged(torch.ones(3), value)
