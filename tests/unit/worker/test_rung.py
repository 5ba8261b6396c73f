"""One rung of one trial, in this process."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tan_core.data import inspect, load_split
from tan_core.engine.trainer import StepStats, Trainer
from tan_core.mechanism import Mechanism
from tan_core.spec.study import Metric
from tan_core.wire import CURVE_POINTS, DatasetRef, SearchAssignment
from tests.support.assignments import search_assignment
from tests.support.datasets import dataset_ref
from worker.metric import drawn_like, score_of, some_of
from worker.rung import QUICK_VALIDATION, Data, RungRun, chosen, run_rung

STEPS = 40


@pytest.fixture(scope="module")
def digits() -> DatasetRef:
    return dataset_ref(inspect(None, source="digits"))


@pytest.fixture(scope="module")
def data(digits: DatasetRef) -> Data:
    return Data(train=tensors(digits, "train"), validation=tensors(digits, "validation"))


def tensors(digits: DatasetRef, role: Any) -> tuple[torch.Tensor, torch.Tensor]:
    split = load_split(digits, role)
    return torch.from_numpy(np.array(split.inputs)), torch.from_numpy(np.array(split.labels))


def assignment_of(digits: DatasetRef, *, noise: float = 2.0, **changes: Any) -> SearchAssignment:
    mechanism = Mechanism(
        sampling_rate=256 / digits.num_train, noise_multiplier=noise, clip_norm=1.0, steps=STEPS
    )
    return search_assignment(
        digits,
        mechanism=mechanism,
        search={"space": {"learning_rate": 1.0}},
        **{"rungs": [32, 128], **changes},
    )


def simulate(
    digits: DatasetRef, data: Data, rung: int = 0, *, seed: int = 0, **params: Any
) -> RungRun:
    assignment = assignment_of(digits)
    return run_rung(assignment, chosen(assignment, params), rung, data, seed=seed)


@pytest.mark.parametrize(("rung", "batch", "noise"), [(0, 32, 0.25), (1, 128, 1.0)])
def test_a_rung_keeps_noise_per_example_and_steps(
    digits: DatasetRef, data: Data, rung: int, batch: float, noise: float
) -> None:
    score = simulate(digits, data, rung, learning_rate=4.0).score
    assert score.expected_batch_size == pytest.approx(batch)
    assert score.noise_multiplier == pytest.approx(noise)
    assert score.steps == STEPS
    assert score.accuracy is not None
    assert score.accuracy > 0.5


def test_equal_trials_score_equally(digits: DatasetRef, data: Data) -> None:
    first, again = (simulate(digits, data, learning_rate=2.0).score for _ in range(2))
    assert (first.accuracy, first.train_loss) == (again.accuracy, again.train_loss)


def test_another_seed_is_another_run_of_the_same_trial(digits: DatasetRef, data: Data) -> None:
    first, other = (simulate(digits, data, seed=seed, learning_rate=2.0).score for seed in (0, 1))
    assert (first.seed, other.seed) == (0, 1)
    assert first.train_loss != other.train_loss
    assert first.noise_multiplier == other.noise_multiplier


def test_the_curve_ends_in_the_score(digits: DatasetRef, data: Data) -> None:
    score = simulate(digits, data, learning_rate=2.0).score
    assert [point.step for point in score.curve] == [10, 20, 30, 40]
    assert score.curve[-1].accuracy == score.accuracy


def test_a_balanced_score_is_the_mean_over_the_classes(digits: DatasetRef, data: Data) -> None:
    """Trained as ever, and looked at otherwise: where a class is rare in the validation split it counts as much."""
    _, labels = data.validation
    few = torch.cat([torch.nonzero(labels != 3)[:, 0], torch.nonzero(labels == 3)[:2, 0]])
    rare = replace(data, validation=(data.validation[0][few], labels[few]))
    assignment = assignment_of(digits)
    assignment = assignment.model_copy(
        update={"search": assignment.search.model_copy(update={"metric": Metric.BALANCED_ACCURACY})}
    )
    candidate = chosen(assignment, {"learning_rate": 1.0})

    run = run_rung(assignment, candidate, 0, rare)

    hits = run.trainer.hits(*rare.validation, weights=run._mean.weights)
    shares = [float(hits[rare.validation[1] == each].float().mean()) for each in range(10)]
    assert run.score.accuracy == pytest.approx(sum(shares) / 10)
    assert run.score.accuracy != pytest.approx(float(hits.float().mean()), abs=1e-3)
    assert run.score.released == pytest.approx(
        score_of(run.trainer.hits(*rare.validation), rare.validation[1], Metric.BALANCED_ACCURACY)
    )


def test_what_stands_for_a_split_has_the_same_of_each_class() -> None:
    labels = torch.tensor([0] * 600 + [2] * 600 + [1] * 2)

    at = some_of(labels, Metric.BALANCED_ACCURACY, at_most=512)

    assert torch.bincount(labels[at]).tolist() == [255, 2, 255]
    assert len(at.unique()) == 512


def test_what_stands_for_a_class_is_of_all_of_it() -> None:
    """Where records of a class lie in the order of their time, the first of them are not like the rest."""
    labels = torch.arange(4000) // 2000

    at = some_of(labels, Metric.BALANCED_ACCURACY, at_most=512)

    assert torch.equal(at, at.sort().values)
    for of_class in at.split([256, 256]):
        assert float((of_class % 2000).double().mean()) == pytest.approx(1000, abs=150)


def test_what_stands_for_a_split_that_is_stored_by_class_is_of_all_classes() -> None:
    labels = torch.arange(4000) // 2000

    at = some_of(labels, Metric.ACCURACY, at_most=512)

    assert not isinstance(at, slice)
    assert len(at.unique()) == 512
    assert torch.bincount(labels[at]).tolist() == pytest.approx([256, 256], abs=50)
    assert torch.equal(at, some_of(labels, Metric.ACCURACY, at_most=512))


@pytest.mark.parametrize("metric", Metric)
def test_a_split_that_is_no_larger_stands_for_itself(metric: Metric) -> None:
    assert some_of(torch.zeros(512, dtype=torch.int64), metric, at_most=512) == slice(512)


@pytest.mark.parametrize("metric", Metric)
def test_a_point_on_the_way_is_of_every_class(
    digits: DatasetRef, data: Data, monkeypatch: pytest.MonkeyPatch, metric: Metric
) -> None:
    """The first records of a split may hold none of a class: a model that never names it would be the best."""
    monkeypatch.setattr(Trainer, "hits", lambda _, inputs, labels, weights=None: labels != 3)
    inputs, labels = data.validation
    others, rare = (torch.nonzero(each)[:, 0] for each in (labels != 3, labels == 3))
    at = torch.cat([others.repeat(1 + QUICK_VALIDATION // len(others)), rare])
    late = replace(data, validation=(inputs[at], labels[at]))
    assignment = assignment_of(digits)
    search = assignment.search.model_copy(update={"metric": metric})
    assignment = assignment.model_copy(update={"search": search})

    score = run_rung(assignment, chosen(assignment, {"learning_rate": 1.0}), 0, late).score

    assert [point.accuracy for point in score.curve[:-1]] == [
        pytest.approx(0.9)
        if metric is Metric.BALANCED_ACCURACY
        else pytest.approx(1 - len(rare) / len(at), abs=0.01)
    ] * (CURVE_POINTS - 1)
    assert score.curve[0].accuracy < 1


def test_a_balanced_score_is_drawn_as_loudly_as_its_rarest_class() -> None:
    labels = torch.tensor([0] * 98 + [1] * 2)
    rng = np.random.default_rng(0)
    drawn = [
        score_of(torch.from_numpy(rng.uniform(size=100) < 0.5), labels, Metric.BALANCED_ACCURACY)
        for _ in range(4000)
    ]
    assert np.std(drawn) == pytest.approx(
        0.5 / drawn_like(labels, Metric.BALANCED_ACCURACY) ** 0.5, rel=0.05
    )


def test_parts_make_the_same_run_as_one_sweep(
    digits: DatasetRef, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = simulate(digits, data, learning_rate=2.0).score
    monkeypatch.setattr("worker.rung.SMALLEST_PART", STEPS)
    whole = simulate(digits, data, learning_rate=2.0).score
    assert len(whole.curve) == 1
    assert (parts.accuracy, parts.train_loss) == (whole.accuracy, whole.train_loss)


def test_what_would_be_released_is_measured_beside_the_score(
    digits: DatasetRef, data: Data
) -> None:
    run = simulate(digits, data, learning_rate=4.0)
    score = run.score

    assert score.released == run.trainer.evaluate(*data.validation)
    assert score.released != score.accuracy


@pytest.mark.parametrize(
    ("clip_norm", "clipping", "told"),
    [
        (1e-6, "per_example", 1.0),
        (1e6, "per_example", 0.0),
        (1e-6, "automatic", None),
    ],
)
def test_it_is_told_how_many_gradients_were_clipped(
    digits: DatasetRef, data: Data, clip_norm: float, clipping: str, told: float | None
) -> None:
    params: dict[str, Any] = {"learning_rate": 1e-3, "clip_norm": clip_norm, "clipping": clipping}
    assert simulate(digits, data, **params).score.clipped_fraction == told


def test_what_was_clipped_is_the_mean_over_all_steps_of_what_each_step_tells(
    digits: DatasetRef, data: Data
) -> None:
    assignment = assignment_of(digits)
    candidate = chosen(assignment, {"learning_rate": 4.0})
    trainer = RungRun(assignment, candidate, 0, data).trainer
    shares = [trainer.step().clipped_fraction or 0.0 for _ in range(STEPS)]

    run = RungRun(assignment, candidate, 0, data)
    assert run.score.clipped_fraction is None
    for done in (10, 20, 30, 40):
        assert run.advance().clipped_fraction == pytest.approx(np.mean(shares[:done]))
    assert 0 < np.mean(shares) < 1


def test_where_all_are_clipped_a_smaller_norm_changes_nothing(
    digits: DatasetRef, data: Data
) -> None:
    """As the pages say: learning rates are in units of one clipped gradient."""
    first, smaller = (
        simulate(digits, data, learning_rate=2.0, clip_norm=norm).score for norm in (2**-40, 2**-43)
    )
    assert (first.clipped_fraction, smaller.clipped_fraction) == (1.0, 1.0)
    assert first.train_loss == pytest.approx(smaller.train_loss)
    assert first.accuracy == smaller.accuracy


def test_empty_batches_have_no_part_in_what_was_clipped(digits: DatasetRef, data: Data) -> None:
    assignment = assignment_of(digits, rungs=[1])
    params = {"learning_rate": 1e-3, "clip_norm": 1e-6}
    run = RungRun(assignment, chosen(assignment, params), 0, data)
    drawn = []
    step = run.trainer.step

    def noted() -> StepStats:
        drawn.append((stats := step()).num_drawn)
        return stats

    run.trainer.step = noted
    while not run.is_over:
        run.advance()
    assert 0 in drawn
    assert run.score.clipped_fraction == 1.0


def test_examples_count_every_view(digits: DatasetRef, data: Data) -> None:
    score = simulate(digits, data, learning_rate=2.0, augmentation_multiplicity=2).score
    assert score.views == 2
    assert score.examples == 32 * STEPS * 2


def test_the_global_generators_have_no_influence(digits: DatasetRef, data: Data) -> None:
    first = simulate(digits, data, learning_rate=2.0).score
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002 - it must not matter
    assert simulate(digits, data, learning_rate=2.0).score.train_loss == first.train_loss


def test_a_run_that_noise_drives_off_is_given_up_early(digits: DatasetRef, data: Data) -> None:
    assignment = assignment_of(digits, noise=9000.0)
    result = run_rung(assignment, chosen(assignment, {"learning_rate": 8.0}), 0, data)
    assert result.diverged is not None
    assert "chance level" in result.diverged
    assert result.score.accuracy is None
    assert result.score.released is None
    assert result.score.steps == STEPS // CURVE_POINTS


def test_a_run_that_has_learnt_nothing_yet_goes_on(digits: DatasetRef, data: Data) -> None:
    """Its loss differs from that of its first batch by the records that were drawn, and by nothing else."""
    runs = [simulate(digits, data, seed=seed, learning_rate=1e-6) for seed in range(4)]
    assert [run.diverged for run in runs] == [None] * 4


def test_a_run_whose_loss_is_not_finite_is_given_up_at_once(digits: DatasetRef, data: Data) -> None:
    deep = {"name": "mlp", "hidden": [64] * 6, "activation": "relu"}
    assignment = assignment_of(digits, noise=9000.0, model=deep)
    result = run_rung(assignment, chosen(assignment, {"learning_rate": 1e9}), 0, data)
    assert result.diverged is not None
    assert "not finite" in result.diverged or "loss was" in result.diverged
    assert result.score.steps < STEPS


def test_searched_steps_calibrate_the_noise_to_the_target(digits: DatasetRef, data: Data) -> None:
    target = {"epsilon": 3.0, "delta": 1e-5, "accountant": "rdp"}
    assignment = assignment_of(digits, target=target)
    few, many = (chosen(assignment, {"steps": steps}).private_run.mechanism for steps in (10, 40))
    assert (few.steps, many.steps) == (10, 40)
    assert few.noise_multiplier < many.noise_multiplier


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
@pytest.mark.parametrize("smallest_part", [8, STEPS])
def test_the_score_is_of_the_mean_weights_of_the_last_quarter(
    digits: DatasetRef,
    data: Data,
    ema_decay: float,
    smallest_part: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("worker.rung.SMALLEST_PART", smallest_part)
    assignment = assignment_of(digits)
    candidate = chosen(assignment, {"learning_rate": 16.0, "ema_decay": ema_decay})
    score = run_rung(assignment, candidate, 0, data).score
    trainer = RungRun(assignment, candidate, 0, data).trainer
    taken = []
    for _ in range(STEPS):
        trainer.step()
        taken.append(trainer.released.clone())
    mean = torch.stack(taken[-STEPS // CURVE_POINTS :]).mean(0)
    assert score.accuracy == trainer.evaluate(*data.validation, weights=mean)
    assert score.accuracy != trainer.evaluate(*data.validation)


def test_it_has_the_weights_that_were_scored_once_they_were(digits: DatasetRef, data: Data) -> None:
    assignment = assignment_of(digits)
    run = RungRun(assignment, chosen(assignment, {"learning_rate": 1.0}), 0, data)
    while not run.is_over:
        assert run.weights is None
        score = run.advance()
    weights = run.weights
    assert weights is not None

    vector = torch.cat([value.reshape(-1) for value in weights.values()])
    inputs, labels = data.validation
    assert run.trainer.evaluate(inputs, labels, weights=vector) == score.accuracy


class TestHeat:
    """The first rung begins with one: its first quarter, after which the best go on."""

    @pytest.fixture
    def heated(self, digits: DatasetRef) -> SearchAssignment:
        return assignment_of(digits, heat=True)

    @staticmethod
    def run(heated: SearchAssignment, data: Data, rung: int = 0, *, seed: int = 0) -> RungRun:
        candidate = chosen(heated, {"learning_rate": 4.0})
        return RungRun(heated, candidate, rung, data, seed=seed)

    def test_it_is_scored_on_all_validation_records_by_the_last_quarter_of_its_own_steps(
        self, heated: SearchAssignment, data: Data
    ) -> None:
        run, twin = self.run(heated, data), self.run(heated, data).trainer
        score, taken = run.advance(), []
        for _ in range(STEPS // CURVE_POINTS):
            twin.step()
            taken.append(twin.released.clone())
        mean = torch.stack(taken[-(STEPS // CURVE_POINTS // CURVE_POINTS) :]).mean(0)

        assert (score.heat, score.steps) == (True, STEPS // CURVE_POINTS)
        assert score.accuracy == twin.evaluate(*data.validation, weights=mean)
        assert [point.accuracy for point in score.curve] == [score.accuracy]
        assert not run.is_over

    def test_who_goes_on_ends_as_if_there_had_been_none(
        self, heated: SearchAssignment, digits: DatasetRef, data: Data
    ) -> None:
        run = self.run(heated, data)
        run.advance()
        while not run.is_over:
            assert not run.advance().heat
        whole = simulate(digits, data, learning_rate=4.0).score

        assert (run.score.accuracy, run.score.released) == (whole.accuracy, whole.released)
        assert len(run.score.curve) == CURVE_POINTS

    @pytest.mark.parametrize(("rung", "seed"), [(1, 0), (0, 1)])
    def test_neither_a_higher_rung_nor_a_finalist_has_one(
        self, heated: SearchAssignment, data: Data, rung: int, seed: int
    ) -> None:
        score = self.run(heated, data, rung, seed=seed).advance()

        assert not score.heat
        assert score.accuracy is None

    def test_one_that_is_lost_in_it_has_no_score(self, digits: DatasetRef, data: Data) -> None:
        hot = assignment_of(digits, noise=2000.0, heat=True)
        run = RungRun(hot, chosen(hot, {"learning_rate": 1000.0}), 0, data)
        score = run.advance()

        assert run.diverged is not None
        assert (score.heat, score.accuracy) == (False, None)
