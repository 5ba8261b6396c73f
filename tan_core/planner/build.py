"""Building a plan: from a study's target, or from a mechanism."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from tan_core import _validate
from tan_core.accounting import MIN_DELTA, round_up
from tan_core.accounting.search import SearchAccounting
from tan_core.errors import ParameterError
from tan_core.execution import PrivateRun
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tan_core.planner.candidates import GOES_ON_LEARNING_RATE, simulation_of
from tan_core.planner.cap import check_cap
from tan_core.planner.charged import ChargedSearch
from tan_core.planner.cost import ComputeLimit, MeasuredRate, Rates, Workload, planned_cost
from tan_core.planner.counted import Counted
from tan_core.planner.finals import most_simulations
from tan_core.planner.heats import heat_steps, wants_heats
from tan_core.planner.lineage import trials_anew
from tan_core.planner.memory import memory_bytes
from tan_core.planner.model_cost import ModelCost
from tan_core.planner.plan import (
    Plan,
    PlannedChargedSearch,
    PlannedHeat,
    PlannedReservation,
    PlannedRun,
    PlannedSimulation,
)
from tan_core.planner.privacy import Promise, epsilon_alone, planned_privacy
from tan_core.planner.reservations import runs_to_choose
from tan_core.planner.rungs import one_rung
from tan_core.planner.search_privacy import search_privacy
from tan_core.planner.segments import segment_rule
from tan_core.planner.shape import (
    ENOUGH_NOISE,
    Shape,
    choose_shape,
    fewest_steps,
    largest,
    refuse_batch_above,
)
from tan_core.planner.step_candidates import step_candidates
from tan_core.spec import StudySpec
from tan_core.spec.features import features_note
from tan_core.spec.train import Precision


@_validate.plainly
def plan_study(
    spec: StudySpec,
    *,
    num_examples: int,
    search_num_examples: int | None = None,
    neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
    model: ModelCost | None = None,
    private_run_rate: MeasuredRate | None = None,
    search_rate: MeasuredRate | None = None,
    num_validation: int | None = None,
) -> Plan:
    """What a study would run, promise and cost.

    Formal guarantees:

    * The planned steps and the slack together cost at most ``privacy.epsilon``, by the study's own
      accountant, whenever a target is given; under ``accounted`` together with all trials and scores,
      spare ones included.
    * The same study, sizes and rates give the same plan.
    * With a rate, the plan costs at most ``budget.gpu_hours``; without one the limit is not applied,
      and ``warnings`` says so.

    Args:
        spec: the study.
        num_examples: N of the private run.
        search_num_examples: size of the dataset that simulations read; None: the study's own.
        neighboring_relation: of the dataset's budget.
        model: its size, for the memory; None where it is not known.
        private_run_rate: of private runs like this one; None where none was measured.
        search_rate: of simulations like this study's. One rate stands in for the other.
        num_validation: units, records or users, that trials are scored on; None where they are not known. It decides how
            loud the scores of a charged search are.

    Raises:
        ParameterError: a field cannot be had; ``field`` is its path in the YAML.
        UnreachableTargetError: no noise meets the target.
        AccountantError: the study's accountant failed.

    Example:
        >>> spec = StudySpec.model_validate(
        ...     {
        ...         "name": "digits",
        ...         "privacy": {"epsilon": 3.0, "delta": 1e-5},
        ...         "dataset": "digits",
        ...         "model": {"name": "mlp"},
        ...         "search": {
        ...             "accounting": "declared_unaccounted",
        ...             "space": {"learning_rate": {"low": 0.1, "high": 10.0, "log": True}},
        ...         },
        ...     }
        ... )
        >>> run = plan_study(spec, num_examples=1150).reference
        >>> f"B = {run.expected_batch_size}, sigma = {run.noise_multiplier:.1f}, S = {run.steps}"
        'B = 128, sigma = 2.9, S = 300'
    """
    _validate.instance(StudySpec, spec=spec)
    _validate.positive_integer(num_examples=num_examples)
    for name, size in (
        ("search_num_examples", search_num_examples),
        ("num_validation", num_validation),
    ):
        if size is not None:
            _validate.positive_integer(**{name: size})
    _validate.optional(ModelCost, model=model)
    _validate.optional(MeasuredRate, private_run_rate=private_run_rate, search_rate=search_rate)
    neighboring_relation = NeighboringRelation(neighboring_relation)
    _check_privacy(spec, neighboring_relation)
    is_charged = spec.search.accounting.is_charged
    workload = Workload(
        trials=spec.search.trials,
        rungs=spec.search.rungs,
        views=largest(spec, "augmentation_multiplicity") or spec.train.augmentation_multiplicity,
        search_num_examples=search_num_examples or num_examples,
        workers=spec.train.workers,
        budget=None if is_charged else spec.search.budget,
        is_charged=is_charged,
        heats=wants_heats(spec, least_steps=fewest_steps(spec)),
    )
    rates = Rates.of(private_run_rate, search_rate)
    hours = spec.budget.gpu_hours
    limit = None
    if hours is not None and rates is not None:
        limit = ComputeLimit(gpu_hours=hours, workload=workload, rates=rates)
    shape = choose_shape(
        spec,
        num_examples=num_examples,
        neighboring_relation=neighboring_relation,
        limit=limit,
        num_validation=num_validation,
    )
    if shape.search is not None:
        rung = shape.search.expected_batch_size or round(shape.batch)
        workload = replace(workload, rungs=[rung])
    promise = Promise(
        delta=spec.privacy.delta,
        accountant=spec.privacy.accountant,
        target_epsilon=spec.privacy.epsilon,
    )
    return _assemble(
        shape,
        promise,
        workload,
        mode=spec.search.accounting,
        runs=runs_to_choose(spec, shape.run),
        rates=rates,
        memory=memory_bytes(model, spec) if model else None,
        precision=None if spec.searched("precision") else spec.train.precision,
        warnings=[_UNMEASURED] if hours is not None and rates is None else [],
        counted=None if num_validation is None else Counted.of(num_validation, spec),
        goes_on=spec.goes_on_from_trial,
        features_note=features_note(spec.model, spec.train.trainer(), spec.search.space),
    )


LOUD_SCORE = 0.1
"""A deviation of the noise on a score, as a part of the split, from which trials can hardly be told apart by it."""
_UNMEASURED = (
    "budget.gpu_hours was not applied to the plan: no run of this model on this data has been "
    "measured yet. The study is still stopped when the hours are used up"
)


@_validate.plainly
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
    rate: MeasuredRate | None = None,
) -> Plan:
    """The plan of a mechanism that is given: epsilon is computed, not calibrated.

    There is no study, so there are no finals, and ``rungs: auto`` shows the one scale of B/16.

    Args:
        num_examples: N >= 1.
        expected_batch_size: B in [1, N], examples; 1 is the smallest batch that can be simulated.
        noise_multiplier: sigma > 0.
        steps: S >= 1.
        delta: in [1e-10, 1).
        clip_norm: C > 0; it does not influence epsilon.
        trials: candidates at the smallest rung.
        accountant: who computes epsilon.
        rungs: simulated batch sizes, whole numbers in [1, B], smallest first: a list or an array.
        rate: examples per second as measured, for the hours of the plan; None: it has none.

    Raises:
        ParameterError: an argument is out of its domain.
        AccountantError: the accountant failed.

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
    _validate.optional(MeasuredRate, rate=rate)
    if expected_batch_size < 1:
        raise ParameterError(
            "expected_batch_size must be at least 1, the smallest batch that can be simulated, got "
            f"{expected_batch_size!r}",
            field="expected_batch_size",
        )
    refuse_batch_above(num_examples, expected_batch_size, field="expected_batch_size")
    mechanism = Mechanism(
        sampling_rate=expected_batch_size / num_examples,
        noise_multiplier=noise_multiplier,
        clip_norm=clip_norm,
        steps=steps,
    )
    run = PrivateRun(mechanism=mechanism, num_examples=num_examples)
    return _assemble(
        Shape(
            run=run,
            batch=_whole(expected_batch_size),
            is_calibrated=False,
        ),
        Promise(delta=delta, accountant=accountant, target_epsilon=None),
        Workload(
            trials=trials,
            rungs=_given_rungs(rungs, expected_batch_size)
            or [one_rung(expected_batch_size, search_num_examples=num_examples)],
            views=1,
            search_num_examples=num_examples,
            workers=1,
            budget=None,
        ),
        mode=None,
        runs=[run],
        rates=Rates.of(rate, None),
        memory=None,
        precision=None,
        warnings=[],
    )


def _assemble(
    shape: Shape,
    promise: Promise,
    workload: Workload,
    *,
    mode: SearchAccounting | None,
    runs: Sequence[PrivateRun],
    rates: Rates | None,
    memory: int | None,
    precision: Precision | None,
    warnings: Sequence[str],
    counted: Counted | None = None,
    goes_on: bool = False,
    features_note: str | None = None,
) -> Plan:
    """Everything that follows from what has been decided."""
    run, mechanism = shape.run, shape.run.mechanism
    rungs, confirmation = workload.rungs_of(shape.batch), workload.confirmation_of(shape.batch)
    _refuse_rungs_above(shape.batch, rungs)
    segments = segment_rule(mechanism.steps)
    search = shape.search
    privacy, privacy_warnings = planned_privacy(run, promise, search)
    return Plan(
        reference=PlannedRun(
            num_examples=run.num_examples,
            sampling_rate=mechanism.sampling_rate,
            expected_batch_size=shape.batch,
            noise_multiplier=mechanism.noise_multiplier,
            steps=mechanism.steps,
            clip_norm=mechanism.clip_norm,
            max_batch_size=mechanism.max_batch_size,
            precision=precision,
        ),
        privacy=privacy,
        reservation=PlannedReservation(
            steps=mechanism.steps + segments.slack_steps,
            slack_steps=segments.slack_steps,
            segment_steps=segments.segment_steps,
        ),
        simulations=[
            _simulation(shape, workload, rung, trials, goes_on=goes_on)
            for rung, trials in zip(rungs, workload.trials_of(shape.batch), strict=True)
        ],
        heat=_heat(workload, shape),
        confirmation=_simulation(shape, workload, confirmation, 1, goes_on=goes_on)
        if confirmation
        else None,
        charged_search=_charged(run, search, counted, promise, goes_on=goes_on) if search else None,
        goes_on=goes_on,
        features_note=features_note,
        step_candidates=step_candidates(shape, promise, workload),
        search_privacy=search_privacy(
            runs,
            promise,
            dict.fromkeys(rungs, workload.trials)
            if workload.budget is None
            else most_simulations(workload.trials, rungs, confirmation),
            workload.search_num_examples,
            mode=mode,
            charged_search=search,
        ),
        cost=planned_cost(
            workload,
            batch=shape.batch,
            steps=mechanism.steps,
            rates=rates,
            memory_bytes=memory,
        ),
        warnings=[
            *shape.warnings,
            *warnings,
            *_search_warnings(shape, workload),
            *_score_warnings(search, counted),
            *privacy_warnings,
        ],
    )


def _given_rungs(rungs: str | Iterable[int], batch: float) -> list[int]:
    """Those that a caller names, as plain numbers; none for auto."""
    if isinstance(rungs, str) and rungs == "auto":
        return []
    try:
        given = [_validate.plain(rung) for rung in rungs]
        _validate.positive_integer(**{f"rungs[{at}]": rung for at, rung in enumerate(given)})
    except (TypeError, ParameterError):
        given = []
    if not given or sorted(set(given)) != given or given[-1] > batch:
        raise ParameterError(
            f"rungs must be auto, or rising whole numbers from 1 to the private batch of {batch:g}, got {rungs!r}",
            field="rungs",
        )
    return given


def _refuse_rungs_above(batch: float, rungs: Sequence[int]) -> None:
    for rung in rungs:
        if rung > batch:
            raise ParameterError(
                f"a simulated batch cannot exceed the private run's {batch:g}, got {rung}",
                field="search.rungs",
            )


def _simulation(
    shape: Shape, workload: Workload, rung: int, trials: float, *, goes_on: bool = False
) -> PlannedSimulation:
    scaled = simulation_of(
        shape.run, expected_batch_size=rung, num_examples=workload.search_num_examples
    )
    return PlannedSimulation(
        scale_factor=_whole(shape.batch / rung),
        expected_batch_size=rung,
        sampling_rate=scaled.dynamics.sampling_rate,
        noise_multiplier=scaled.dynamics.noise_multiplier,
        steps=scaled.dynamics.steps,
        trials=_whole(round(trials, 1)),
        learning_rate_factor=GOES_ON_LEARNING_RATE if goes_on else 1.0,
        private=workload.is_charged,
    )


def _heat(workload: Workload, shape: Shape) -> PlannedHeat | None:
    """How the first rung begins, where it has a heat."""
    trials = workload.trials_after_heat(shape.batch)
    if trials is None:
        return None
    steps = heat_steps(shape.run.mechanism.steps)
    return PlannedHeat(steps=steps, trials=_whole(round(trials, 1)))


def _charged(
    run: PrivateRun,
    search: ChargedSearch,
    counted: Counted | None,
    promise: Promise,
    *,
    goes_on: bool,
) -> PlannedChargedSearch:
    trial, noise = search.trial(run), search.score_noise_multiplier
    trials, scores = search.planned(run)
    return PlannedChargedSearch(
        trials=search.trials,
        anew=trials_anew(search.trials) if goes_on and search.trials > 1 else None,
        spare_trials=search.spare_trials,
        sampling_rate=trial.sampling_rate,
        noise_multiplier=trial.noise_multiplier,
        clip_norm=trial.clip_norm,
        steps=trial.steps,
        score_noise_multiplier=noise,
        score_std=_score_std(noise, counted),
        epsilon_of_run=epsilon_alone(run.mechanism, promise),
        epsilon_of_trials=epsilon_alone(trials, promise),
        epsilon_of_scores=epsilon_alone(scores, promise),
    )


def _search_warnings(shape: Shape, workload: Workload) -> list[str]:
    """What the search costs more than it is meant to."""
    steps = shape.run.mechanism.steps
    if workload.is_charged:
        return _charged_warnings(shape, workload)
    if workload.budget is None:
        return []
    search = workload.search_examples(shape.batch, steps)
    if search <= workload.max_examples(shape.batch, steps):
        return []
    share = search / workload.private_run_examples(shape.batch, steps)
    return [
        f"the trials alone are expected to process {_two_digits(share)} times the examples of the private run, "
        f"above search.budget = {workload.budget:g}: fewer search.trials, smaller search.rungs or a "
        "larger train.batch_size would cost less"
    ]


def _two_digits(value: float) -> str:
    """As one writes it: 150, where ``.2g`` makes 1.5e+02."""
    return f"{float(f'{value:.2g}'):,g}"


def _score_warnings(search: ChargedSearch | None, counted: Counted | None) -> list[str]:
    """Where a charged search is told hardly anything of its trials."""
    std = _score_std(search.score_noise_multiplier, counted) if search else None
    if std is None or std < LOUD_SCORE:
        return []
    return [
        f"scores are noisy by ± {_two_digits(100 * std)} points, so trials can hardly be told apart: a larger validation split, above all "
        "of the rarest class where search.metric is balanced_accuracy, or a larger epsilon would leave less noise"
    ]


def _score_std(noise: float, counted: Counted | None) -> float | None:
    """Of the noise on a score, as a part of what all hits count; None where that is not known."""
    return round_up(noise / counted.whole, 4) if counted and counted.whole else None


def _charged_warnings(shape: Shape, workload: Workload) -> list[str]:
    """What a charged search asks for beside its privacy."""
    trial = shape.search.trial(shape.run) if shape.search else shape.run.mechanism
    steps = shape.run.mechanism.steps
    share = workload.search_examples(shape.batch, steps) / workload.private_run_examples(
        shape.batch, steps
    )
    warnings: list[str] = []
    if trial.noise_multiplier < ENOUGH_NOISE <= shape.run.mechanism.noise_multiplier:
        warnings.append(
            f"a trial at batch {trial.sampling_rate * shape.run.num_examples:g} has noise multiplier "
            f"{trial.noise_multiplier:.3g} < {ENOUGH_NOISE:g}, so it costs more than its total noise would at a "
            "larger batch; search.rungs: auto chooses one that does not"
        )
    if share > 1:
        warnings.append(
            f"the trials process {_two_digits(share)} times the examples of the private run: each is a private run itself, and "
            "a smaller batch would leave it too little noise; fewer search.trials or a larger train.batch_size would "
            "cost less"
        )
    return warnings


def _check_privacy(spec: StudySpec, relation: NeighboringRelation) -> None:
    """Refuse, by path, what no accountant here can promise."""
    if spec.privacy.delta < MIN_DELTA:
        raise ParameterError(
            f"delta must be >= {MIN_DELTA:g}, got {spec.privacy.delta:g}", field="privacy.delta"
        )
    replaced = relation is NeighboringRelation.REPLACE_ONE
    if replaced and spec.privacy.accountant is not Accountant.PLD:
        raise ParameterError(
            f"accountant {spec.privacy.accountant.value} cannot price sampled batches under "
            f"neighboring relation {relation.value}; accepted: pld",
            field="privacy.accountant",
        )
    check_cap(spec.train.max_batch_size, relation, spec.privacy.accountant)


def _whole(value: float) -> int | float:
    """An integer where the value is one: 16, not 16.0."""
    return int(value) if value == int(value) else value
