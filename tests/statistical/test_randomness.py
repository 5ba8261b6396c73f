"""The laws of the draws, at fixed seeds. Each test says how often it would be wrong by chance."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats

from tan_core.engine import PrivateRandomness, SeededRandomness, Trainer
from tan_core.execution import PrivateRun
from tan_core.mechanism import Mechanism
from tan_core.spec.train import TrainerConfig
from tests.unit.tan_core.engine.support import ThreadRanks, in_threads, run

pytestmark = pytest.mark.statistical

KEY = bytes(range(32))
CHANCE = 1e-4
"""False-alarm rate of every single test here."""


@pytest.fixture(params=["private", "seeded"])
def randomness(request):
    return PrivateRandomness(KEY, 1) if request.param == "private" else SeededRandomness(0)


class TestNoise:
    @pytest.mark.parametrize(
        ("deviation", "is_accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)]
    )
    def test_kolmogorov_smirnov_accepts_the_right_deviation_only(
        self, randomness, deviation: float, is_accepted: bool
    ) -> None:
        noise = randomness.noise(0, 100_000).numpy()

        p_value = stats.kstest(noise, stats.norm(scale=deviation).cdf).pvalue

        assert (p_value > CHANCE) == is_accepted

    def test_moments_are_those_of_the_normal(self, randomness) -> None:
        noise = randomness.noise(0, 4_000_000).double().numpy()
        size = len(noise)

        z = [
            noise.mean() * size**0.5,
            (noise.var() - 1) / (2 / size) ** 0.5,
            stats.skew(noise) / (6 / size) ** 0.5,
            stats.kurtosis(noise) / (24 / size) ** 0.5,
        ]

        assert max(map(abs, z)) < stats.norm.isf(CHANCE / 8)

    def test_steps_and_neighbouring_values_are_uncorrelated(self, randomness) -> None:
        first, second = (randomness.noise(step, 1_000_000).numpy() for step in (0, 1))

        correlations = [first @ second, first[:-1] @ first[1:], first[::2] @ first[1::2]]

        assert max(map(abs, correlations)) / 1000 < stats.norm.isf(CHANCE / 6)


class TestMask:
    def test_size_is_binomial_at_the_exact_rate(self, randomness) -> None:
        """1,000 draws at q = .08192 from 50,000: mean 4096 and variance 3760."""
        q, n, draws = 0.08192, 50_000, 1000

        sizes = np.array(
            [len(randomness.mask(s, num_examples=n, sampling_rate=q)) for s in range(draws)]
        )

        deviation = (n * q * (1 - q) / draws) ** 0.5
        assert abs(sizes.mean() - n * q) < stats.norm.isf(CHANCE / 2) * deviation
        ratio = sizes.var(ddof=1) / (n * q * (1 - q)) * (draws - 1)
        assert stats.chi2.ppf(CHANCE / 2, draws - 1) < ratio < stats.chi2.isf(CHANCE / 2, draws - 1)

    def test_every_example_is_drawn_equally_often_and_alone(self, randomness) -> None:
        q, n, draws = 0.3, 200, 4000
        drawn = np.zeros((draws, n))
        for step in range(draws):
            drawn[step, randomness.mask(step, num_examples=n, sampling_rate=q)] = 1

        z = (drawn.mean(0) - q) / (q * (1 - q) / draws) ** 0.5
        correlation = np.corrcoef(drawn.T)[np.triu_indices(n, 1)] * draws**0.5

        assert stats.chi2.sf((z**2).sum(), n) > CHANCE
        assert abs(correlation).max() < stats.norm.isf(CHANCE / 2 / len(correlation))

    def test_two_attempts_share_no_more_than_chance(self) -> None:
        first, second = (
            PrivateRandomness(KEY, attempt).mask(0, num_examples=100_000, sampling_rate=0.5)
            for attempt in (1, 2)
        )

        shared = len(np.intersect1d(first, second))

        assert abs(shared - 25_000) < stats.norm.isf(CHANCE / 2) * (100_000 * 3 / 16) ** 0.5


class TestCut:
    """A batch above the cap keeps a part of it, every part as likely as any other."""

    def test_each_part_of_a_draw_is_kept_equally_often(self, randomness) -> None:
        """20,000 parts of 3 out of 6: a part kept a quarter too often is found with power 0.98."""
        drawn, draws = np.array([2, 3, 5, 7, 11, 13]), 20_000
        parts = {part: at for at, part in enumerate(combinations(drawn.tolist(), 3))}
        counts = np.zeros(len(parts))

        for step in range(draws):
            counts[parts[tuple(randomness.cut(step, drawn, max_batch_size=3).tolist())]] += 1

        assert stats.chisquare(counts).pvalue > CHANCE

    def test_sizes_and_members_are_those_of_truncated_poisson_batches(self, randomness) -> None:
        """N = 200, q = .3, cap 60, the mean: half of the batches are cut."""
        q, n, cap, draws = 0.3, 200, 60, 4000
        kept = np.zeros((draws, n))
        for step in range(draws):
            drawn = randomness.mask(step, num_examples=n, sampling_rate=q)
            kept[step, randomness.cut(step, drawn, max_batch_size=cap)] = 1
        sizes = kept.sum(1)

        law = stats.binom(n, q)
        expected = np.array([law.pmf(size) for size in range(cap)] + [law.sf(cap - 1)])
        bulk = expected * draws >= 5
        observed = np.bincount(sizes.astype(int), minlength=cap + 1)
        mean = (expected * np.arange(cap + 1)).sum() / n
        z = (kept.mean(0) - mean) / (mean * (1 - mean) / draws) ** 0.5
        # Equal sums over all examples make them a little dependent: one degree of freedom less.
        correlation = np.corrcoef(kept.T)[np.triu_indices(n, 1)]

        assert sizes.max() == cap
        assert (
            stats.chisquare(
                [*observed[bulk], observed[~bulk].sum()],
                draws * np.array([*expected[bulk], expected[~bulk].sum()]),
            ).pvalue
            > CHANCE
        )
        assert stats.chi2.sf((z**2).sum(), n) > CHANCE
        assert np.abs(correlation - correlation.mean()).max() * draws**0.5 < stats.norm.isf(
            CHANCE / 2 / len(correlation)
        )

    def test_what_is_kept_tells_nothing_about_the_draw_of_the_next_step(self, randomness) -> None:
        drawn, draws = np.arange(100), 4000
        first = [len(randomness.mask(s, num_examples=50, sampling_rate=0.5)) for s in range(draws)]
        second = [randomness.cut(s, drawn, max_batch_size=50).sum() for s in range(draws)]

        correlation = np.corrcoef(first, second)[0, 1] * draws**0.5

        assert abs(correlation) < stats.norm.isf(CHANCE / 2)


def noise_of_a_step(*, q: float, sigma: float = 1.7, attempt: int = 1) -> np.ndarray:
    """How far a step of the trainer moves 100,000 parameters that have no gradient, in sigma C / B."""
    size, clip_norm, num_examples = 100_000, 0.3, 80
    model = torch.nn.Linear(size // 2, 2, bias=False)
    torch.nn.init.zeros_(model.weight)
    trainer = Trainer(
        model=model,
        execution=PrivateRun(
            mechanism=Mechanism(
                sampling_rate=q, noise_multiplier=sigma, clip_norm=clip_norm, steps=1
            ),
            num_examples=num_examples,
        ),
        config=TrainerConfig(clip_norm=clip_norm),
        inputs=np.zeros((num_examples, size // 2), np.float32),
        labels=np.zeros(num_examples, np.int64),
        randomness=PrivateRandomness(KEY, attempt),
    )
    moved = run(trainer, 1).state().tensors["parameters"].numpy()
    return moved * (q * num_examples / sigma)


class TestTheNoiseOfAStep:
    """By the trainer itself: what is told apart is what reaches the weights."""

    @pytest.mark.parametrize("q", [0.5, 1e-12], ids=["drawn", "empty"])
    @pytest.mark.parametrize(
        ("deviation", "is_accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)]
    )
    def test_an_empty_draw_has_it_whole_and_no_other_deviation_passes(
        self, q: float, deviation: float, is_accepted: bool
    ) -> None:
        """100,000 values: two thirds and three halves of sigma are rejected with power 1 - 1e-100.

        The laws are 0.097 apart, against a critical distance of 0.007.
        """
        moved = noise_of_a_step(q=q)

        p_value = stats.kstest(moved, stats.norm(scale=deviation).cdf).pvalue

        assert (p_value > CHANCE) == is_accepted

    def test_two_attempts_add_independent_noise(self) -> None:
        first, second = (noise_of_a_step(q=0.5, attempt=attempt) for attempt in (1, 2))

        correlation = np.corrcoef(first, second)[0, 1] * len(first) ** 0.5

        assert abs(correlation) < stats.norm.isf(CHANCE / 2)
        assert stats.kstest(first - second, stats.norm(scale=2**0.5).cdf).pvalue > CHANCE


class TestNoisySum:
    @pytest.mark.parametrize("world_size", [1, 4])
    def test_its_deviation_is_sigma_c_over_b_on_any_number_of_ranks(self, world_size: int) -> None:
        """No gradient: zero inputs and a bias-free layer, so that a step is noise alone."""
        sigma, clip_norm, expected_batch, size = 1.7, 0.3, 40, 100_000
        execution = PrivateRun(
            mechanism=Mechanism(
                sampling_rate=0.5, noise_multiplier=sigma, clip_norm=clip_norm, steps=1
            ),
            num_examples=80,
        )
        ranks, shares = ThreadRanks(world_size), dict[int, torch.Tensor]()

        def make(rank: int) -> Trainer:
            model = torch.nn.Linear(size // 2, 2, bias=False)
            torch.nn.init.zeros_(model.weight)
            return Trainer(
                model=model,
                execution=execution,
                config=TrainerConfig(clip_norm=clip_norm),
                inputs=np.zeros((80, size // 2), np.float32),
                labels=np.zeros(80, np.int64),
                randomness=PrivateRandomness(KEY, 1),
                microbatch_size=16,
                rank=rank,
                world_size=world_size,
                all_reduce=ranks.all_reduce(rank),
            )

        def work(rank: int) -> None:
            shares[rank] = run(make(rank), 1).state().tensors["parameters"]

        in_threads(work, world_size)
        assert all(share.equal(shares[0]) for share in shares.values())
        moved = shares[0].numpy()

        expected = sigma / expected_batch  # learning rate 1 in units of one clipped gradient
        assert stats.kstest(moved, stats.norm(scale=expected).cdf).pvalue > CHANCE
        assert moved.std() == pytest.approx(expected, rel=0.01)
