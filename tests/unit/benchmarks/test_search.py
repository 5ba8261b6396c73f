"""The figures of the search's benchmark, and the runs that they are made of."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _search_report import Findings, StudyResult, expected_best
from _search_tasks import (
    CHOICES,
    RANGES,
    Task,
    candidates,
    complete,
    trained,
    trained_together,
)
from hypothesis import given
from hypothesis import strategies as st

from tan_core.execution import PrivateRun
from tan_core.mechanism import Mechanism
from tan_core.tan import LawMethod, Prediction

TASK = Task("digits", "linear", 3.0, batch_size=128, steps=12)
PARAMS = candidates()[0]


@pytest.fixture(scope="module")
def reference() -> PrivateRun:
    num_examples = TASK.ref.num_train
    mechanism = Mechanism(
        sampling_rate=128 / num_examples, noise_multiplier=2.0, clip_norm=1.0, steps=12
    )
    return PrivateRun(mechanism=mechanism, num_examples=num_examples)


def test_candidates_are_points_of_the_space() -> None:
    for params in candidates():
        assert params.keys() == RANGES.keys() | CHOICES.keys()
        assert all(low <= params[key] <= high for key, (low, high) in RANGES.items())
        assert all(params[key] in values for key, values in CHOICES.items())


def test_candidates_are_many_and_always_the_same() -> None:
    assert candidates() == candidates()
    assert len({tuple(params.values()) for params in candidates()}) == 24


def test_the_full_batch_run_has_the_noise_of_the_private_run(reference: PrivateRun) -> None:
    chosen = complete(TASK, reference, PARAMS)

    assert chosen.private_run.mechanism.noise_multiplier == 2.0
    assert chosen.private_run.mechanism.clip_norm == chosen.trainer.clip_norm == PARAMS["clip_norm"]


def test_a_run_can_be_repeated_and_another_seed_is_another_run(
    reference: PrivateRun, tmp_path: Path
) -> None:
    torch.set_num_threads(1)

    def run(seed: int) -> tuple[float, float, int]:
        made = trained(TASK, reference, PARAMS, batch_size=32, seed=seed, cache_dir=tmp_path)
        return made["validation"], made["test"], made["examples"]

    assert run(0) == run(0)
    assert run(0)[:2] != run(1)[:2]
    assert run(0)[2] == 32 * 12


def test_candidates_trained_together_reach_what_each_reaches_alone(
    reference: PrivateRun, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    at: Any = {"batch_size": 128, "seed": 3, "cache_dir": tmp_path}
    many = candidates()[:4]

    alone = [trained(TASK, reference, params, **at) for params in many]
    together = trained_together(TASK, reference, many, **at)

    for own, shared in zip(alone, together, strict=True):
        # One image of a split may fall to the other side of a rounding.
        assert shared["test"] == pytest.approx(own["test"], abs=1.5 / TASK.ref.num_test)
        assert shared["validation"] == pytest.approx(
            own["validation"], abs=1.5 / TASK.ref.num_validation
        )


accuracy = st.floats(0, 1, allow_subnormal=False)


@given(
    st.lists(st.tuples(accuracy, accuracy), min_size=1, max_size=7, unique_by=lambda pair: pair[0]),
    st.data(),
)
def test_expected_best_is_the_mean_over_every_choice(
    pairs: list[tuple[float, float]], data: st.DataObject
) -> None:
    number = data.draw(st.integers(1, len(pairs)))
    scores, values = zip(*pairs, strict=True)

    exact = np.mean([max(choice)[1] for choice in combinations(pairs, number)])

    assert expected_best(scores, values, number) == pytest.approx(exact)


def study(*, promoted: int, accuracy: float, reached: list[float]) -> StudyResult:
    return StudyResult(
        name="s",
        is_given=True,
        promoted=promoted,
        prediction=Prediction(
            accuracy=accuracy,
            low=accuracy - 0.01,
            high=accuracy + 0.01,
            level=0.9,
            slope=0.0,
            residual_std=0.0,
            seed_std=0.0,
            num_batch_sizes=3,
            method=LawMethod.LINE,
            caution=None,
        ),
        reached=reached,
        examples=60,
        seconds=30.0,
        private_run_examples=100,
    )


def findings(*studies: StudyResult) -> Findings:
    return Findings(
        task="t",
        truth=[0.5, 0.9, 0.8],
        validated=[0.5, 0.8, 0.9],
        seconds=30.0,
        contenders={1: [0.90, 0.91, 0.92], 2: [0.80, 0.99, 0.90]},
        studies=list(studies),
        simulated={8: [0.1, 0.2, 0.3]},
        peer={"test": 0.7, "trials": 1},
    )


def test_regret_is_paired_with_the_best_mean() -> None:
    found = findings(study(promoted=2, accuracy=0.9, reached=[0.80, 0.99, 0.90]))

    below, error = found.regret(found.studies[0])

    assert below == pytest.approx((10 - 8 + 2) / 3)
    assert error == pytest.approx(np.std([10, -8, 2], ddof=1) / 3**0.5)


def test_a_prediction_is_compared_with_one_run() -> None:
    found = study(promoted=1, accuracy=0.9, reached=[0.915, 0.9, 0.9])

    assert found.error == pytest.approx(-1.5)
    assert not found.holds
    assert found.cost == 0.6


def test_full_batch_gets_the_time_of_search_and_run() -> None:
    found = findings(study(promoted=1, accuracy=0.9, reached=[0.9]))

    assert found.num_affordable == 2
    assert found.at_full_batch == pytest.approx((2 * 0.8 + 0.9) / 3)
    assert found.spearman(found.simulated[8]) == pytest.approx(0.5)
