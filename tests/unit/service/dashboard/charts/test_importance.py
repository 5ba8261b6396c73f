"""PED-ANOVA against Optuna's own evaluator."""

import random
import warnings

import optuna
import pytest

from service.dashboard.charts.axis import axes_of
from service.dashboard.charts.importance import LEAST_TRIALS, importance
from service.dashboard.charts.trial_point import TrialPoint
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

    found = importance(points, axes_of(SPACE))

    assert found is not None
    assert dict(found.shares) == pytest.approx(by_optuna(points), abs=1e-6)
    assert [share for _, share in found.shares] == sorted(
        (share for _, share in found.shares), reverse=True
    )


def test_nothing_is_said_of_few_trials_of_equal_ones_or_of_one_parameter() -> None:
    equal = [TrialPoint(p.number, p.state, 0.5, p.params) for p in made(40, 0)]

    assert importance(made(LEAST_TRIALS - 1, 0), axes_of(SPACE)) is None
    assert importance(equal, axes_of(SPACE)) is None
    assert importance(made(40, 0), axes_of({"rate": SPACE["rate"]})) is None


def test_only_completed_trials_count() -> None:
    points = made(40, 0)
    pruned = [TrialPoint(100 + p.number, "pruned", 0.99, p.params) for p in made(40, 5)]

    assert importance([*points, *pruned], axes_of(SPACE)) == importance(points, axes_of(SPACE))
