"""A trial that is charged: what it asks for before it runs, and all that it tells."""

import math
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tan_core.data import inspect, load_split
from tan_core.engine import PrivateRandomness, checkpoint
from tan_core.engine.inputs import as_floats
from tan_core.engine.trainer import Trainer
from tan_core.errors import ParameterError
from tan_core.mechanism import Mechanism
from tan_core.spec.study import Metric
from tan_core.spec.train import TrainerConfig
from tan_core.wire import DatasetRef, SearchAssignment, TrialState, TrialWeights, weights_path
from tests.privacy_faults import TRIAL_FAULTS, Fault
from tests.support.assignments import search_assignment
from tests.support.datasets import dataset_ref
from worker.begin import go_on_from, model_for
from worker.charged import ChargedRun, NotChargedError, units_told_right
from worker.metric import alike
from worker.report import UnreachableError
from worker.rung import Data, chosen
from worker.searcher import wanted_repeat
from worker.trial import SimulatedTrial, TrialData

STEPS = 12
NOISE = 20.0


@pytest.fixture(scope="module")
def digits() -> DatasetRef:
    return dataset_ref(inspect(None, source="digits"))


@pytest.fixture(scope="module")
def data(digits: DatasetRef) -> Data:
    def tensors(role: Any) -> tuple[torch.Tensor, torch.Tensor]:
        split = load_split(digits, role)
        return torch.from_numpy(np.array(split.inputs)), torch.from_numpy(np.array(split.labels))

    return Data(train=tensors("train"), validation=tensors("validation"))


def assignment_of(
    digits: DatasetRef,
    *,
    noise: float = 2.0,
    score_noise: float = NOISE,
    steps: int = STEPS,
    metric: str = "accuracy",
    **changes: Any,
) -> SearchAssignment:
    mechanism = Mechanism(
        sampling_rate=128 / digits.num_train, noise_multiplier=noise, clip_norm=1.0, steps=steps
    )
    run = Mechanism(
        sampling_rate=256 / digits.num_train,
        noise_multiplier=2 * noise,
        clip_norm=1.0,
        steps=steps,
    )
    return search_assignment(
        digits,
        mechanism=run,
        search={"accounting": "accounted", "space": {"learning_rate": 1.0}, "metric": metric},
        **changes,
        rungs=[128],
        charged={
            "mechanism": {"event": mechanism.to_json()},
            "score_noise_multiplier": score_noise,
        },
    )


def begun(
    assignment: SearchAssignment,
    data: Data,
    *,
    charge: Callable[[int], int] = lambda steps: steps,
    rate: float = 1.0,
) -> ChargedRun:
    charged = assignment.charged
    assert charged is not None
    candidate = chosen(assignment, {"learning_rate": rate})
    return ChargedRun(assignment, charged, candidate, data, charge=charge)


def finished(run: ChargedRun) -> ChargedRun:
    while not run.is_over:
        run.advance()
    return run


def test_it_is_charged_whole_before_its_first_step(
    digits: DatasetRef, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[Any] = []
    step = Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda self: log.append("step") or step(self))

    def charge(steps: int) -> int:
        log.append(steps)
        return steps

    finished(begun(assignment_of(digits), data, charge=charge))

    assert log == [STEPS, *["step"] * STEPS]


def test_a_trial_that_does_not_fit_is_not_charged(
    digits: DatasetRef, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def rehearse(self: Trainer, *, num_scored: int) -> None:
        asked.append(num_scored)
        raise torch.OutOfMemoryError

    monkeypatch.setattr(Trainer, "rehearse", rehearse)
    with pytest.raises(torch.OutOfMemoryError):
        begun(assignment_of(digits), data, charge=lambda steps: pytest.fail("it was charged"))
    assert asked == [digits.num_validation]


@pytest.mark.parametrize("granted", [0, STEPS - 1])
def test_where_less_is_granted_nothing_runs(
    digits: DatasetRef, data: Data, monkeypatch: pytest.MonkeyPatch, granted: int
) -> None:
    monkeypatch.setattr(Trainer, "step", lambda self: pytest.fail("a step was not charged"))

    with pytest.raises(NotChargedError, match="reservation is used up"):
        begun(assignment_of(digits), data, charge=lambda steps: granted)


def test_what_runs_is_the_mechanism_that_was_charged_with_noise_of_its_own(
    digits: DatasetRef, data: Data
) -> None:
    assignment = assignment_of(digits)
    run = begun(assignment, data)

    assert assignment.charged is not None
    event = assignment.charged.mechanism.event
    assert run._trainer.mechanism == Mechanism.from_json(event)
    assert isinstance(run._trainer._randomness, PrivateRandomness)
    assert run.score.noise_multiplier == 2.0
    assert run.score.expected_batch_size == pytest.approx(128)


def test_two_trials_of_one_choice_share_neither_draws_nor_noise_nor_weights(
    digits: DatasetRef, data: Data
) -> None:
    first, other = (finished(begun(assignment_of(digits), data)) for _ in range(2))

    assert not torch.equal(first._trainer.released, other._trainer.released)
    # The weights would differ by where they began alone.
    noise = [run._randomness.noise(STEPS + 1, 8) for run in (first, other)]
    assert not torch.equal(*noise)


def test_all_that_is_told_is_the_score(digits: DatasetRef, data: Data) -> None:
    run = begun(assignment_of(digits), data)
    while not run.is_over:
        on_the_way = run.score
        assert (on_the_way.accuracy, on_the_way.curve) == (None, [])
        run.advance()

    score = run.score
    assert score.accuracy is not None
    assert (score.train_loss, score.released, score.clipped_fraction) == (None, None, None)
    told = {name for name, value in score.model_dump().items() if value is not None}
    assert told == {"rung", "seed", "expected_batch_size", "noise_multiplier", "steps", "views", "accuracy", "seconds", "curve"}  # fmt: skip
    assert [(point.step, point.accuracy) for point in score.curve] == [(STEPS, score.accuracy)]
    assert score.steps == STEPS


def test_neither_losses_nor_accuracies_decide_whether_it_goes_on(
    digits: DatasetRef, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a rate at which it stays at chance with a rising loss: no look at the records ends it."""
    looks: list[str] = []
    hits = Trainer.hits

    def counted(self: Trainer, *args: Any, **options: Any) -> torch.Tensor:
        looks.append("hits")
        return hits(self, *args, **options)

    monkeypatch.setattr(Trainer, "hits", counted)
    run = finished(begun(assignment_of(digits), data, rate=50.0))

    assert run.diverged is None
    assert run.score.steps == STEPS
    assert looks == ["hits"]


def test_weights_that_are_no_numbers_end_it(digits: DatasetRef, data: Data) -> None:
    """They are noisy sums, which are paid for."""
    run = begun(assignment_of(digits, steps=64), data)
    run.advance()
    run._trainer._flat.vector.fill_(math.nan)
    finished(run)

    assert run.diverged is not None
    assert "not finite" in run.diverged
    assert run.weights is None
    assert run.score.accuracy is None


def test_the_noise_on_a_score_is_what_was_charged(digits: DatasetRef, data: Data) -> None:
    """Counts less what is really told right: a standard deviation of 20, told from 14 and from 28."""
    run = finished(begun(assignment_of(digits), data))
    _, labels = data.validation
    weights = run._mean.weights
    hits = int(run._trainer.hits(*data.validation, weights=weights).sum())
    found = []
    for attempt in range(400):
        run._randomness = PrivateRandomness(bytes(32), attempt + 1)
        found.append(run._noisy_accuracy() * len(labels))
    within = [count for count in found if 0 < count < len(labels)]
    deviations = np.array(within) - hits

    assert len(within) > 350  # else what is cut at 0 and 1 would say little of the rest
    assert abs(deviations.mean()) < 4 * NOISE / math.sqrt(len(within))
    assert 0.85 * NOISE < deviations.std() < 1.15 * NOISE


def test_the_digits_of_a_score_do_not_tell_the_count(digits: DatasetRef, data: Data) -> None:
    """Who knows how noise is made takes each count that there may be off a score, and looks for one that leaves such a number."""
    noise = 19.37
    run = finished(begun(assignment_of(digits, score_noise=noise), data))
    _, labels = data.validation
    hits = int(run._trainer.hits(*data.validation, weights=run._mean.weights).sum())
    counts = np.arange(len(labels) + 1)
    guessed = []
    for attempt in range(200):
        run._randomness = PrivateRandomness(bytes(32), attempt + 1)
        accuracy = run._noisy_accuracy()
        if 0 < accuracy < 1:
            left = (accuracy * len(labels) - counts) / noise
            grid = np.spacing(np.abs(left).astype(np.float32)).astype(float)
            off = np.abs(left / grid - np.round(left / grid))
            guessed.append(int(counts[np.argmin(off)]))

    assert len(guessed) > 150
    assert guessed.count(hits) < len(guessed) / 10


SHARES = [1.0, 2.0, *[4.0] * 8]


def balanced(digits: DatasetRef, *, score_noise: float = NOISE) -> SearchAssignment:
    trainer = TrainerConfig(class_shares=SHARES)
    return assignment_of(
        digits, score_noise=score_noise, metric="balanced_accuracy", trainer=trainer
    )


@settings(report_multiple_bugs=False)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=2, max_size=40),
    st.integers(0, 39),
)
def test_of_a_balanced_score_no_record_counts_more_than_one(records, at: int) -> None:
    """Whatever the others are: the count with it less that without it."""
    hits = torch.tensor([hit for hit, _ in records])
    labels = torch.tensor([label for _, label in records])
    others = torch.arange(len(hits)) != at % len(hits)

    def count(of: torch.Tensor) -> float:
        counts = alike(labels[of], SHARES, Metric.BALANCED_ACCURACY)
        return units_told_right(hits[of], None, counts)[0]

    moved = count(torch.ones_like(others)) - count(others)
    assert 0 <= moved <= 1
    assert moved == (SHARES[0] / SHARES[int(labels[~others])] if bool(hits[~others]) else 0)


def test_a_balanced_score_is_a_part_of_what_is_stated_and_not_of_what_is_there(
    digits: DatasetRef, data: Data
) -> None:
    """Of ten classes, the rarest with a part of 35: all hits count N * 10 / 35 together, if it is so."""
    run = finished(begun(balanced(digits, score_noise=1e-9), data))
    _, labels = data.validation
    hits = run._trainer.hits(*data.validation, weights=run._mean.weights)
    expected = float((hits / torch.tensor(SHARES)[labels]).sum()) / (len(labels) * 10 / 35)

    assert run.score.accuracy == pytest.approx(min(expected, 1.0), abs=1e-3)


def test_the_noise_on_a_balanced_score_is_what_was_charged(digits: DatasetRef, data: Data) -> None:
    run = finished(begun(balanced(digits, score_noise=5.0), data))
    whole = len(data.validation[1]) * 10 / 35
    found = []
    for attempt in range(400):
        run._randomness = PrivateRandomness(bytes(32), attempt + 1)
        found.append(run._noisy_accuracy() * whole)
    within = np.array([count for count in found if 0 < count < whole])

    assert len(within) > 350
    assert 0.85 * 5 < within.std() < 1.15 * 5


@pytest.fixture(scope="module")
def data_of_users(digits: DatasetRef, data: Data) -> Data:
    """The validation records as those of 40 users, of one to twenty records each."""
    generator = np.random.default_rng(0)
    sizes = generator.integers(1, 20, 40)
    owners = generator.choice(40, len(data.validation[1]) - 40, p=sizes / sizes.sum())
    users = torch.from_numpy(generator.permutation(np.concatenate([np.arange(40), owners])))
    return replace(data, validation_users=users)


def of_users(digits: DatasetRef, **changes: Any) -> SearchAssignment:
    assignment = assignment_of(digits, **changes)
    ref = digits.model_copy(update={"unit": "writer"})
    return assignment.model_copy(update={"dataset": ref})


def test_a_score_of_users_is_the_mean_of_what_is_right_of_each(
    digits: DatasetRef, data_of_users: Data
) -> None:
    run = finished(begun(of_users(digits, score_noise=1e-9), data_of_users))
    hits = run._trainer.hits(*data_of_users.validation, weights=run._mean.weights)
    users = data_of_users.validation_users
    assert users is not None

    of_each = [float(hits[users == user].double().mean()) for user in range(40)]

    assert run.score.accuracy == pytest.approx(sum(of_each) / 40, abs=1e-3 / 40)
    assert abs(sum(of_each) / 40 - float(hits.double().mean())) > 1e-4


def test_a_score_of_users_is_refused_where_nobody_knows_whose_records_they_are(
    digits: DatasetRef, data: Data
) -> None:
    def charge(steps: int) -> int:
        pytest.fail("nothing may be charged")

    with pytest.raises(ParameterError, match="whose the validation records are"):
        begun(of_users(digits), data, charge=charge)


@given(
    records=st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=60),
    gone=st.integers(0, 6),
)
def test_a_user_moves_a_count_by_at_most_one(records: list[tuple[int, bool]], gone: int) -> None:
    """However many records it has; and all others count what they did, to the last bit."""
    whole, num_users = counted(records)
    left = [record for record in records if record[0] != gone]
    without, num_left = counted(left)
    own = [hit for user, hit in records if user == gone]

    assert 0 <= whole - without <= 1
    assert num_users - num_left == bool(own)
    if own:
        alone, _ = counted([(gone, hit) for hit in own])
        assert whole - without == alone
        assert alone == pytest.approx(sum(own) / len(own), abs=1e-9)


def counted(records: list[tuple[int, bool]]) -> tuple[float, int]:
    if not records:
        return 0.0, 0
    users, hits = zip(*records, strict=True)
    numbered = np.unique(users, return_inverse=True)[1]
    return units_told_right(torch.tensor(hits), torch.from_numpy(numbered))


def test_an_accuracy_stays_one(digits: DatasetRef, data: Data) -> None:
    accuracies = {
        finished(begun(assignment_of(digits, score_noise=1e6), data)).score.accuracy
        for _ in range(12)
    }

    assert accuracies == {0.0, 1.0}


def test_it_leaves_the_weights_that_were_scored_and_a_run_begins_with_them(
    digits: DatasetRef, data: Data, tmp_path: Path
) -> None:
    """Not the last ones of the trial: the mean of them that its score is of."""
    assignment = assignment_of(digits, score_noise=1e-9)
    run = begun(assignment, data)
    assert run.weights is None
    score = finished(run).score
    weights = run.weights
    assert weights is not None
    sha256 = checkpoint.keep_weights(weights, lambda digest: tmp_path / f"{digest}.safetensors")
    left = TrialWeights(trial=0, path=str(tmp_path / f"{sha256}.safetensors"), sha256=sha256)

    model = model_for(
        assignment, assignment.model, generator=torch.Generator().manual_seed(1), checkpoint=None
    )
    go_on_from(model, left)

    inputs, labels = data.validation
    with torch.no_grad():
        right = (model(as_floats(inputs, torch.float32)).argmax(1) == labels).sum()
    assert float(right) / len(labels) == pytest.approx(score.accuracy, abs=2e-3)
    assert not torch.equal(run.trainer.released_weights()["1.weight"], weights["1.weight"])  # fmt: skip


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_trial_keeps_its_weights_where_it_is_told_to(
    digits: DatasetRef, data: Data, tmp_path: Path, is_asked: bool
) -> None:
    folder = str(tmp_path) if is_asked else None
    assignment = assignment_of(digits).model_copy(update={"weights_storage_path": folder})
    trial = object.__new__(SimulatedTrial)
    trial._assignment, trial._number = assignment, 3

    sha256 = trial._kept(finished(begun(assignment, data)))

    files = [str(file) for file in tmp_path.iterdir()]
    if not is_asked:
        assert (sha256, files) == (None, [])
        return
    assert sha256 is not None
    assert files == [weights_path(str(tmp_path), trial=3, sha256=sha256)]


def test_a_full_disk_costs_the_weights_and_not_the_trial(
    digits: DatasetRef, data: Data, tmp_path: Path
) -> None:
    (tmp_path / "full").write_bytes(b"")  # a file, so that no folder can be made there
    update = {"weights_storage_path": str(tmp_path / "full")}
    assignment = assignment_of(digits).model_copy(update=update)
    trial = object.__new__(SimulatedTrial)
    trial._assignment, trial._number = assignment, 3

    assert trial._kept(finished(begun(assignment, data))) is None


def test_a_trial_goes_on_from_what_another_has_left(
    digits: DatasetRef, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a part of its learning rate; and where the file is not there, nothing is charged."""
    assignment = assignment_of(digits).model_copy(update={"weights_storage_path": str(tmp_path)})
    first = object.__new__(SimulatedTrial)
    first._assignment, first._number = assignment, 0
    left = finished(begun(assignment, data))
    sha256 = first._kept(left)
    assert left.weights is not None
    trial = object.__new__(SimulatedTrial)
    trial._assignment, trial._shared = assignment, TrialData(splits={})
    trial._pulse, trial._settings = SimpleNamespace(beat=lambda: None), None  # type: ignore[assignment]
    trial._data = (assignment.model.features, data)
    trial._charge = lambda steps: steps  # type: ignore[method-assign]

    def at_first(factor: float, digest: str | None) -> Trainer:
        start = {"trial": 0, "weights_sha256": digest, "learning_rate_factor": factor}
        config = {
            "number": 1,
            "params": {"learning_rate": 8.0},
            "seed": 0,
            "scores": [],
            "began_from": start,
        }
        trial._begin(config)
        run = trial._begun(chosen(assignment, {"learning_rate": 8.0}))
        return run.trainer

    trainer = at_first(0.25, sha256)
    assert trainer.steps_done == 0
    weights = trainer.released_weights()
    assert all(torch.equal(weights[name], each) for name, each in left.weights.items())
    assert trainer._config.learning_rate == 2.0

    def never(steps: int) -> int:
        pytest.fail("charged before it was known whether it can begin")

    trial._charge = never  # type: ignore[method-assign]
    with pytest.raises(ParameterError, match="trial 0, from which to go on, cannot be read"):
        at_first(0.25, "ab" * 32)


def test_there_are_no_finals(digits: DatasetRef) -> None:
    assignment = assignment_of(digits)
    free = assignment.model_copy(update={"charged": None, "max_examples": 10**9})
    trial = {
        "number": 0,
        "state": "completed",
        "params": {"learning_rate": 1.0},
        "scores": [
            {
                "rung": 0,
                "expected_batch_size": 128,
                "noise_multiplier": 2.0,
                "steps": STEPS,
                "accuracy": 0.9,
                "seconds": 1.0,
            }
        ],
    }
    records = [SearchAssignment.model_validate({**free.model_dump(), "trials": [trial]}).trials[0]]

    assert wanted_repeat(free, records) is not None
    assert wanted_repeat(assignment, records) is None


def test_a_control_plane_that_does_not_answer_costs_no_trial(
    digits: DatasetRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waited in vain for a charge has run nothing: it begins again, and is not told as failed."""
    trial = object.__new__(SimulatedTrial)
    trial._assignment, trial._number, trial._seed, trial._rung = assignment_of(digits), 0, 0, 0
    trial._weights_sha256 = None

    def says(error: Exception) -> None:
        monkeypatch.setattr(SimulatedTrial, "_advance", lambda self: throw(error))

    def throw(error: Exception) -> None:
        raise error

    says(NotChargedError("used up"))
    assert trial.step()["outcome"] == TrialState.FAILED
    says(UnreachableError("no answer"))
    with pytest.raises(UnreachableError):
        trial.step()


@pytest.mark.parametrize("fault", TRIAL_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_of_charged_trials_is_found(
    digits: DatasetRef,
    data: Data,
    data_of_users: Data,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
) -> None:
    """By the test that is there for it."""
    known = {
        "digits": digits,
        "data": data,
        "data_of_users": data_of_users,
        "monkeypatch": monkeypatch,
        "granted": 0,
    }
    test = globals()[fault.finding]
    needed = {name: known[name] for name in signature(test).parameters}
    with fault.seeded(), pytest.raises((AssertionError, pytest.fail.Exception)):
        test(**needed)
