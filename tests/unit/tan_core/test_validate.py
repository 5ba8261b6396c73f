"""Numbers of NumPy become Python's own at the doors; the checks behind them take those alone."""

import doctest
from dataclasses import asdict
from decimal import Decimal

import numpy as np
import pytest
import torch

from tan_core import Mechanism, _validate
from tan_core.accounting import (
    NegativeBinomialTrials,
    gdp_estimate,
    price,
    price_search,
    price_selection,
)
from tan_core.errors import ParameterError
from tan_core.execution import PrivateRun, Simulation
from tan_core.planner import batch_ladder, plan_mechanism
from tan_core.tan import (
    Observation,
    constant_tan_curve,
    eta_of,
    fit_law,
    limit_epsilon,
    overcharge,
    paired_runs_needed,
    wall,
)
from tan_core.tan.noise import epsilon_tan, signal_to_noise, total_noise
from tan_core.tan.scaling import Setting, scale_batch, trade_steps_for_noise


class TestPlain:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (np.int64(3), 3), (np.uint8(3), 3), (np.float64(0.5), 0.5), (np.float32(0.5), 0.5),
            (np.float16(0.5), 0.5), (np.longdouble(0.5), 0.5), (3, 3), (0.5, 0.5),
            (np.array(3), 3), (np.array(0.5, np.float32), 0.5),
            (torch.tensor(3), 3), (torch.tensor(0.5, requires_grad=True), 0.5),
        ],
        ids=lambda value: type(value).__name__,
    )  # fmt: skip
    def test_a_number_is_plain(self, value, expected) -> None:
        found = _validate.plain(value)

        assert found == expected
        assert type(found) is type(expected)

    @pytest.mark.parametrize(
        "value",
        [
            True,
            np.True_,
            np.array(True),
            "3",
            None,
            3j,
            np.array(3j),
            Decimal(3),
            np.array([3]),
            [3],
        ],
        ids=repr,
    )
    def test_anything_else_is_what_it_was(self, value) -> None:
        assert _validate.plain(value) is value

    def test_a_function_keeps_its_name_and_its_words(self) -> None:
        assert signal_to_noise.__name__ == "signal_to_noise"
        assert "signal-to-noise ratio" in (signal_to_noise.__doc__ or "")

    def test_the_examples_in_its_docstrings_are_true(self) -> None:
        results = doctest.testmod(_validate)

        assert results.attempted
        assert not results.failed


RUN = Mechanism(sampling_rate=0.0625, noise_multiplier=3.0, clip_norm=1.0, steps=100)


def _kind(value: object) -> str:
    # No repr: an address in it would be another one in every worker.
    return type(value).__name__


class TestInstance:
    @pytest.mark.parametrize(
        ("call", "field"),
        [
            (eta_of, "mechanism"),
            (lambda it: overcharge(it, delta=1e-5), "mechanism"),
            (lambda it: limit_epsilon(it, delta=1e-5), "mechanism"),
            (lambda it: wall(it, delta=1e-5), "mechanism"),
            (lambda it: constant_tan_curve(it, delta=1e-5, noise_multipliers=[3]), "mechanism"),
            (lambda it: price_search("public_proxy", run=it, delta=1e-5), "run"),
            (lambda it: scale_batch(it, scale_factor=2), "setting"),
            (lambda it: trade_steps_for_noise(it, steps=2), "setting"),
            (lambda it: PrivateRun(mechanism=it, num_examples=10), "mechanism"),
            (lambda it: Simulation.of(it, expected_batch_size=10), "run"),
        ],
        ids=["eta", "overcharge", "limit", "wall", "curve", "search", "scale", "trade", "run", "simulation"],
    )  # fmt: skip
    @pytest.mark.parametrize("other", [None, 3.0, "poisson", [RUN], object()], ids=_kind)
    def test_another_object_is_refused_by_the_name_of_the_argument(
        self, call, field, other
    ) -> None:
        with pytest.raises(
            ParameterError, match=rf"^{field} must be an? [A-Z]\w+, got "
        ) as refused:
            call(other)

        assert refused.value.field == field


class TestSequence:
    LAW = NegativeBinomialTrials(mean=10.0, shape=0.0)

    @pytest.mark.parametrize(
        ("call", "field"),
        [
            (lambda them: price(them, delta=1e-5), "mechanisms"),
            (lambda them: gdp_estimate(them, delta=1e-5), "mechanisms"),
            (lambda them: price_selection(them, TestSequence.LAW, delta=1e-5), "mechanisms"),
            (
                lambda them: price_selection([RUN], TestSequence.LAW, delta=1e-5, followed_by=them),
                "followed_by",
            ),
            (lambda them: price_search("accounted", run=RUN, delta=1e-5, trials=them), "trials"),
        ],
        ids=["price", "gdp", "selection", "followed_by", "search"],
    )
    def test_only_mechanisms_are_priced(self, call, field) -> None:
        run = PrivateRun(mechanism=RUN, num_examples=1600)
        simulation = Simulation.of(run, expected_batch_size=10)
        for them, said in (
            (RUN, f"{field} must be a sequence of Mechanism, got a single one: put it into a list"),
            (3.0, f"{field} must be a sequence of Mechanism, got 3.0"),
            ([RUN, run], f"{field}[1] must be a Mechanism, got an object of type PrivateRun"),
            ([simulation], f"{field}[0] must be a Mechanism, got an object of type Simulation"),
            ("x", f"{field}[0] must be a Mechanism, got 'x'"),
        ):
            with pytest.raises(ParameterError) as refused:
                call(them)
            assert str(refused.value) == said

    def test_any_iterable_of_them_will_do(self) -> None:
        expected = price([RUN, RUN], delta=1e-5)

        assert price((RUN, RUN), delta=1e-5) == expected
        assert price(iter([RUN, RUN]), delta=1e-5) == expected
        assert (
            price(np.array([RUN, RUN]), delta=torch.tensor(1e-5, dtype=torch.float64)) == expected
        )


class TestRate:
    @pytest.mark.parametrize("value", [1, 1.0, 0.5, 1e-300])
    def test_what_is_in_it_passes(self, value: float) -> None:
        _validate.rate(q=value)

    @pytest.mark.parametrize("value", [0, -1, 1.0001, float("nan"), True, "1", None])
    def test_what_is_not_is_refused_with_what_is_accepted(self, value) -> None:
        with pytest.raises(ParameterError, match=r"^q must be in \(0, 1\], got") as refused:
            _validate.rate(q=value)

        assert refused.value.field == "q"


class TestDoors:
    def test_a_plan_is_the_same(self) -> None:
        plan = plan_mechanism(
            num_examples=1000, expected_batch_size=32, noise_multiplier=1.5, steps=10, delta=1e-5
        )

        assert plan == plan_mechanism(
            num_examples=np.int32(1000),
            expected_batch_size=np.float32(32),
            noise_multiplier=np.float32(1.5),
            steps=np.int64(10),
            delta=np.float64(1e-5),
            trials=np.int8(24),
        )

    def test_a_batch_below_one_is_refused_by_its_name(self) -> None:
        for batch in (0.5, 0.999, np.float32(0.5)):
            with pytest.raises(ParameterError, match=r"must be at least 1, .*, got 0") as refused:
                plan_mechanism(
                    num_examples=1000, expected_batch_size=batch, noise_multiplier=1.0, steps=10, delta=1e-5
                )  # fmt: skip
            assert refused.value.field == "expected_batch_size"

    def test_and_so_is_one_above_the_data(self) -> None:
        with pytest.raises(ParameterError, match="exceeds the 10 training examples") as refused:
            plan_mechanism(
                num_examples=10, expected_batch_size=11, noise_multiplier=1.0, steps=10, delta=1e-5
            )
        assert refused.value.field == "expected_batch_size"

    def test_a_ladder_is_the_same_and_plain(self) -> None:
        ladder = batch_ladder(np.float32(4096), trials=np.int64(4))

        assert ladder == batch_ladder(4096, trials=4)
        assert {type(rung) for rung in ladder} == {int}

    def test_estimates_are_made_in_full_precision(self) -> None:
        run = {"sampling_rate": 0.0625, "noise_multiplier": 3.0, "steps": 2500}
        given = {
            "sampling_rate": np.float16(0.0625),
            "noise_multiplier": np.float32(3),
            "steps": np.int16(2500),
        }

        assert signal_to_noise(**given) == signal_to_noise(**run)
        assert total_noise(**given) == total_noise(**run)
        eta = np.float32(0.9654)
        assert epsilon_tan(signal_to_noise=eta, delta=1e-5) == epsilon_tan(
            signal_to_noise=float(eta), delta=1e-5
        )
        with pytest.raises(ParameterError, match=r"sampling_rate must be in \(0, 1\], got 1\.1"):
            signal_to_noise(**run | {"sampling_rate": 1.1})

    def test_a_setting_is_moved_as_plain_numbers_are(self) -> None:
        setting = Setting(
            expected_batch_size=4096,
            noise_multiplier=3.0,
            steps=2500,
            learning_rate=4.0,
            ema_decay=0.5,
        )
        given = Setting(
            expected_batch_size=np.int16(4096),
            noise_multiplier=np.float16(3),
            steps=np.int16(2500),
            learning_rate=np.float16(4),
            ema_decay=np.float16(0.5),
        )

        assert scale_batch(given, scale_factor=np.float16(16)) == scale_batch(
            setting, scale_factor=16
        )
        moved = trade_steps_for_noise(given, steps=np.int16(10_000))
        assert moved == trade_steps_for_noise(setting, steps=10_000)
        assert {type(each) for each in asdict(moved).values()} <= {int, float, type(None)}

    def test_a_law_is_fitted_on_what_pandas_and_torch_give(self) -> None:
        batches, accuracies = [128, 256, 512], [0.4375, 0.421875, 0.390625]
        plain = [
            Observation(expected_batch_size=b, accuracy=a, seed=0)
            for b, a in zip(batches, accuracies, strict=True)
        ]
        for given in (np.array(accuracies, np.float32), torch.tensor(accuracies)):
            others = [
                Observation(expected_batch_size=b, accuracy=a, seed=np.int64(0))
                for b, a in zip(np.array(batches), given, strict=True)
            ]
            assert others == plain
            assert fit_law(np.array(others), guessing=np.float32(0.125)).predict(
                np.int64(4096), level=np.float32(0.75)
            ) == fit_law(plain, guessing=0.125).predict(4096, level=0.75)

    def test_a_curve_of_whole_or_short_numbers_is_that_of_floats(self) -> None:
        expected = constant_tan_curve(RUN, delta=1e-5, noise_multipliers=[1.0, 3.0])

        for given in (np.array([1, 3]), np.array([1, 3], np.float32), torch.tensor([1.0, 3.0])):
            found = constant_tan_curve(RUN, delta=1e-5, noise_multipliers=given)
            assert found == expected
            assert {type(value) for point in found for value in asdict(point).values()} <= {
                int,
                float,
            }
        with pytest.raises(ParameterError, match="noise_multipliers must hold numbers, got 3"):
            constant_tan_curve(RUN, delta=1e-5, noise_multipliers=3)

    def test_what_else_takes_numbers_takes_those_of_numpy(self) -> None:
        law = NegativeBinomialTrials(mean=np.int64(10), shape=np.float32(0.5))
        assert law == NegativeBinomialTrials(mean=10, shape=0.5)
        assert paired_runs_needed(difference=np.float32(0.5), std=np.int64(1)) == (
            paired_runs_needed(difference=0.5, std=1)
        )
        assert wall(RUN, delta=np.float64(1e-5), tolerance=np.float32(1.5)) == (
            wall(RUN, delta=1e-5, tolerance=1.5)
        )
