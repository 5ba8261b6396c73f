"""Draws and noise: exact probabilities, streams that never meet, nothing global."""

import pickle
import tracemalloc
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
import torch

from tan_core.engine import PrivateRandomness, SeededRandomness, native
from tan_core.engine import randomness as randomness_module
from tan_core.engine.randomness import _WORDS_AT_ONCE, Purpose, _below, _box_muller
from tan_core.errors import ParameterError

KEY = bytes(range(32))


@pytest.fixture(params=["private", "seeded"])
def make(request):
    """Makes equal objects of one kind: a private stream is only given once by each."""
    if request.param == "private":
        return lambda: PrivateRandomness(KEY, 1)
    return lambda: SeededRandomness(7, 3)


def draw(randomness, step: int = 0):
    mask = randomness.mask(step, num_examples=1000, sampling_rate=0.3)
    return mask, randomness.noise(step, 501), randomness.augmentation(step).initial_seed()


def same(first, second) -> list[bool]:
    return [
        np.array_equal(first[0], second[0]),
        torch.equal(first[1], second[1]),
        first[2] == second[2],
    ]


class TestBoth:
    def test_equal_seeds_draw_equally_whatever_the_global_seeds_are(self, make) -> None:
        torch.manual_seed(1)
        np.random.seed(1)  # noqa: NPY002 the global state is the point
        first = draw(make())
        torch.manual_seed(2)
        np.random.seed(2)  # noqa: NPY002 the global state is the point

        assert same(first, draw(make())) == [True, True, True]

    def test_drawing_does_not_move_the_global_generators(self, make) -> None:
        torch_before = torch.get_rng_state()
        numpy_before = np.random.get_state()[1].copy()  # noqa: NPY002 the global state is the point

        draw(make())

        assert torch.equal(torch.get_rng_state(), torch_before)
        assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002 as above

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_noise_is_added_times_its_deviation(self, make, dtype: torch.dtype) -> None:
        total = torch.arange(501, dtype=dtype)

        make().add_noise(0, total, 2.5)

        expected = torch.arange(501) + 2.5 * make().noise(0, 501).double()
        assert torch.allclose(total.double(), expected, rtol=1e-6)

    @pytest.mark.parametrize("shares", [1, 2, 3, 7])
    @pytest.mark.parametrize("size", [1, 2, 5, 500, 501])
    def test_shares_are_the_whole_noise_each_number_once(
        self, make, size: int, shares: int
    ) -> None:
        parts = torch.zeros(shares, size, dtype=torch.float64)
        for share in range(shares):
            make().add_noise(3, parts[share], 2.5, share=share, shares=shares)

        assert (parts != 0).sum(0).tolist() == [1] * size
        assert torch.equal(parts.sum(0), make().noise(3, size).double() * 2.5)

    @pytest.mark.parametrize("shares", [1, 3])
    @pytest.mark.parametrize("size", [12, 13, 501])
    def test_private_noise_is_the_same_however_many_are_made_at_once(
        self, monkeypatch: pytest.MonkeyPatch, size: int, shares: int
    ) -> None:
        monkeypatch.setattr(randomness_module, "_PAIRS_AT_ONCE", 3)
        total = torch.zeros(size, dtype=torch.float64)
        for share in range(shares):
            PrivateRandomness(KEY, 1).add_noise(3, total, 1.0, share=share, shares=shares)

        assert torch.equal(total, PrivateRandomness(KEY, 1).noise(3, size))
        assert len(total.unique()) == size

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("threads", [1, 3])
    @pytest.mark.parametrize("size", [1, 2, 1023, 1025, 4098])
    def test_private_noise_is_rounded_once_whatever_the_threads(
        self, size: int, threads: int, dtype: torch.dtype
    ) -> None:
        if not native.is_available():
            pytest.skip("the kernels are not compiled")
        total = torch.linspace(-1, 1, size, dtype=dtype)
        noisy = total.double() + 0.3 * PrivateRandomness(KEY, 1).noise(3, size)
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(threads)
            PrivateRandomness(KEY, 1).add_noise(3, total, 0.3)
        finally:
            torch.set_num_threads(before)

        assert torch.equal(total, noisy.to(dtype))

    def test_private_noise_is_added_to_what_no_kernel_reads(self) -> None:
        strided, halves = torch.zeros(1002)[::2], torch.zeros(501, dtype=torch.bfloat16)
        for total in (strided, halves):
            PrivateRandomness(KEY, 1).add_noise(3, total, 1.0)
            assert torch.equal(total, PrivateRandomness(KEY, 1).noise(3, 501).to(total.dtype))

    def test_every_step_draws_afresh(self, make) -> None:
        randomness = make()

        assert same(draw(randomness, 0), draw(randomness, 1)) == [False, False, False]

    def test_a_mask_holds_rising_indices_of_the_dataset(self, make) -> None:
        mask = make().mask(0, num_examples=1000, sampling_rate=0.3)

        assert mask.dtype == np.int64
        assert (np.diff(mask) > 0).all()
        assert mask.min() >= 0
        assert mask.max() < 1000

    def test_a_cut_keeps_rising_indices_of_the_draw_and_leaves_the_draw_alone(self, make) -> None:
        drawn = draw(make())[0]
        randomness = make()

        kept = randomness.cut(0, drawn, max_batch_size=100)

        assert len(kept) == 100
        assert (np.diff(kept) > 0).all()
        assert set(kept) < set(drawn)
        assert np.array_equal(draw(randomness)[0], drawn)
        assert np.array_equal(make().cut(0, drawn, max_batch_size=100), kept)
        assert not np.array_equal(make().cut(1, drawn, max_batch_size=100), kept)

    @pytest.mark.parametrize("size", [0, 1, 99, 100])
    def test_a_draw_that_is_not_above_the_cap_stays_whole(self, make, size: int) -> None:
        drawn = np.arange(size)

        assert np.array_equal(make().cut(0, drawn, max_batch_size=100), drawn)

    def test_a_cap_below_one_is_refused(self, make) -> None:
        with pytest.raises(ParameterError, match="max_batch_size"):
            make().cut(0, np.arange(3), max_batch_size=0)

    def test_rate_one_draws_everybody_and_a_tiny_rate_nobody(self, make) -> None:
        randomness = make()

        assert len(randomness.mask(0, num_examples=50, sampling_rate=1.0)) == 50
        assert len(randomness.mask(1, num_examples=50, sampling_rate=1e-12)) == 0

    def test_noise_is_of_any_size(self, make) -> None:
        randomness = make()

        assert [randomness.noise(step, size).shape for step, size in enumerate((0, 1, 2, 7))] == [
            (0,), (1,), (2,), (7,)
        ]  # fmt: skip

    @pytest.mark.parametrize(("count", "rate"), [(0, 0.5), (10, 1.5), (10, float("nan"))])
    def test_a_draw_outside_its_domain_is_refused(self, make, count: int, rate: float) -> None:
        with pytest.raises(ParameterError):
            make().mask(0, num_examples=count, sampling_rate=rate)


class TestPrivateRandomness:
    def test_another_attempt_or_key_draws_afresh(self) -> None:
        first = draw(PrivateRandomness(KEY, 1))

        assert same(first, draw(PrivateRandomness(KEY, 2))) == [False, False, False]
        assert same(first, draw(PrivateRandomness(KEY[::-1], 1))) == [False, False, False]

    def test_no_stream_is_given_twice(self) -> None:
        randomness = PrivateRandomness(KEY, 1)
        draw(randomness, 3)

        for step in (3, 2):
            with pytest.raises(ParameterError, match="must not be drawn again"):
                randomness.noise(step, 1)
            with pytest.raises(ParameterError, match="must not be drawn again"):
                randomness.mask(step, num_examples=1, sampling_rate=0.5)

    def test_a_sum_in_float64_gets_noise_of_as_many_digits(self) -> None:
        """Of 24 bits on 53, what is left of a noisy sum without the right one is in float32, and without any other it is not."""
        total = torch.zeros(501, dtype=torch.float64)

        PrivateRandomness(KEY, 1).add_noise(0, total, 1.0)

        assert torch.equal(total, PrivateRandomness(KEY, 1).noise(0, 501))
        assert float((total == total.float()).double().mean()) < 0.01

    @pytest.mark.parametrize("rate", [1e-4, 0.3, 1.0])
    def test_a_draw_in_pieces_is_that_of_all_words_at_once(self, rate: float) -> None:
        """One more than two pieces, and the examples that stand at the ends of them."""
        number = 2 * _WORDS_AT_ONCE + 1
        words = PrivateRandomness(KEY, 1)._words("mask", 3, number)
        expected = [i for i, word in enumerate(words.tolist()) if word < int(rate * 2**64)]

        found = PrivateRandomness(KEY, 1).mask(3, num_examples=number, sampling_rate=rate)

        assert found.tolist() == expected
        assert found.dtype == np.int64

    def test_a_draw_of_many_examples_takes_little_memory(self) -> None:
        tracemalloc.start()
        try:
            PrivateRandomness(KEY, 1).mask(0, num_examples=2**22, sampling_rate=1e-4)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert most < 2**22

    def test_the_mask_tells_nothing_about_the_noise(self) -> None:
        randomness = PrivateRandomness(KEY, 1)

        words = [randomness._words(p, 0, 64) for p in get_args(Purpose)]

        assert len(np.unique(np.concatenate(words))) == len(words) * 64

    def test_a_longer_draw_begins_like_a_shorter_one(self) -> None:
        short = PrivateRandomness(KEY, 1)._words("mask", 0, 5)
        long = PrivateRandomness(KEY, 1)._words("mask", 0, 1001)

        assert np.array_equal(short, long[:5])

    def test_views_are_those_of_no_seed(self) -> None:
        """Of a seed torch takes 32 bits: whoever tries them all would know which views each example got."""
        views = PrivateRandomness(KEY, 1).augmentation(3)
        seed = views.initial_seed()

        drawn = torch.rand(8, generator=views)

        for tried in (seed, seed % 2**32, seed >> 32):
            other = torch.Generator().manual_seed(tried)
            assert not torch.equal(torch.rand(8, generator=other), drawn)

    def test_views_have_all_bits_of_a_state_from_their_stream(self) -> None:
        """NumPy's generator of the same kind, with that state, draws the very numbers."""
        words = PrivateRandomness(KEY, 1)._words("augmentation", 3, 313)[1:]
        other = np.random.MT19937()
        state = other.state["state"] | {"key": words.view(np.uint32), "pos": 624}
        other.state = other.state | {"state": state}

        views = PrivateRandomness(KEY, 1).augmentation(3)
        drawn = torch.randint(0, 2**16, (2000,), generator=views)

        assert len(np.unique(words)) == 312
        assert drawn.tolist() == (other.random_raw(2000) % 2**16).tolist()

    def test_the_key_shows_up_nowhere(self) -> None:
        randomness = PrivateRandomness(KEY, 1)

        for text in (repr(randomness), str(randomness), f"{randomness!r:>10}"):
            assert KEY.hex() not in text
            assert repr(KEY) not in text
        with pytest.raises(TypeError, match="never serialised"):
            pickle.dumps(randomness)

    @pytest.mark.parametrize("key", [b"short", bytes(33), "a" * 32])
    def test_a_wrong_key_is_refused_without_being_shown(self, key) -> None:
        with pytest.raises(ParameterError, match=r"^key must be 32 bytes$"):
            PrivateRandomness(key, 1)

    def test_an_attempt_may_be_a_number_of_numpy(self) -> None:
        assert all(same(*(draw(PrivateRandomness(KEY, number)) for number in (2, np.int64(2)))))

    def test_attempts_start_at_one(self) -> None:
        with pytest.raises(ParameterError, match="attempt must be an integer >= 1"):
            PrivateRandomness(KEY, 0)


class TestSeededRandomness:
    def test_another_stream_or_seed_draws_afresh(self) -> None:
        first = draw(SeededRandomness(7, 3))

        assert same(first, draw(SeededRandomness(7, 4))) == [False, False, False]
        assert same(first, draw(SeededRandomness(8, 3))) == [False, False, False]

    @pytest.mark.parametrize("seed", [1.5, "7", None, -1, 2**63], ids=repr)
    def test_a_seed_is_a_whole_number(self, seed) -> None:
        with pytest.raises(ParameterError, match=r"seed must be an integer in \[0, 2\*\*63\), got"):
            SeededRandomness(seed)

        assert same(draw(SeededRandomness(np.int64(7))), draw(SeededRandomness(7))) == [True] * 3

    def test_a_step_may_be_drawn_again(self) -> None:
        randomness = SeededRandomness(7)

        assert same(draw(randomness), draw(randomness)) == [True, True, True]

    @pytest.mark.parametrize("has_kernels", [True, False])
    def test_noise_is_the_same_whatever_type_torch_makes_by_default(
        self, has_kernels: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not has_kernels:
            monkeypatch.setattr(native, "is_available", lambda: False)
        expected = SeededRandomness(7).noise(3, 9)
        torch.set_default_dtype(torch.float64)
        try:
            found = SeededRandomness(7).noise(3, 9)
        finally:
            torch.set_default_dtype(torch.float32)

        assert found.dtype == torch.float32
        assert torch.equal(found, expected)


class TestThreshold:
    @pytest.mark.parametrize("rate", [0.5, 128 / 1295, 0.08192, 1e-3, 2**-40, 1 - 2**-53])
    def test_the_number_of_words_that_are_drawn_is_exactly_the_rate(self, rate: float) -> None:
        drawn = int(Fraction(rate) * 2**64)  # words 0 .. drawn - 1 are below the threshold

        around = np.array([0, drawn - 1, drawn, 2**64 - 1], dtype=np.uint64)

        assert _below(around, rate).tolist() == [0, 1]

    def test_rounding_never_samples_more_than_was_priced(self) -> None:
        rate = 3 * 2.0**-66  # 0.75 of one word

        assert len(_below(np.array([0], dtype=np.uint64), rate)) == 0


@pytest.fixture(params=[True, False], ids=["kernel", "torch"])
def is_compiled(request, monkeypatch) -> None:
    """Where no compiler was at hand torch makes the noise."""
    if request.param and not native.is_available():
        pytest.skip("the kernels are not compiled")
    monkeypatch.setattr(native, "is_available", lambda: request.param)


@pytest.mark.usefixtures("is_compiled")
class TestBoxMuller:
    def test_the_extreme_words_give_finite_noise(self) -> None:
        words = np.array([0, 2**64 - 1, 2**64 - 2**11, 2**63], dtype=np.uint64)
        radii, angles = (each.ravel() for each in np.meshgrid(words, [*words, np.uint64(2**61)]))

        noise = _box_muller(radii, angles)

        assert noise.isfinite().all()
        assert float(noise.abs().max()) == pytest.approx((128 * np.log(2)) ** 0.5, rel=1e-12)
        assert not noise[:, radii == 2**64 - 1].any()

    def test_each_of_the_lowest_words_has_a_radius_of_its_own(self) -> None:
        """Of less than all 64 bits the tail would have gaps, by which a pair told would tell its sum."""
        lowest = np.arange(2**12, dtype=np.uint64)

        radius, across = _box_muller(lowest, np.full_like(lowest, 2**61)).numpy()  # an angle of 0

        assert radius == pytest.approx(
            np.sqrt(-2 * np.log((np.arange(2**12) + 1) * 2.0**-64)), rel=1e-14
        )
        assert len(np.unique(radius)) == len(lowest)
        assert across == pytest.approx(0, abs=1e-14)

    def test_numbers_are_those_of_more_digits(self) -> None:
        """Beside NumPy's long double, which has eleven bits more: in all quarters of the turn, near each of its axes, and in the tails."""
        if np.finfo(np.longdouble).nmant < 63:
            pytest.skip("a long double has no more digits than a double here")
        random, size = np.random.default_rng(0), 200_000
        radii, angles = random.integers(0, 2**64, (2, size), dtype=np.uint64)
        some = slice(0, size // 10)
        radii[some] = random.integers(0, 2**64, size // 10, dtype=np.uint64) >> random.integers(
            0, 64, size // 10, dtype=np.uint64
        )
        radii[some] ^= np.uint64(2**64 - 1) * random.integers(0, 2, size // 10, dtype=np.uint64)
        axes = (random.integers(0, 8, size // 10, dtype=np.uint64) << np.uint64(61)).astype("<u8")
        angles[-size // 10 :] = axes + random.integers(0, 2**20, size // 10, dtype=np.uint64)

        found = _box_muller(radii, angles).numpy()

        exact = np.longdouble
        radius = np.sqrt(-2 * np.log((radii.astype(np.float64) + 1).astype(exact) / exact(2) ** 64))
        turn = (angles >> np.uint64(10)).astype(exact) / exact(2) ** 54
        pi = 4 * np.arctan(exact(1))
        for part, of in zip(found, (np.cos, np.sin), strict=True):
            truth = radius * of(2 * pi * turn - pi / 4)
            # What is small because of the angle is exact to what its radius is.
            assert float(np.abs((part - truth) / np.maximum(radius, 1e-300)).max()) < 1e-15


def test_with_and_without_kernels_noise_is_the_same_but_for_rounding(monkeypatch) -> None:
    if not native.is_available():
        pytest.skip("the kernels are not compiled")
    compiled = PrivateRandomness(KEY, 1).noise(0, 10_001)
    monkeypatch.setattr(native, "is_available", lambda: False)
    assert (PrivateRandomness(KEY, 1).noise(0, 10_001) - compiled).abs().max() < 1e-14
