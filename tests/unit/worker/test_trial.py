"""One rung of one trial, in this process."""

from typing import Any

import numpy as np
import pytest
import torch

from tan_core.data import inspect, load_split
from tan_core.mechanism import Mechanism
from tan_core.spec import SearchSpec, TrainerConfig
from tan_core.wire import DatasetRef, MechanismMessage, SearchAssignment
from worker.trial import SMALLEST_TRIAL_STEPS, RungResult, Tensors, chosen, run_rung

STEPS = 24


@pytest.fixture(scope="module")
def digits() -> DatasetRef:
    facts = inspect(None, source="digits")
    known: dict[str, Any] = {
        name: getattr(facts, name) for name in DatasetRef.model_fields if hasattr(facts, name)
    }
    return DatasetRef.model_validate({"name": "digits", **known})


@pytest.fixture(scope="module")
def splits(digits: DatasetRef) -> dict[str, Tensors]:
    return {role: tensors(digits, role) for role in ("train", "validation")}


def tensors(digits: DatasetRef, role: Any) -> Tensors:
    split = load_split(digits, role)
    return torch.from_numpy(np.array(split.inputs)), torch.from_numpy(np.array(split.labels))


def assignment_of(digits: DatasetRef, *, noise: float = 2.0, **changes: Any) -> SearchAssignment:
    mechanism = Mechanism(
        sampling_rate=256 / digits.num_train, noise_multiplier=noise, clip_norm=1.0, steps=STEPS
    )
    return SearchAssignment.model_validate(
        {
            "run_id": "s-search",
            "study_id": "s",
            "study_name": "digits",
            "attempt": 1,
            "fence": 1,
            "search": SearchSpec.model_validate(
                {"accounting": "declared_unaccounted", "space": {"learning_rate": 1.0}}
            ),
            "model": {"name": "linear"},
            "trainer": TrainerConfig(),
            "reference": MechanismMessage(event=mechanism.to_json()),
            "target": None,
            "num_examples": digits.num_train,
            "rungs": [32, 128],
            "dataset": digits,
            "trials": [],
            **changes,
        }
    )


def simulate(
    digits: DatasetRef, splits: dict[str, Tensors], rung: int = 0, **params: Any
) -> RungResult:
    assignment = assignment_of(digits)
    return run_rung(assignment, chosen(assignment, params), rung, **splits)


@pytest.mark.parametrize(("rung", "batch", "noise"), [(0, 32, 0.25), (1, 128, 1.0)])
def test_a_rung_keeps_noise_per_example_and_steps(
    digits: DatasetRef, splits: dict[str, Tensors], rung: int, batch: float, noise: float
) -> None:
    score = simulate(digits, splits, rung, learning_rate=4.0).score
    assert score.expected_batch_size == pytest.approx(batch)
    assert score.noise_multiplier == pytest.approx(noise)
    assert score.steps == STEPS
    assert score.accuracy is not None
    assert score.accuracy > 0.5


def test_equal_trials_score_equally(digits: DatasetRef, splits: dict[str, Tensors]) -> None:
    first, again = (simulate(digits, splits, learning_rate=2.0).score for _ in range(2))
    assert (first.accuracy, first.train_loss) == (again.accuracy, again.train_loss)


def test_the_global_generators_have_no_influence(
    digits: DatasetRef, splits: dict[str, Tensors]
) -> None:
    first = simulate(digits, splits, learning_rate=2.0).score
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002 - it must not matter
    assert simulate(digits, splits, learning_rate=2.0).score.train_loss == first.train_loss


def test_a_run_that_noise_drives_off_is_given_up_early(
    digits: DatasetRef, splits: dict[str, Tensors]
) -> None:
    assignment = assignment_of(digits, noise=9000.0)
    result = run_rung(assignment, chosen(assignment, {"learning_rate": 8.0}), 0, **splits)
    assert result.diverged is not None
    assert "chance level" in result.diverged
    assert result.score.accuracy is None
    assert result.score.steps == SMALLEST_TRIAL_STEPS


def test_a_run_whose_loss_is_not_finite_is_given_up_at_once(
    digits: DatasetRef, splits: dict[str, Tensors]
) -> None:
    deep = {"name": "mlp", "hidden": [64] * 6, "activation": "relu"}
    assignment = assignment_of(digits, noise=9000.0, model=deep)
    result = run_rung(assignment, chosen(assignment, {"learning_rate": 1e9}), 0, **splits)
    assert result.diverged is not None
    assert "not finite" in result.diverged or "loss was" in result.diverged
    assert result.score.steps < STEPS


def test_searched_steps_calibrate_the_noise_to_the_target(
    digits: DatasetRef, splits: dict[str, Tensors]
) -> None:
    target = {"epsilon": 3.0, "delta": 1e-5, "accountant": "rdp"}
    assignment = assignment_of(digits, target=target)
    few, many = (chosen(assignment, {"steps": steps}).private_run.mechanism for steps in (10, 40))
    assert (few.steps, many.steps) == (10, 40)
    assert few.noise_multiplier < many.noise_multiplier
