"""PED-ANOVA against Optuna's own evaluator."""

import random
import warnings

import optuna
import pytest
from scipy.stats import spearmanr

from service.dashboard.charts.axis import axes_of
from service.dashboard.charts.importance import LEAST_RANKED, LEAST_TRIALS, importance
from service.dashboard.charts.trial_point import TrialPoint, completed
from tan_core.spec import Choices, Range

SPACE = {
    "rate": Range(low=0.01, high=10.0, log=True),
    "momentum": Range(low=0.0, high=0.95),
    "views": Range(low=1, high=8),
    "width": Range(low=1, high=400, log=True),
    "decay": Choices(choices=[0.98, 0.9, 0.99]),
    "kind": Choices(choices=["a", "b"]),
}
DISTRIBUTIONS = {
    "rate": optuna.distributions.FloatDistribution(0.01, 10.0, log=True),
    "momentum": optuna.distributions.FloatDistribution(0.0, 0.95),
    "views": optuna.distributions.IntDistribution(1, 8),
    "width": optuna.distributions.IntDistribution(1, 400, log=True),
    "decay": optuna.distributions.CategoricalDistribution([0.98, 0.9, 0.99]),
    "kind": optuna.distributions.CategoricalDistribution(["a", "b"]),
}


def made(count: int, seed: int, *, is_conditional: bool = False) -> list[TrialPoint]:
    draw = random.Random(seed)
    points: list[TrialPoint] = []
    for number in range(count):
        params = {
            "rate": 0.01 * 1000 ** draw.random(),
            "momentum": 0.95 * draw.random(),
            "views": draw.randint(1, 8),
            "width": round(400 ** draw.random()),
            "decay": draw.choice([0.98, 0.9, 0.99]),
            "kind": draw.choice(["a", "b"]),
        }
        value = 0.9 - 0.02 * (params["rate"] - 2) ** 2 / 10 - 0.01 * abs(params["views"] - 4)
        value += 0.01 * (params["decay"] == 0.98) + draw.gauss(0, 0.004)
        if is_conditional and draw.random() < 0.3:
            del params["momentum"]
        points.append(TrialPoint(number, "completed", value, params))
    return points


def by_optuna(points: list[TrialPoint]) -> dict[str, float]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize")
    for point in points:
        known = {name: each for name, each in DISTRIBUTIONS.items() if name in point.params}
        study.add_trial(
            optuna.trial.create_trial(
                params=dict(point.params), distributions=known, value=point.value
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
        )


@pytest.mark.parametrize(("count", "seed"), [(20, 0), (57, 1), (400, 2)])
@pytest.mark.parametrize("is_conditional", [False, True])
def test_shares_are_those_of_optuna(count: int, seed: int, is_conditional: bool) -> None:
    points = made(count, seed, is_conditional=is_conditional)

    found = importance(completed(points), axes_of(SPACE))

    assert found is not None
    shares = {name: share for name, share, _ in found.rows}
    assert shares == pytest.approx(by_optuna(points), abs=1e-6)
    assert list(shares.values()) == sorted(shares.values(), key=lambda share: -(share or 0))
    assert found.num_best >= 0.1 * count


@pytest.mark.parametrize("is_conditional", [False, True])
def test_correlations_are_those_of_scipy(is_conditional: bool) -> None:
    points = [
        TrialPoint(p.number, p.state, round(p.value or 0, 2), p.params)  # with ties
        for p in made(30, 3, is_conditional=is_conditional)
    ]

    found = importance(completed(points), axes_of(SPACE))

    assert found is not None
    correlations = {name: correlation for name, _, correlation in found.rows}
    assert correlations.pop("kind") is None  # words have no order
    for name, correlation in correlations.items():
        known = [p for p in points if name in p.params]
        expected = spearmanr([p.params[name] for p in known], [p.value or 0 for p in known])
        assert correlation == pytest.approx(float(expected.statistic)), name


def test_of_few_trials_only_correlations_are_said() -> None:
    found = importance(completed(made(LEAST_TRIALS - 1, 0)), axes_of(SPACE))

    assert found is not None
    assert found.num_best == 0
    assert {share for _, share, _ in found.rows} == {None}
    known = [abs(correlation or 0) for _, _, correlation in found.rows]
    assert known == sorted(known, reverse=True)
    assert known[0] > 0


def test_nothing_is_said_of_fewer_or_of_equal_ones() -> None:
    equal = [TrialPoint(p.number, p.state, 0.5, p.params) for p in made(40, 0)]

    assert importance(completed(made(LEAST_RANKED - 1, 0)), axes_of(SPACE)) is None
    assert importance(completed(equal), axes_of(SPACE)) is None


def test_one_parameter_has_a_correlation_and_no_share() -> None:
    found = importance(completed(made(40, 0)), axes_of({"rate": SPACE["rate"]}))

    assert found is not None
    ((name, share, correlation),) = found.rows
    assert (name, share) == ("rate", None)
    assert correlation is not None
