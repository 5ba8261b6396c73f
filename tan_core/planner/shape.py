"""Choosing (B, sigma, S) for a study: what is fixed stays, what is ``auto`` is decided here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tan_core.accounting import price, round_up
from tan_core.accounting.calibrate import RELATIVE_TOLERANCE
from tan_core.accounting.events import joined
from tan_core.errors import ParameterError
from tan_core.execution import PrivateRun
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tan_core.planner.calibration import calibrated, least_noise
from tan_core.planner.cap import free_cap, refuse_batch_above_cap, with_cap
from tan_core.planner.charged import ChargedSearch, charged_batch
from tan_core.planner.cost import ComputeLimit
from tan_core.planner.counted import Counted
from tan_core.planner.segments import reserved_mechanism
from tan_core.spec import Choices, Range, StudySpec

AUTO_STEPS = 300
"""``train.steps: auto``. Enough for small models that train in minutes, and few enough that noise
multiplier 2 is met at a batch a CPU can afford. Longer runs are the user's choice, or the search's."""

ENOUGH_NOISE = 2.0
"""The noise multiplier from which epsilon depends on the total noise alone, within 10 %."""

MIN_AUTO_BATCH = 16
_ROUGHLY = 0.02
_FEWER_STEPS = (AUTO_STEPS, AUTO_STEPS // 2, AUTO_STEPS // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A private run, decided.

    Args:
        run: (q, sigma, S) and N.
        batch: B as it was chosen: ``run.expected_batch_size`` may miss it by round-off.
        is_calibrated: whether the noise was solved for, and not fixed by the user.
        search: what is charged beside the run; None: nothing is.
        warnings: what the user should know about the choice.
    """

    run: PrivateRun
    batch: int | float
    is_calibrated: bool
    search: ChargedSearch | None = None
    warnings: tuple[str, ...] = ()


def choose_shape(
    spec: StudySpec,
    *,
    num_examples: int,
    neighboring_relation: NeighboringRelation,
    limit: ComputeLimit | None,
    num_validation: int | None = None,
) -> Shape:
    """The private run of a study, and the search where it is charged.

    ``train.batch_size: auto`` is the smallest power of two whose noise multiplier is at least
    ``ENOUGH_NOISE``, or the largest that the compute limit holds. ``train.steps: auto`` is
    ``AUTO_STEPS``, or a half or a quarter of it where the limit holds no batch otherwise.
    ``search.rungs: auto`` of a charged search is the smallest batch, by halves, whose trials have that noise too.

    Args:
        spec: the study.
        num_examples: N.
        neighboring_relation: of the budget.
        limit: on compute, if there is one.
        num_validation: units, records or users, that trials are scored on; None where they are not known.

    Raises:
        ParameterError: a field cannot be had, ``budget.gpu_hours`` among them.
        UnreachableTargetError: no noise meets the target.
    """
    if spec.train.batch_size != "auto":
        refuse_batch_above(num_examples, spec.train.batch_size)
        refuse_batch_above_cap(spec.train.batch_size, spec.train.max_batch_size)
        sizes = [spec.train.batch_size]
    else:
        sizes = _whole_under(spec.train.max_batch_size, _powers_of_two(num_examples), num_examples)
    if spec.search.accounting.is_charged and spec.search.rungs != "auto":
        sizes = _holding(spec.search.rungs[0], sizes)
    steps = _steps_within(limit, sizes[0], _reference_steps(spec))
    shaper = _Shaper(spec, num_examples, steps, neighboring_relation, limit, num_validation)
    return shaper.shape(sizes)


def refuse_batch_above(num_examples: int, batch: float, *, field: str = "train.batch_size") -> None:
    """Refuse a batch that is larger than the data."""
    if batch > num_examples:
        raise ParameterError(
            f"expected batch {batch:g} exceeds the {num_examples} training examples", field=field
        )


def largest(spec: StudySpec, field: str) -> int | None:
    """The largest value that the space allows a trainer field; None where it is not searched."""
    ends = _ends(spec, field)
    return None if ends is None else ends[1]


def fewest_steps(spec: StudySpec) -> int:
    """That a trial takes, whatever is chosen."""
    if searched := _ends(spec, "steps"):
        return searched[0]
    return _FEWER_STEPS[-1] if spec.train.steps == "auto" else spec.train.steps


def _ends(spec: StudySpec, field: str) -> tuple[int, int] | None:
    dimension = spec.searched(field)
    if dimension is None:
        return None
    if isinstance(dimension, Choices):
        values = [int(value) for value in dimension.choices]
    elif isinstance(dimension, Range):
        values = [int(dimension.low), int(dimension.high)]
    else:
        values = [int(dimension)]
    return min(values), max(values)


@dataclass(frozen=True, slots=True)
class _Shaper:
    """Chooses (B, sigma) at given steps."""

    spec: StudySpec
    num_examples: int
    steps: int
    neighboring_relation: NeighboringRelation
    limit: ComputeLimit | None
    num_validation: int | None

    def shape(self, sizes: Sequence[int]) -> Shape:
        """Of the batch sizes, rising, the one to run, with its noise."""
        affordable = [size for size in sizes if _fits(self.limit, size, self.steps)]
        fixed, target = self.spec.train.noise_multiplier, self.spec.privacy.epsilon
        if fixed is not None:
            batch = self._batch_with_noise(affordable, fixed, target)
            run = self._run(batch, fixed)
            search = self._search(run, target)
            return Shape(run=run, batch=batch, is_calibrated=False, search=search)
        if target is None:
            raise ParameterError(
                "a target is needed: give privacy.epsilon, or fix train.noise_multiplier",
                field="privacy.epsilon",
            )
        wanted = self._enough_noise(sizes, target)
        batch = min(wanted, affordable[-1])
        run, search = self._calibrated(batch, target)
        warnings = self._shortfalls(run, batch, wanted)
        return Shape(run=run, batch=batch, is_calibrated=True, search=search, warnings=warnings)

    def _batch_with_noise(
        self, sizes: Sequence[int], noise_multiplier: float, target: float | None
    ) -> int:
        """The noise is the user's; the target, where there is one, must hold with the slack."""
        batch = sizes[0]
        if self.spec.train.batch_size == "auto":
            if target is None:
                raise ParameterError(
                    "auto needs privacy.epsilon; with train.noise_multiplier alone, give a number",
                    field="train.batch_size",
                )
            fits = [size for size in sizes if self._cost(size, noise_multiplier) <= target]
            batch = max(fits, default=batch)
        cost = self._cost(batch, noise_multiplier)
        if target is not None and cost > target:
            raise ParameterError(
                f"noise multiplier {noise_multiplier:g} at batch {batch} costs epsilon = "
                f"{round_up(cost, 4):g} with its slack, above privacy.epsilon = {target:g}; "
                "give more noise, or leave it out to have it calibrated",
                field="train.noise_multiplier",
            )
        return batch

    def _enough_noise(self, sizes: Sequence[int], target: float) -> int:
        """The smallest batch whose calibrated noise is enough; else the largest there is."""
        return _first(sizes, lambda size: self._cost(size, ENOUGH_NOISE, rough=True) >= target)

    def _run(self, batch: int, noise_multiplier: float) -> PrivateRun:
        poisson = Mechanism(
            sampling_rate=batch / self.num_examples,
            noise_multiplier=noise_multiplier,
            clip_norm=self.spec.train.clip_norm,
            steps=self.steps,
            neighboring_relation=self.neighboring_relation,
        )
        cap = self.spec.train.max_batch_size
        return PrivateRun(
            mechanism=with_cap(poisson, cap, self.num_examples), num_examples=self.num_examples
        )

    def _calibrated(self, batch: int, target: float) -> tuple[PrivateRun, ChargedSearch | None]:
        run = self._calibrated_alone(batch, target)
        search = self._search(run, target)
        if search is None:
            return run, None
        low, tolerance = run.mechanism.noise_multiplier, RELATIVE_TOLERANCE

        def together(noise: float) -> float:
            return self._together(self._run(batch, noise), search)

        if self.spec.search.rungs == "auto":
            # With trials as large as the run first, about: smaller ones need at least as much noise.
            rough = least_noise(together, epsilon=target, low=low, tolerance=_ROUGHLY)
            smaller = charged_batch(batch, rough, enough_noise=ENOUGH_NOISE)
            low, search = rough * (1 - 2 * _ROUGHLY), search.at(smaller)
        return self._run(
            batch, least_noise(together, epsilon=target, low=low, tolerance=tolerance)
        ), search

    def _search(self, run: PrivateRun, target: float | None) -> ChargedSearch | None:
        """What is charged beside the run; its batch is the run's where the planner has yet to choose it."""
        search = self.spec.search
        if not search.accounting.is_charged:
            return None
        privacy = self.spec.privacy
        batch = run.expected_batch_size
        found = ChargedSearch.of(
            search.trials,
            epsilon=self._price([reserved_mechanism(run.mechanism)]) if target is None else target,
            delta=privacy.delta,
            accountant=privacy.accountant,
            neighboring_relation=self.neighboring_relation,
            counted=None
            if self.num_validation is None
            else Counted.of(self.num_validation, self.spec),
            expected_batch_size=None if search.rungs == "auto" else search.rungs[0],
        )
        if search.rungs != "auto" or self.spec.train.noise_multiplier is None:
            return found
        noise = run.mechanism.noise_multiplier
        return found.at(charged_batch(round(batch), noise, enough_noise=ENOUGH_NOISE))

    def _together(self, run: PrivateRun, search: ChargedSearch | None) -> float:
        """Epsilon of the run with its slack and of all that is charged beside it."""
        beside = search.reserved(run) if search is not None else []
        return self._price(joined([reserved_mechanism(run.mechanism), *beside]))

    def _price(self, mechanisms: Sequence[Mechanism], *, rough: bool = False) -> float:
        """Rough: never by PRV, which takes a process per answer."""
        accountant = self.spec.privacy.accountant
        if rough and accountant is Accountant.PRV:
            accountant = Accountant.PLD
        return price(mechanisms, delta=self.spec.privacy.delta, accountant=accountant).epsilon

    def _calibrated_alone(self, batch: int, target: float) -> PrivateRun:
        run = self._run(batch, ENOUGH_NOISE)  # any noise will do: it is solved for
        mechanism = calibrated(
            run.mechanism,
            steps=self.steps,
            epsilon=target,
            delta=self.spec.privacy.delta,
            accountant=self.spec.privacy.accountant,
        )
        return replace(run, mechanism=mechanism)

    def _cost(self, batch: int, noise_multiplier: float, *, rough: bool = False) -> float:
        """Epsilon of the run with its slack, and of what is charged beside it."""
        run = self._run(batch, noise_multiplier)
        search = self._search(run, self.spec.privacy.epsilon)
        if search is not None:
            return self._together(run, search)
        return self._price([reserved_mechanism(run.mechanism)], rough=rough)

    def _shortfalls(self, run: PrivateRun, batch: int, wanted: int) -> tuple[str, ...]:
        """Why ``auto`` ended with less noise than it wanted, and what would help."""
        sigma = run.mechanism.noise_multiplier
        if self.spec.train.batch_size != "auto" or sigma >= ENOUGH_NOISE:
            return ()
        if batch < wanted and self.limit is not None:
            needed = round_up(self.limit.hours(wanted, self.steps), 3)
            return (
                f"budget.gpu_hours = {self.limit.gpu_hours:g} holds train.batch_size: auto at "
                f"{batch}, with noise multiplier {sigma:.3g} < {ENOUGH_NOISE:g}; batch {wanted} "
                f"needs about {needed:g} device hours; fewer trials, smaller rungs, fewer steps or "
                "a smaller epsilon would help as well",
            )
        return (
            f"train.batch_size: auto ended at {batch}, the largest power of two {self._reach()}, with "
            f"noise multiplier {sigma:.3g} < {ENOUGH_NOISE:g}; more steps or a smaller epsilon "
            "would use the budget better",
        )

    def _reach(self) -> str:
        """What ended the sizes for auto."""
        if self.spec.train.max_batch_size is None:
            return "in the data"
        return "that train.max_batch_size leaves whole"


def _holding(rung: int, sizes: Sequence[int]) -> Sequence[int]:
    """The sizes that hold a simulated batch."""
    held = [size for size in sizes if size >= rung]
    if not held:
        raise ParameterError(
            f"a simulated batch cannot exceed the private run's, here at most {sizes[-1]}, got {rung}",
            field="search.rungs",
        )
    return held


def _whole_under(cap: int | None, sizes: Sequence[int], num_examples: int) -> Sequence[int]:
    """The sizes whose batches the cap does not cut."""
    if cap is None:
        return sizes
    whole = [size for size in sizes if free_cap(size, num_examples) <= cap]
    if not whole:
        raise ParameterError(
            f"train.batch_size: auto needs train.max_batch_size >= "
            f"{free_cap(sizes[0], num_examples)}, got {cap}; fix train.batch_size for less",
            field="train.max_batch_size",
        )
    return whole


def _fits(limit: ComputeLimit | None, batch: int, steps: int) -> bool:
    return limit is None or limit.holds(batch, steps)


def _steps_within(limit: ComputeLimit | None, batch: int, options: Sequence[int]) -> int:
    """The first of the options that the limit holds at the smallest batch."""
    if limit is None:
        return options[0]
    for steps in options:
        if limit.holds(batch, steps):
            return steps
    hours = round_up(limit.hours(batch, options[-1]), 4)
    raise ParameterError(
        f"{limit.gpu_hours:g} device hours do not hold the smallest plan: batch {batch} for "
        f"{options[-1]} steps and its search need about {hours:g} ({limit.rates.source}); give "
        "more hours, or fewer steps, trials or views",
        field="budget.gpu_hours",
    )


def _reference_steps(spec: StudySpec) -> Sequence[int]:
    """What the steps may be, the preferred first: fixed, the most of the search, or auto."""
    if spec.train.steps != "auto":
        return [spec.train.steps]
    searched = largest(spec, "steps")
    return _FEWER_STEPS if searched is None else [searched]


def _powers_of_two(num_examples: int) -> list[int]:
    """Batch sizes for auto: from 16 to the data, at least one."""
    highest = num_examples.bit_length() - 1
    lowest = min(MIN_AUTO_BATCH.bit_length() - 1, highest)
    return [2**exponent for exponent in range(lowest, highest + 1)]


def _first(sizes: Sequence[int], holds: Callable[[int], bool]) -> int:
    """The first size at which a claim that stays true holds; the last where it never does."""
    low, high = 0, len(sizes) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(sizes[middle]) else (middle + 1, high)
    return sizes[low]
