import math

import pytest

from tan_core.errors import ParameterError
from tan_core.tan import epsilon_tan, signal_to_noise, total_noise

CIFAR = {"sampling_rate": 0.08192, "noise_multiplier": 3.0, "steps": 2500}


class TestSignalToNoise:
    def test_is_that_of_the_paper(self) -> None:
        """Definition 3.1: its square is q^2 S / (2 sigma^2)."""
        assert signal_to_noise(**CIFAR) ** 2 == pytest.approx(0.08192**2 * 2500 / (2 * 9))

    def test_total_noise_is_its_inverse(self) -> None:
        assert total_noise(**CIFAR) * signal_to_noise(**CIFAR) == pytest.approx(1)

    @pytest.mark.parametrize(
        ("field", "value"), [("sampling_rate", 1.01), ("noise_multiplier", 0.0), ("steps", 2.5)]
    )
    def test_a_value_outside_its_domain_is_refused_by_name(self, field: str, value: float) -> None:
        with pytest.raises(ParameterError, match=f"{field} must be .* got {value!r}"):
            signal_to_noise(**{**CIFAR, field: value})


class TestEpsilonTan:
    @pytest.mark.parametrize(
        ("eta", "delta", "epsilon"),
        [(0.13, 1e-5, 0.899), (0.95, 1e-5, 7.349), (0.9706, 8e-7, 8.215), (1.9508, 1.6e-6, 18.059)],
    )
    def test_reproduces_the_closed_form(self, eta: float, delta: float, epsilon: float) -> None:
        assert epsilon_tan(signal_to_noise=eta, delta=delta) == pytest.approx(epsilon, abs=1e-3)

    def test_is_the_zcdp_conversion_of_eta_squared(self) -> None:
        """Minimising eta^2 a + log(1/delta)/(a - 1) over real orders a, here by brute force."""
        orders = [1 + 10 ** (k / 1000) for k in range(-2000, 3000)]
        best = min(0.9654**2 * a + math.log(1e5) / (a - 1) for a in orders)

        assert epsilon_tan(signal_to_noise=0.9654, delta=1e-5) == pytest.approx(best, rel=1e-5)

    @pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
    def test_a_delta_of_no_guarantee_is_refused_by_name(self, delta: float) -> None:
        with pytest.raises(ParameterError, match="delta must be"):
            epsilon_tan(signal_to_noise=1.0, delta=delta)
