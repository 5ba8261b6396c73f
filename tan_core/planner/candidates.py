"""From the parameters of a trial to what runs: the private run, and its simulations.

The worker calls :func:`candidate` for every trial and the control plane calls it again at promotion,
so what was simulated and what is promoted cannot differ.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from tan_core.errors import ParameterError
from tan_core.execution import PrivateRun, Simulation
from tan_core.mechanism import Accountant, Mechanism
from tan_core.planner.calibration import calibrated
from tan_core.spec import ModelSpec, Scalar, StudySpec, TrainerConfig, TrainSpec
from tan_core.spec.fields import Place, field_of, option_values

GOES_ON_LEARNING_RATE = 0.5
"""Of the trial's learning rate, what a private run takes that goes on from its weights. They are as far as that rate brings
them through the noise, which a smaller one averages: better by 0 to 2 points than the whole rate in all six settings that were
tried (docs/decisions/0026-a-search-that-is-paid-for.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The promise that every candidate keeps, slack included.

    Args:
        epsilon: > 0.
        delta: in (0, 1).
        accountant: who must agree.
    """

    epsilon: float
    delta: float
    accountant: Accountant

    @classmethod
    def of(cls, spec: StudySpec) -> Self | None:
        """What a study's candidates must meet; None where its steps are not searched."""
        if spec.privacy.epsilon is None or spec.searched("steps") is None:
            return None
        return cls(
            epsilon=spec.privacy.epsilon,
            delta=spec.privacy.delta,
            accountant=spec.privacy.accountant,
        )

    def to_json(self) -> dict[str, Any]:
        """As in ``SearchAssignment.target``."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "accountant": self.accountant.value,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The target that :meth:`to_json` wrote."""
        return cls(
            epsilon=float(data["epsilon"]),
            delta=float(data["delta"]),
            accountant=Accountant(data["accountant"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One trial's choice, complete: how to train, what, and as which private run."""

    trainer: TrainerConfig
    model: ModelSpec
    private_run: PrivateRun

    def at_learning_rate(self, factor: float) -> Self:
        """The same at a part of its learning rate."""
        rate = factor * self.trainer.learning_rate
        return replace(self, trainer=self.trainer.model_copy(update={"learning_rate": rate}))


def candidate(
    *,
    trainer: TrainerConfig,
    model: ModelSpec,
    reference: PrivateRun,
    params: Mapping[str, Scalar],
    target: Target | None,
) -> Candidate:
    """The reference with a trial's parameters put in.

    ``steps`` changes the mechanism, so its noise is calibrated again: every candidate meets the
    target at its own number of steps. ``clip_norm`` changes the mechanism and not its epsilon.

    Args:
        trainer: the fixed values of ``train``.
        model: the fixed values of ``model``.
        reference: the planned private run.
        params: the trial's value of each dimension, by its key in ``search.space``.
        target: needed where ``params`` holds other ``steps`` than the reference.

    Raises:
        ParameterError: a key names no field, or steps changed without a target.
        UnreachableTargetError: no noise meets the target at these steps.
    """
    train, options = _by_section(params, model)
    steps = train.pop("steps", None)
    fixed = {name: getattr(trainer, name) for name in TrainerConfig.model_fields}
    chosen = TrainerConfig.model_validate({**fixed, **train})
    mechanism = replace(reference.mechanism, clip_norm=chosen.clip_norm)
    if steps is not None:
        mechanism = _at_steps(mechanism, _whole_steps(steps), target)
    return Candidate(
        trainer=chosen,
        model=type(model).model_validate({**model.model_dump(), **option_values(model, options)}),
        private_run=replace(reference, mechanism=mechanism),
    )


def simulation(
    candidate: Candidate, *, expected_batch_size: float, num_examples: int
) -> Simulation:
    """The candidate at a smaller batch, over a search dataset of ``num_examples``.

    Raises:
        ParameterError: the batch is above the run's, or above the dataset.
    """
    return simulation_of(
        candidate.private_run, expected_batch_size=expected_batch_size, num_examples=num_examples
    )


def simulation_of(run: PrivateRun, *, expected_batch_size: float, num_examples: int) -> Simulation:
    """The simulation of a run on a dataset that need not be the run's own.

    What is kept is the noise per example of the batch, sigma/B: the sampling rate follows from it.
    """
    if expected_batch_size > num_examples:
        raise ParameterError(
            f"a simulated batch of {expected_batch_size:g} exceeds the {num_examples} examples "
            "that the search reads",
            field="search.rungs",
        )
    full = run.expected_batch_size  # q * N: it may miss the whole number B by round-off
    scaled = Simulation.of(
        run,
        expected_batch_size=full
        if math.isclose(expected_batch_size, full)
        else expected_batch_size,
    )
    return replace(
        scaled,
        dynamics=replace(scaled.dynamics, sampling_rate=expected_batch_size / num_examples),
        num_examples=num_examples,
    )


def _by_section(
    params: Mapping[str, Scalar], model: ModelSpec
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values for ``train`` and those for ``model``."""
    sections: dict[str, dict[str, Any]] = {"train": {}, "model": {}}
    for key, value in params.items():
        place: Place | None = field_of(key, model)
        if place is None:
            raise ParameterError(
                f"{key!r} is not a trainer field or an option of model {model.name!r}",
                field=f"search.space.{key}",
            )
        section, name = place
        sections[section][name] = value
    return sections["train"], sections["model"]


def _whole_steps(value: Scalar) -> int:
    steps = TrainSpec.model_validate({"steps": value}).steps
    if steps == "auto":
        raise ParameterError("a candidate needs a number of steps", field="search.space.steps")
    return steps


def _at_steps(mechanism: Mechanism, steps: int, target: Target | None) -> Mechanism:
    """The mechanism that meets the target at another number of steps."""
    if steps == mechanism.steps:
        return mechanism
    if target is None:
        raise ParameterError(
            f"steps = {steps} differs from the plan's {mechanism.steps} and there is no target to "
            "calibrate the noise to",
            field="search.space.steps",
        )
    return calibrated(
        mechanism,
        steps=steps,
        epsilon=target.epsilon,
        delta=target.delta,
        accountant=target.accountant,
    )
