import pytest

from tan_core.accounting import price
from tan_core.errors import ParameterError, UnaccountedError
from tan_core.execution import PrivateRun
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tan_core.planner import (
    Candidate,
    Target,
    candidate,
    reserved_mechanism,
    simulation,
)
from tan_core.spec import ModelSpec, Scalar, TrainerConfig
from tan_core.spec.models import MlpModel, Model, PythonModel, TanhCnnModel, TimmModel

REFERENCE = PrivateRun(
    mechanism=Mechanism(
        sampling_rate=4096 / 50_000, noise_multiplier=3.0, clip_norm=1.0, steps=2500
    ),
    num_examples=50_000,
)
TARGET = Target(epsilon=8.0, delta=1e-5, accountant=Accountant.PLD)


def chosen(target: Target | None = TARGET, **params: Scalar) -> Candidate:
    return candidate(
        trainer=TrainerConfig(momentum=0.5),
        model=TanhCnnModel(),
        reference=REFERENCE,
        params={key.replace("__", "."): value for key, value in params.items()},
        target=target,
    )


class TestCandidate:
    def test_without_parameters_is_the_reference(self) -> None:
        assert chosen().private_run == REFERENCE
        assert chosen().trainer == TrainerConfig(momentum=0.5)

    def test_puts_each_value_where_its_key_points(self) -> None:
        found = chosen(learning_rate=4.0, train__ema_decay=0.9, width=8, model__hidden=64)

        assert found.trainer == TrainerConfig(learning_rate=4.0, ema_decay=0.9, momentum=0.5)
        assert found.model == TanhCnnModel(width=8, hidden=64)
        assert found.private_run == REFERENCE

    def test_the_clipping_norm_changes_the_mechanism_and_not_its_price(self) -> None:
        found = chosen(clip_norm=0.1).private_run.mechanism

        assert found.clip_norm == 0.1
        assert found.noise_multiplier == REFERENCE.mechanism.noise_multiplier

    @pytest.mark.parametrize("steps", [600, 1200, 5000])
    def test_other_steps_meet_the_target_with_their_own_slack(self, steps: int) -> None:
        found = chosen(steps=steps).private_run.mechanism

        cost = price([reserved_mechanism(found)], delta=1e-5).epsilon
        assert found.steps == steps
        assert 7.99 <= cost <= 8.0

    @pytest.mark.parametrize("relation", NeighboringRelation)
    def test_they_meet_it_under_the_relation_of_the_budget(
        self, relation: NeighboringRelation
    ) -> None:
        whole = Mechanism(
            sampling_rate=1.0,
            noise_multiplier=30.0,
            clip_norm=1.0,
            steps=100,
            neighboring_relation=relation,
        )
        found = candidate(
            trainer=TrainerConfig(),
            model=TanhCnnModel(),
            reference=PrivateRun(mechanism=whole, num_examples=1000),
            params={"steps": 50},
            target=TARGET,
        ).private_run.mechanism

        assert found.neighboring_relation is relation
        assert 7.98 <= price([reserved_mechanism(found)], delta=1e-5).epsilon <= 8.0

    def test_the_same_choice_is_the_same_run_for_worker_and_control_plane(self) -> None:
        over_the_wire = Target.from_json(TARGET.to_json())

        assert chosen(over_the_wire, steps=1200) == chosen(steps=1200)

    def test_other_steps_without_a_target_are_refused(self) -> None:
        assert chosen(None, steps=2500).private_run == REFERENCE
        with pytest.raises(ParameterError, match="no target"):
            chosen(None, steps=600)

    def test_a_key_that_names_nothing_is_refused_by_path(self) -> None:
        with pytest.raises(ParameterError, match="'depth'") as caught:
            chosen(depth=3)

        assert caught.value.field == "search.space.depth"

    @pytest.mark.parametrize(
        ("model", "params", "expected"),
        [
            (MlpModel(), {"model.hidden": 16}, MlpModel(hidden=[16])),
            (
                PythonModel(name="python:lab:small", options={"width": 8, "depth": 2}),
                {"model.options.width": 16, "options.bias": False},
                PythonModel(
                    name="python:lab:small", options={"width": 16, "depth": 2, "bias": False}
                ),
            ),
            (
                TimmModel(name="timm:resnet18"),
                {"model.options.drop_path_rate": 0.1},
                TimmModel(name="timm:resnet18", options={"drop_path_rate": 0.1}),
            ),
        ],
        ids=lambda each: each.name if isinstance(each, Model) else "",
    )
    def test_options_of_a_model_are_put_in(
        self, model: ModelSpec, params: dict[str, Scalar], expected: ModelSpec
    ) -> None:
        found = candidate(
            trainer=TrainerConfig(), model=model, reference=REFERENCE, params=params, target=None
        )

        assert found.model == expected


class TestSimulation:
    def test_keeps_the_noise_per_example_of_the_batch(self) -> None:
        found = simulation(chosen(), expected_batch_size=256, num_examples=50_000)

        assert found.dynamics.noise_multiplier == 0.1875
        assert found.dynamics.steps == 2500
        assert found.dynamics.noise_multiplier / found.dynamics.sampling_rate == pytest.approx(
            3.0 / REFERENCE.mechanism.sampling_rate, rel=1e-12
        )
        with pytest.raises(UnaccountedError):
            _ = found.epsilon

    def test_samples_the_search_dataset_at_its_own_rate(self) -> None:
        found = simulation(chosen(), expected_batch_size=256, num_examples=10_000)

        assert found.expected_batch_size == pytest.approx(256)
        assert found.dynamics.sampling_rate == 256 / 10_000
        assert found.dynamics.noise_multiplier == 0.1875

    def test_the_highest_rung_may_be_the_run_itself(self) -> None:
        uneven = PrivateRun(
            mechanism=Mechanism(
                sampling_rate=49 / 1437, noise_multiplier=2.0, clip_norm=1.0, steps=10
            ),
            num_examples=1437,
        )
        whole = Candidate(trainer=TrainerConfig(), model=TanhCnnModel(), private_run=uneven)

        found = simulation(whole, expected_batch_size=49, num_examples=1437)

        assert found.dynamics == uneven.mechanism

    @pytest.mark.parametrize(("batch", "num_examples"), [(5000, 50_000), (256, 100)])
    def test_a_batch_above_the_run_or_the_data_is_refused(
        self, batch: int, num_examples: int
    ) -> None:
        with pytest.raises(ParameterError):
            simulation(chosen(), expected_batch_size=batch, num_examples=num_examples)
