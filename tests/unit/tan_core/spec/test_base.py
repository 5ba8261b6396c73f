"""What every spec refuses."""

import pytest
from pydantic import ValidationError

from tan_core.spec.models import NfResNetModel, WideResNetModel
from tan_core.spec.space import Range
from tan_core.spec.train import TrainerConfig


class TestTruthValues:
    """Python counts true as 1: ``microbatch_size: true`` would be one example."""

    @pytest.mark.parametrize(
        ("spec", "field"),
        [(TrainerConfig, "clip_norm"), (NfResNetModel, "skip_gain"), (Range, "low")],
    )
    def test_are_no_numbers(self, spec, field: str) -> None:
        known = {"low": 0.1, "high": 1.0} if spec is Range else {}

        with pytest.raises(ValidationError, match=f"{field} is no truth value, got true"):
            spec(**{**known, field: True})

    def test_are_taken_where_they_are_meant(self) -> None:
        assert TrainerConfig(horizontal_flip=True).horizontal_flip
        assert WideResNetModel(name="wrn-16-4", weight_standardization=True).weight_standardization
        assert Range(low=0.1, high=1.0, log=True).log
