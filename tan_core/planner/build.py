"""Building a plan: from a study's target, or from a mechanism."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tan_core import _validate
from tan_core.accounting import MIN_DELTA, calibrate_noise_multiplier, price, round_up
from tan_core.errors import AccountantError, ParameterError
from tan_core.execution import PrivateRun
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tan_core.planner.candidates import simulation_of
from tan_core.planner.plan import (
    Plan,
    PlannedCost,
    PlannedPrivacy,
    PlannedReservation,
    PlannedRun,
    PlannedSimulation,
)
from tan_core.planner.segments import reserved_mechanism, segment_rule
from tan_core.spec import Choices, Range, StudySpec
from tan_core.tan import epsilon_tan, overcharge, signal_to_noise

AUTO_STEPS = 300
"""``train.steps: auto``. Enough for the small models that train in minutes (DESIGN 1: 300 steps at
B = 2048 reach 97.7 % on MNIST at epsilon 2.2), and few enough that noise multiplier 2 is met at a
batch a CPU can afford. Longer runs are the user's choice, or the search's."""

ENOUGH_NOISE = 2.0
"""The noise multiplier from which epsilon depends on the total noise alone, within 10 %."""

MIN_AUTO_BATCH = 16
AUTO_SCALE_FACTOR = 16
MIN_RUNG = 8
PRV_MAX_EPSILON = 50.0
"""Above it the third voice is not asked: it needs minutes and gigabytes, or fails."""

_DIGITS = 4
_ADD_OR_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE


def plan_study(
    spec: StudySpec,
    *,
    num_examples: int,
    search_num_examples: int | None = None,
    neighboring_relation: NeighboringRelation = _ADD_OR_REMOVE,
) -> Plan:
    """What a study would run, promise and cost.

    Formal guarantees:

    * The planned steps and the slack together cost at most ``privacy.epsilon``, by the study's own
      accountant, whenever a target is given.
    * The same study and sizes give the same plan.

    Args:
        spec: the study.
        num_examples: N of the private run.
        search_num_examples: size of the dataset that simulations read; None: the study's own.
        neighboring_relation: of the dataset's budget.

    Raises:
        ParameterError: a field cannot be had; ``field`` is its path in the YAML.
        UnreachableTargetError: no noise meets the target.
        AccountantError: the study's accountant failed.
    """
    _validate.positive_integer(num_examples=num_examples)
    _check_privacy(spec, neighboring_relation)
    steps = _reference_steps(spec)
    shaper = _Shaper(spec, num_examples, steps, neighboring_relation)
    batch, noise_multiplier, warnings = shaper.shape()
    run = shaper.run(batch, noise_multiplier)
    return _assemble(
        _Request(
            run=run,
            batch=batch,
            delta=spec.privacy.delta,
            accountant=spec.privacy.accountant,
            target_epsilon=spec.privacy.epsilon,
            rungs=spec.search.rungs,
            trials=spec.search.trials,
            views=_largest(spec, "augmentation_multiplicity")
            or spec.train.augmentation_multiplicity,
            search_num_examples=search_num_examples or num_examples,
        ),
        warnings,
    )


def plan_mechanism(
    *,
    num_examples: int,
    expected_batch_size: float,
    noise_multiplier: float,
    steps: int,
    delta: float,
    clip_norm: float = 1.0,
    trials: int = 24,
    accountant: Accountant = Accountant.PLD,
    rungs: Literal["auto"] | Sequence[int] = "auto",
) -> Plan:
    """The plan of a mechanism that is given: epsilon is computed, not calibrated.

    Example:
        >>> plan = plan_mechanism(
        ...     num_examples=50_000,
        ...     expected_batch_size=4096,
        ...     noise_multiplier=3.0,
        ...     steps=2500,
        ...     delta=1e-5,
        ... )
        >>> plan.simulations[0].noise_multiplier, plan.cost.saving
        (0.1875, 16.0)
    """
    _validate.positive_integer(num_examples=num_examples, steps=steps, trials=trials)
    _validate.positive(expected_batch_size=expected_batch_size)
    _refuse_batch_above(num_examples, expected_batch_size)
    mechanism = Mechanism(
        sampling_rate=expected_batch_size / num_examples,
        noise_multiplier=noise_multiplier,
        clip_norm=clip_norm,
        steps=steps,
    )
    return _assemble(
        _Request(
            run=PrivateRun(mechanism=mechanism, num_examples=num_examples),
            batch=_whole(expected_batch_size),
            delta=delta,
            accountant=accountant,
            target_epsilon=None,
            rungs=rungs,
            trials=trials,
            views=1,
            search_num_examples=num_examples,
        ),
        warnings=[],
    )


@dataclass(frozen=True, slots=True)
class _Shaper:
    """Chooses (B, sigma) for a study at given steps."""

    spec: StudySpec
    num_examples: int
    steps: int
    neighboring_relation: NeighboringRelation

    def shape(self) -> tuple[int, float, list[str]]:
        """B, sigma and what the user should know about them."""
        train, target = self.spec.train, self.spec.privacy.epsilon
        if train.batch_size != "auto":
            _refuse_batch_above(self.num_examples, train.batch_size)
        if train.noise_multiplier is not None:
            return self._with_fixed_noise(train.noise_multiplier, target)
        if target is None:
            raise ParameterError(
                "a target is needed: give privacy.epsilon, or fix train.noise_multiplier",
                field="privacy.epsilon",
            )
        batch = self._auto_batch(target) if train.batch_size == "auto" else train.batch_size
        sigma = self._calibrate(batch, target)
        short = train.batch_size == "auto" and sigma < ENOUGH_NOISE
        return batch, sigma, [self._short_of_noise(batch, sigma)] if short else []

    def run(self, batch: int, noise_multiplier: float) -> PrivateRun:
        """The private run of a shape."""
        return PrivateRun(
            mechanism=Mechanism(
                sampling_rate=batch / self.num_examples,
                noise_multiplier=noise_multiplier,
                clip_norm=self.spec.train.clip_norm,
                steps=self.steps,
                neighboring_relation=self.neighboring_relation,
            ),
            num_examples=self.num_examples,
        )

    def _with_fixed_noise(
        self, noise_multiplier: float, target: float | None
    ) -> tuple[int, float, list[str]]:
        """The noise is the user's; the target, where there is one, must hold with the slack."""
        batch = self.spec.train.batch_size
        if batch == "auto":
            if target is None:
                raise ParameterError(
                    "auto needs privacy.epsilon; with train.noise_multiplier alone, give a number",
                    field="train.batch_size",
                )
            fits = [
                size
                for size in _powers_of_two(self.num_examples)
                if self._cost(size, noise_multiplier) <= target
            ]
            batch = max(fits, default=_powers_of_two(self.num_examples)[0])
        cost = self._cost(batch, noise_multiplier)
        if target is not None and cost > target:
            raise ParameterError(
                f"noise multiplier {noise_multiplier:g} at batch {batch} costs epsilon = "
                f"{round_up(cost, _DIGITS):g} with its slack, above privacy.epsilon = {target:g}; "
                "give more noise, or leave it out to have it calibrated",
                field="train.noise_multiplier",
            )
        return batch, noise_multiplier, []

    def _auto_batch(self, target: float) -> int:
        """The smallest power of two whose calibrated noise is enough; else the largest there is."""
        sizes = _powers_of_two(self.num_examples)
        return _first(sizes, lambda size: self._cost(size, ENOUGH_NOISE, rough=True) >= target)

    def _calibrate(self, batch: int, target: float) -> float:
        return calibrate_noise_multiplier(
            sampling_rate=batch / self.num_examples,
            steps=self.steps + segment_rule(self.steps).slack_steps,
            epsilon=target,
            delta=self.spec.privacy.delta,
            accountant=self.spec.privacy.accountant,
            neighboring_relation=self.neighboring_relation,
        )

    def _cost(self, batch: int, noise_multiplier: float, *, rough: bool = False) -> float:
        """Epsilon with the slack; rough: never by PRV, which takes a process per answer."""
        accountant = self.spec.privacy.accountant
        if rough and accountant is Accountant.PRV:
            accountant = Accountant.PLD
        mechanism = reserved_mechanism(self.run(batch, noise_multiplier).mechanism)
        return price([mechanism], delta=self.spec.privacy.delta, accountant=accountant).epsilon

    @staticmethod
    def _short_of_noise(batch: int, sigma: float) -> str:
        return (
            f"train.batch_size: auto ended at {batch}, the largest power of two in the data, with "
            f"noise multiplier {sigma:.3g} < {ENOUGH_NOISE:g}; more steps or a smaller epsilon "
            "would use the budget better"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """Everything that both kinds of plan have decided before they are written down."""

    run: PrivateRun
    batch: int | float
    delta: float
    accountant: Accountant
    target_epsilon: float | None
    rungs: Literal["auto"] | Sequence[int]
    trials: int
    views: int
    search_num_examples: int


def _assemble(request: _Request, warnings: Sequence[str]) -> Plan:
    mechanism = request.run.mechanism
    segments = segment_rule(mechanism.steps)
    privacy, privacy_warnings = _privacy(request)
    rungs = _rungs(request)
    return Plan(
        reference=PlannedRun(
            num_examples=request.run.num_examples,
            sampling_rate=mechanism.sampling_rate,
            expected_batch_size=request.batch,
            noise_multiplier=mechanism.noise_multiplier,
            steps=mechanism.steps,
            clip_norm=mechanism.clip_norm,
        ),
        privacy=privacy,
        reservation=PlannedReservation(
            steps=mechanism.steps + segments.slack_steps,
            slack_steps=segments.slack_steps,
            segment_steps=segments.segment_steps,
        ),
        simulations=[_simulation(request, rung) for rung in rungs],
        cost=_cost(request, rungs),
        warnings=[*warnings, *privacy_warnings],
    )


def _privacy(request: _Request) -> tuple[PlannedPrivacy, list[str]]:
    mechanism, delta = request.run.mechanism, request.delta
    promised = price([mechanism], delta=delta, accountant=request.accountant).epsilon
    reserved = price(
        [reserved_mechanism(mechanism)], delta=delta, accountant=request.accountant
    ).epsilon
    ratio = overcharge(mechanism, delta=delta)
    eta = signal_to_noise(
        sampling_rate=mechanism.sampling_rate,
        noise_multiplier=mechanism.noise_multiplier,
        steps=mechanism.steps,
    )
    voices, silences = _voices(mechanism, delta, promised)
    privacy = PlannedPrivacy(
        epsilon=round_up(promised, _DIGITS),
        delta=delta,
        accountant=request.accountant,
        neighboring_relation=mechanism.neighboring_relation,
        epsilon_by_accountant=voices,
        epsilon_tan=round(epsilon_tan(signal_to_noise=eta, delta=delta), _DIGITS),
        signal_to_noise=round(eta, _DIGITS),
        overcharge=round_up(ratio, _DIGITS) if math.isfinite(ratio) else None,
        epsilon_reserved=round_up(reserved, _DIGITS),
        target_epsilon=request.target_epsilon,
    )
    return privacy, [*_cautions(request, ratio), *silences]


def _voices(
    mechanism: Mechanism, delta: float, promised: float
) -> tuple[dict[Accountant, float | None], list[str]]:
    """Epsilon by every accountant, and why those without an answer have none."""
    voices: dict[Accountant, float | None] = {}
    silences: list[str] = []
    for accountant in Accountant:
        voices[accountant] = None
        if mechanism.neighboring_relation is not _ADD_OR_REMOVE and accountant != Accountant.PLD:
            silences.append(
                f"{accountant.value} cannot price {mechanism.neighboring_relation.value}"
            )
        elif accountant is Accountant.PRV and promised > PRV_MAX_EPSILON:
            silences.append(f"prv was not asked: epsilon is above {PRV_MAX_EPSILON:g}")
        else:
            try:
                answer = price([mechanism], delta=delta, accountant=accountant)
                voices[accountant] = round_up(answer.epsilon, _DIGITS)
            except AccountantError as error:
                silences.append(str(error))
    return voices, silences


def _cautions(request: _Request, ratio: float) -> list[str]:
    """What a reader of the plan should not overlook."""
    cautions: list[str] = []
    sigma = request.run.mechanism.noise_multiplier
    if sigma < ENOUGH_NOISE:
        cautions.append(
            f"overcharged: at noise multiplier {sigma:.3g} < {ENOUGH_NOISE:g} epsilon is "
            f"{ratio:.3g} times what this total noise costs at a larger batch"
        )
    if request.delta >= 1 / request.run.num_examples:
        cautions.append(
            f"delta = {request.delta:g} is not below 1/num_examples = "
            f"{1 / request.run.num_examples:.2g}: releasing one record whole would satisfy it"
        )
    return cautions


def _rungs(request: _Request) -> list[int]:
    """Simulated batch sizes, smallest first."""
    batch, rungs = request.batch, request.rungs
    if rungs == "auto":
        rung = max(int(batch // AUTO_SCALE_FACTOR), MIN_RUNG)
        return [max(1, min(rung, int(batch), request.search_num_examples))]
    for rung in rungs:
        if rung > batch:
            raise ParameterError(
                f"a simulated batch cannot exceed the private run's {batch:g}, got {rung}",
                field="search.rungs",
            )
    return list(rungs)


def _simulation(request: _Request, rung: int) -> PlannedSimulation:
    scaled = simulation_of(
        request.run,
        expected_batch_size=rung,
        num_examples=request.search_num_examples,
    )
    return PlannedSimulation(
        scale_factor=_whole(request.batch / rung),
        expected_batch_size=rung,
        sampling_rate=scaled.dynamics.sampling_rate,
        noise_multiplier=scaled.dynamics.noise_multiplier,
        steps=scaled.dynamics.steps,
    )


def _cost(request: _Request, rungs: Sequence[int]) -> PlannedCost:
    per_unit_of_batch = request.run.mechanism.steps * request.views
    private = round(request.batch * per_unit_of_batch)
    search = request.trials * sum(rungs) * per_unit_of_batch
    full = request.trials * private
    return PlannedCost(
        private_run_examples=private,
        search_examples=search,
        full_search_examples=full,
        saving=round(full / search, _DIGITS),
    )


def _check_privacy(spec: StudySpec, relation: NeighboringRelation) -> None:
    """Refuse, by path, what no accountant here can promise."""
    if spec.privacy.delta < MIN_DELTA:
        raise ParameterError(
            f"delta must be >= {MIN_DELTA:g}, got {spec.privacy.delta:g}", field="privacy.delta"
        )
    if relation is not _ADD_OR_REMOVE and spec.privacy.accountant is not Accountant.PLD:
        raise ParameterError(
            f"accountant {spec.privacy.accountant.value} cannot price neighboring relation "
            f"{relation.value}; accepted: pld",
            field="privacy.accountant",
        )


def _reference_steps(spec: StudySpec) -> int:
    """The steps of the planned run: what is fixed, else the most that the search may choose."""
    if spec.train.steps != "auto":
        return spec.train.steps
    return _largest(spec, "steps") or AUTO_STEPS


def _largest(spec: StudySpec, field: str) -> int | None:
    """The largest value that the space allows a trainer field; None where it is not searched."""
    dimension = spec.searched(field)
    if dimension is None:
        return None
    if isinstance(dimension, Choices):
        return max(int(value) for value in dimension.choices)
    return int(dimension.high if isinstance(dimension, Range) else dimension)


def _powers_of_two(num_examples: int) -> list[int]:
    """Batch sizes for auto: from 16 to the data, at least one."""
    largest = num_examples.bit_length() - 1
    smallest = min(MIN_AUTO_BATCH.bit_length() - 1, largest)
    return [2**exponent for exponent in range(smallest, largest + 1)]


def _first(sizes: Sequence[int], holds: Callable[[int], bool]) -> int:
    """The first size at which a claim that stays true holds; the last where it never does."""
    low, high = 0, len(sizes) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(sizes[middle]) else (middle + 1, high)
    return sizes[low]


def _refuse_batch_above(num_examples: int, batch: float) -> None:
    if batch > num_examples:
        raise ParameterError(
            f"expected batch {batch:g} exceeds the {num_examples} training examples",
            field="train.batch_size",
        )


def _whole(value: float) -> int | float:
    """An integer where the value is one: 16, not 16.0."""
    return int(value) if value == int(value) else value
