"""A mechanism holds plain numbers, whatever it is given, and says of what is none which field it is."""

import json
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest

from tan_core import Mechanism
from tan_core.accounting import price
from tan_core.errors import ParameterError
from tan_core.execution import PrivateRun, Simulation
from tan_core.mechanism import MAX_STEPS, NeighboringRelation, Sampling

RUN = Mechanism(sampling_rate=0.25, noise_multiplier=3.0, clip_norm=0.5, steps=40)
FIXED = replace(
    RUN,
    sampling=Sampling.FIXED_SIZE,
    neighboring_relation=NeighboringRelation.REPLACE_ONE,
    num_examples=1000,
)
NUMPY = {
    "int64-float64": (np.int64, np.float64),
    "uint8-float16": (np.uint8, np.float16),
    "int32-float32": (np.int32, np.float32),
    "int64-longdouble": (np.int64, np.longdouble),
}


def made_of(whole: type, real: type) -> Mechanism:
    return Mechanism(
        sampling_rate=real(0.25), noise_multiplier=whole(3), clip_norm=real(0.5), steps=whole(40)
    )


class TestNumbers:
    @pytest.mark.parametrize(("whole", "real"), NUMPY.values(), ids=NUMPY)
    def test_numbers_of_numpy_make_the_same_mechanism(self, whole, real) -> None:
        made = made_of(whole, real)

        assert made == RUN
        assert hash(made) == hash(RUN)
        assert made.fingerprint == RUN.fingerprint
        assert json.dumps(made.to_json()) == json.dumps(RUN.to_json())
        assert price([made], delta=1e-5) == price([RUN], delta=1e-5)

    @pytest.mark.parametrize(("whole", "real"), NUMPY.values(), ids=NUMPY)
    def test_what_is_kept_is_plain(self, whole, real) -> None:
        made = made_of(whole, real)
        sized = replace(FIXED, num_examples=np.int64(1000), steps=whole(7)).with_steps(whole(9))

        for each in (made, sized):
            kept = {field.name: type(getattr(each, field.name)) for field in fields(each)}
            assert {kept[name] for name in ("sampling_rate", "noise_multiplier", "clip_norm")} == {
                float
            }
            assert kept["steps"] is int
        assert type(sized.num_examples) is int
        assert sized == replace(FIXED, steps=9)

    def test_a_number_in_lower_precision_is_the_number_that_it_holds(self) -> None:
        held = np.float32(0.1)

        assert replace(RUN, sampling_rate=held).sampling_rate == float(held) != 0.1

    def test_an_array_without_a_dimension_is_the_number_that_it_holds(self) -> None:
        held = replace(FIXED, sampling_rate=np.array(0.25), steps=np.array(3))

        assert held == replace(FIXED, sampling_rate=0.25, steps=3)
        assert (type(held.sampling_rate), type(held.steps)) == (float, int)

    def test_a_fraction_is_a_number(self) -> None:
        assert replace(RUN, sampling_rate=Fraction(1, 4)) == RUN  # pyright: ignore[reportArgumentType]

    @pytest.mark.parametrize(
        "value",
        [True, np.True_, "0.25", None, np.array(True), np.array([0.25]), 0.25j, np.float32("nan"),
         np.float64("inf"), Fraction(10**400), 10**400],
        ids=lambda value: f"{value!r:.12}",
    )  # fmt: skip
    @pytest.mark.parametrize("field", ["sampling_rate", "noise_multiplier", "clip_norm"])
    def test_what_is_no_number_is_refused(self, value, field: str) -> None:
        with pytest.raises(ParameterError, match=f"^{field} must be") as refused:
            replace(RUN, **{field: value})

        assert refused.value.field == field

    @pytest.mark.parametrize(
        "value",
        [
            True,
            np.True_,
            3.0,
            np.float64(3),
            "3",
            None,
            0,
            np.int64(0),
            np.array(3.0),
            np.array([3]),
        ],
        ids=repr,
    )
    @pytest.mark.parametrize(
        ("run", "field"), [(RUN, "steps"), (FIXED, "num_examples")], ids=["steps", "num_examples"]
    )
    def test_what_is_no_count_is_refused(self, run: Mechanism, value, field: str) -> None:
        with pytest.raises(ParameterError, match=f"^{field} must be an integer >= 1") as refused:
            replace(run, **{field: value})

        assert refused.value.field == field

    @pytest.mark.parametrize("rate", [1.1, 0, -0.5, float("nan"), np.float32(2)], ids=str)
    def test_a_rate_is_refused_with_what_is_accepted(self, rate) -> None:
        with pytest.raises(ParameterError, match=r"^sampling_rate must be in \(0, 1\], got"):
            replace(RUN, sampling_rate=rate)

    def test_a_run_and_a_simulation_keep_plain_numbers(self) -> None:
        run = PrivateRun(mechanism=RUN, num_examples=np.int32(1000))
        simulation = Simulation.of(run, expected_batch_size=np.float32(25))
        stated = Simulation(
            dynamics=simulation.dynamics, num_examples=np.int64(1000), scale_factor=np.float32(10)
        )

        assert run == PrivateRun(mechanism=RUN, num_examples=1000)
        assert simulation == Simulation.of(run, expected_batch_size=25) == stated
        assert type(run.num_examples) is type(stated.num_examples) is int
        assert type(simulation.scale_factor) is type(stated.scale_factor) is float


class TestDomain:
    def test_steps_end_somewhere(self) -> None:
        assert RUN.with_steps(MAX_STEPS).steps == MAX_STEPS
        with pytest.raises(ParameterError, match="steps must be <="):
            RUN.with_steps(MAX_STEPS + 1)

    @pytest.mark.parametrize("size", [5.0001, 0.4, 1e-12])
    def test_a_batch_of_fixed_size_is_of_whole_units(self, size: float) -> None:
        """The sampler draws a whole number: the rate of another one is not what runs."""
        with pytest.raises(ParameterError, match="whole number of units"):
            replace(FIXED, sampling_rate=size / 1000)

    def test_a_rate_that_round_off_moved_is_that_of_its_batch(self) -> None:
        assert replace(FIXED, num_examples=49, sampling_rate=1 / 49 * 3).num_examples == 49


class TestFromJson:
    @pytest.mark.parametrize("change", [{"codec": 2}, {"codec": None}, {"kind": "laplace"}])
    def test_an_event_of_another_codec_or_kind_is_refused(self, change: dict) -> None:
        """A later version may mean something else by the same words."""
        with pytest.raises(ParameterError, match="unknown event codec"):
            Mechanism.from_json(RUN.to_json() | change)

    @pytest.mark.parametrize("value", [[], [1], None, 3, "{}", True], ids=repr)
    def test_a_value_that_is_no_object_is_refused(self, value) -> None:
        with pytest.raises(ParameterError, match="an event must be a JSON object, got") as refused:
            Mechanism.from_json(value)

        assert refused.value.field == "event"

    @pytest.mark.parametrize("run", [RUN, FIXED], ids=["poisson", "fixed_size"])
    def test_a_missing_field_is_named(self, run: Mechanism) -> None:
        written = run.to_json()

        for name in written.keys() - {"codec", "kind"}:
            with pytest.raises(ParameterError, match="malformed event .*" + name) as refused:
                Mechanism.from_json({key: own for key, own in written.items() if key != name})
            assert refused.value.field == name

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("sampling_rate", "0x1.8p+1"),
            ("sampling_rate", 0.25),
            ("noise_multiplier", "0x0p+0"),
            ("noise_multiplier", "0x1p+99999"),
            ("noise_multiplier", "0xyz"),
            ("clip_norm", "10"),
            ("clip_norm", None),
            ("steps", 0),
            ("steps", "40"),
            ("steps", MAX_STEPS + 1),
            ("sampling", "shuffled"),
            ("sampling", []),
            ("neighboring_relation", "add"),
            ("num_examples", 10),
            ("max_batch_size", 10),
        ],
    )
    def test_a_malformed_field_is_named(self, field: str, value) -> None:
        with pytest.raises(ParameterError, match="malformed event") as refused:
            Mechanism.from_json({**RUN.to_json(), field: value})

        assert refused.value.field == field

    def test_unknown_keys_of_any_kind_are_named(self) -> None:
        with pytest.raises(ParameterError, match=r"unknown keys in event: \[1, 'x'\]") as refused:
            Mechanism.from_json({**RUN.to_json(), "x": 1, 1: 2})  # pyright: ignore[reportArgumentType]

        assert refused.value.field == "event"

    def test_a_number_beyond_every_float_is_malformed(self) -> None:
        with pytest.raises(ParameterError, match="malformed event") as refused:
            Mechanism.from_json({**FIXED.to_json(), "num_examples": 10**400})

        assert refused.value.field == "num_examples"
