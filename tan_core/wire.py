"""Messages between the control plane and what runs inside Ray. Versioned; never pickled.

The control plane answers ``GET /worker/runs/{run_id}`` with an :class:`Assignment`; the driver then
reports. Every report carries the ``fence`` of its attempt: a report with an old fence gets HTTP 409
and the driver exits, so a zombie can write nothing. Reports are idempotent: sending one twice is
harmless.

Authentication: ``Authorization: Bearer <run token>``; a token is good for one attempt of one run.

==========================================================  ======================================
``GET  /worker/runs/{run_id}?fence=F``                      -> Assignment
``POST /worker/runs/{run_id}/heartbeat``   Heartbeat        -> HeartbeatReply
``PUT  /worker/runs/{run_id}/trials/{n}``  TrialReport      -> 204
``POST /worker/runs/{run_id}/segments``    SegmentRequest   -> SegmentGrant
``POST /worker/runs/{run_id}/segments/{n}/end`` SegmentEnd  -> 204
``POST /worker/runs/{run_id}/finish``      Finish           -> 204
==========================================================  ======================================
"""

import unicodedata
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StrictBool, model_validator

from tan_core.spec.base import Frozen
from tan_core.spec.columns import Feature
from tan_core.spec.models import ModelSpec
from tan_core.spec.space import MAX_DIMENSIONS
from tan_core.spec.study import Metric, SearchSpec
from tan_core.spec.train import TrainerConfig

WIRE_VERSION = 18
"""Of the messages below, held by a test: raised whenever one of them changes. A worker of another version says so."""

RECORD = "record"
"""The unit of privacy unless it is a user; then the unit is the column that names them."""

MAX_REASON_LENGTH = 2000

MAX_COUNT = 2**53
"""What every reader of JSON keeps exact, and every column holds."""
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Index = Annotated[int, Field(ge=0, lt=2**31)]
"""Of a trial, a rung or a step: queries read these as PostgreSQL's integers."""
Amount = Annotated[float, Field(ge=0, le=1e15)]
Fence = Annotated[int, Field(ge=1, le=MAX_COUNT)]
NumRanks = Annotated[int, Field(ge=1, le=MAX_COUNT)]


def clean_reason(text: str) -> str:
    r"""The text as a database can store it and a page can show it, at most 2,000 characters.

    Control characters other than newline and tab are dropped, and lone surrogates with them:
    PostgreSQL holds neither NUL nor what is not UTF-8.

    Example:
        >>> clean_reason("out of memory\x00\n\ton rank 1\r")
        'out of memory\n\ton rank 1'
    """
    shown = "".join(character for character in text if _is_storable(character))
    return shown if len(shown) <= MAX_REASON_LENGTH else shown[: MAX_REASON_LENGTH - 1] + "…"


def _is_storable(character: str) -> bool:
    return character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs")


def _exact(text: str) -> str:
    if not all(map(_is_storable, text)):
        raise ValueError(f"control characters cannot be stored, got {text[:200]!a}")
    return text


Reason = Annotated[str, AfterValidator(clean_reason)]
"""Words for people, often those of a library: made storable, whatever they hold."""

Exact = Annotated[str, AfterValidator(_exact)]
"""Text that programs compare: refused rather than changed when it cannot be stored."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""Of a file, as hex: statements, exports and headers repeat it."""


class DatasetRef(Frozen):
    """How a worker finds and checks a registered dataset."""

    name: str
    source: Literal["digits", "parquet", "image_folder", "npz", "table"]
    path: str | None = None
    """Folder or file on storage that every node sees; None for bundled data."""
    label: str = "label"
    features: list[Feature] | None = None
    """Feature columns of a table and how they are read; None: every numeric column but the label, as it is."""
    content_sha256: str
    unit: str = RECORD
    """What one guarantee is for: a record, or the column that says whose a record is."""
    records_per_unit: int = 1
    """Of a user, in train, at most."""
    group: str | None = None
    """The column that says which group a record is of."""
    num_classes: int
    classes: list[str] | None = None
    """What they are called, by their number, and what text in the label column may be; None: nobody said so."""
    shape: list[int]
    """Of one record, channels first: [1, 28, 28]; [F] for a table."""
    num_train: int
    """Units: what is sampled."""
    num_train_records: int | None = None
    """Where the unit is a user; None in messages of before there were any."""
    num_validation: int
    num_test: int
    split_seed: int = 0
    public: bool = False


class MechanismMessage(Frozen):
    """A mechanism in the ledger's own codec: ``Mechanism.to_json``."""

    event: dict[str, Any]


class TrialState(StrEnum):
    """``interrupted`` trials were running when their driver died: their parameters run again."""

    RUNNING = "running"
    COMPLETED = "completed"
    PRUNED = "pruned"
    DIVERGED = "diverged"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def is_finished(self) -> bool:
        """Whether the trial counts towards ``search.trials``."""
        return self not in (TrialState.RUNNING, TrialState.INTERRUPTED)


CURVE_POINTS = 4
"""Parts of a rung. After each its curve gets a point; the last one is the score. A heat is the first one."""


class CurvePoint(Frozen):
    """Accuracy on the way through a rung: on a part of the validation split, and on all of it at the end and after a heat."""

    step: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    accuracy: Annotated[float, Field(ge=0, le=1)]


class RungScore(Frozen):
    """One simulation: a trial at a rung, with a seed. Its accuracy is never a privacy figure."""

    rung: Index
    seed: Count = 0
    """0 in the search, where every trial has the same draws and noise; above it in the finals."""
    expected_batch_size: Amount
    noise_multiplier: Amount
    steps: Index
    """Taken: below the candidate's own where the simulation was given up."""
    views: Annotated[int, Field(ge=1, le=MAX_COUNT)] = 1
    """K, of each example."""
    accuracy: Annotated[float, Field(ge=0, le=1)] | None
    """On the validation split, of the mean of its last weights; None where the simulation was given up."""
    released: Annotated[float, Field(ge=0, le=1)] | None = None
    """The same of the weights that a run like it would release: the last ones, or their moving average. None where
    the simulation was given up, or comes from a worker that did not tell."""
    train_loss: float | None = None
    clipped_fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    """Of the gradients in a batch, the part that was longer than the clipping norm: the mean over its steps so far, empty
    batches left out. None where the rule of clipping scales all gradients or none, of a charged trial, which would have
    to pay for it, and from a worker that did not tell."""
    seconds: Amount
    devices: Amount = Field(default=1.0, exclude_if=lambda devices: devices == 1)
    """That it had: a part of one where Ray lends parts. Left out where it was one."""
    heat: bool = Field(default=False, exclude_if=lambda heat: not heat)
    """Whether it took the first part of its steps alone: ``accuracy`` is then of that heat. Left out where it did not."""
    curve: Annotated[list[CurvePoint], Field(max_length=100)] = Field(
        default_factory=list[CurvePoint]
    )

    @property
    def examples(self) -> int:
        """Seen forward and backward, as expected: B times steps times K."""
        return round(self.expected_batch_size * self.steps * self.views)


def _of_the_search(scores: list[RungScore]) -> list[RungScore]:
    if any(score.seed != 0 for score in scores):
        raise ValueError("scores of the search have seed 0")
    return scores


def _of_the_finals(scores: list[RungScore]) -> list[RungScore]:
    if any(score.seed == 0 for score in scores):
        raise ValueError("repetitions have a seed of 1 or more")
    return scores


class TrialStart(Frozen):
    """What a trial of a search that is charged goes on from, where it does not begin anew."""

    trial: Count
    """Whose weights it began with."""
    weights_sha256: Sha256
    """Of the file with them."""
    learning_rate_factor: Annotated[float, Field(gt=0, le=1e6)]
    """What part of the learning rate of its parameters it took."""


class TrialRecord(Frozen):
    """A trial as the control plane keeps it."""

    number: Index
    state: TrialState
    params: Annotated[dict[Exact, bool | int | float | Exact], Field(max_length=MAX_DIMENSIONS)]
    scores: Annotated[list[RungScore], Field(max_length=100), AfterValidator(_of_the_search)] = (
        Field(default_factory=list[RungScore])
    )
    repeats: Annotated[list[RungScore], Field(max_length=1000), AfterValidator(_of_the_finals)] = (
        Field(default_factory=list[RungScore])
    )
    """Where the trial is a finalist, with fresh seeds: the rungs again, or one above them; by seed, then rung."""
    value: Annotated[float, Field(ge=0, le=1)] | None = None
    """Accuracy at the highest rung reached."""
    source: Exact | None = None
    """Where the parameters were taken from, in words; None: the sampler chose them."""
    reason: Reason | None = None
    weights_sha256: Sha256 | None = Field(default=None, exclude_if=lambda sha256: sha256 is None)
    """Of the file with the weights that it left (:func:`weights_path`), where its search keeps them; left out where there is
    none."""
    began_from: TrialStart | None = Field(default=None, exclude_if=lambda start: start is None)
    """The earlier trial that it went on from; left out where it began anew."""

    @property
    def examples(self) -> int:
        """Seen by all its simulations."""
        return sum(score.examples for score in (*self.scores, *self.repeats))


def weights_path(storage_path: str, *, trial: int, sha256: str) -> str:
    """The file with the weights that a trial left; its name holds part of its digest, so no other attempt writes over it.

    Example:
        >>> weights_path("/storage/s-1-search", trial=3, sha256="5b" * 32)
        '/storage/s-1-search/trial-3-5b5b5b5b5b5b5b5b.safetensors'
    """
    return f"{storage_path}/trial-{trial}-{sha256[:16]}.safetensors"


class KnownPoint(Frozen):
    """Parameters worth trying first."""

    params: dict[Exact, bool | int | float | Exact]
    source: Exact
    """As in :class:`TrialRecord`."""


class TrialReport(Frozen):
    """The whole present state of one trial; the last one wins.

    Of a finished trial only ``repeats`` may still change, and only grow.
    """

    fence: Fence
    trial: TrialRecord


class ChargedTrials(Frozen):
    """How the trials of a search that is charged run: each a private run of its own, seen by one noisy score."""

    mechanism: MechanismMessage
    """Of one trial: what is reserved so many times."""
    score_noise_multiplier: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Standard deviation of the noise on the number of validation records, or users, that are told right."""
    score_std: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """The same as a part of the validation split."""
    anew: Count | None = None
    """How many trials begin anew before each later one goes on from the best before it. None: all of them do."""


class SearchAssignment(Frozen):
    """What a search driver is to do."""

    kind: Literal["search"] = "search"
    wire_version: int = WIRE_VERSION
    run_id: str
    study_id: str
    study_name: str
    attempt: int
    fence: Fence
    search: SearchSpec
    model: ModelSpec
    trainer: TrainerConfig
    reference: MechanismMessage
    """The private run's mechanism. Simulations are ``Simulation.of`` it, on the search dataset."""
    target: dict[str, Any] | None
    """{epsilon, delta, accountant, spare_steps rule}: set when ``steps`` is searched."""
    num_examples: int
    """N of the private run: with the mechanism's q it gives B."""
    rungs: list[int]
    """Simulated expected batch sizes, smallest first."""
    heat: bool = False
    """Whether the first rung begins with a heat: all trials take the first part of its steps, and the best go on."""
    charged: ChargedTrials | None = None
    """Where every trial is charged: then there is one rung, and no finals. None: trials are simulations."""
    weights_storage_path: str | None = None
    """A directory of this search's own, in which trials leave their weights: charged ones, and those of a public proxy. None:
    they leave none."""
    confirmation: int | None = None
    """Above the rungs: the expected batch size at which finalists are simulated once with each fresh seed. None: they
    climb the rungs again."""
    max_examples: int
    """What the whole search may process: trials climb and finalists are repeated while there is room."""
    points: list[KnownPoint] = Field(default_factory=list[KnownPoint])
    """Tried before the sampler is asked; only points of the space."""
    dataset: DatasetRef
    """What the simulations read: the study's dataset, or the public proxy."""
    trials: list[TrialRecord]
    """Everything known from earlier attempts, in order of number."""
    microbatch_size: int = 256
    max_concurrent: int | None = None

    @property
    def cuts(self) -> list[float]:
        """Where trials are cut, as the batch size of a whole rung that costs as much: after the heat, then after each rung."""
        return [self.rungs[0] / CURVE_POINTS, *self.rungs] if self.heat else [*self.rungs]

    @property
    def levels(self) -> list[int]:
        """All batch sizes that are simulated, by the rung of their scores: the rungs, and the confirmation above them."""
        return self.rungs if self.confirmation is None else [*self.rungs, self.confirmation]

    @property
    def repetition(self) -> list[int]:
        """The batch sizes that a finalist is simulated at with each fresh seed."""
        return self.rungs if self.confirmation is None else [self.confirmation]


class Checkpoint(Frozen):
    """Where a private run goes on from."""

    step: Count
    path: Exact
    sha256: Sha256


class TrialWeights(Frozen):
    """The weights that a trial of the study left: made of noisy sums that are paid for, or of public data."""

    trial: Count
    path: Exact
    sha256: Sha256


class PrivateAssignment(Frozen):
    """What a private-run driver is to do."""

    kind: Literal["private"] = "private"
    wire_version: int = WIRE_VERSION
    run_id: str
    study_id: str
    study_name: str
    attempt: int
    fence: Fence
    mechanism: MechanismMessage
    num_examples: int
    model: ModelSpec
    trainer: TrainerConfig
    metric: Metric = Metric.ACCURACY
    """What ``test_accuracy`` is, and what a baseline is chosen by."""
    workers: int
    microbatch_size: int
    by_class: bool = False
    """Whether to tell the test accuracy of each class and group."""
    baseline: bool = False
    """Whether to train a model without privacy to compare with."""
    segment_steps: int
    """Steps between two checkpoints, charged as one when they begin."""
    dataset: DatasetRef
    begin_from: TrialWeights | None = None
    """What it begins with. None: fresh weights, or those of ``model.pretrained``."""
    checkpoint: Checkpoint | None
    """Where it goes on, whatever it began with."""
    storage_path: str
    """A directory of this run's own; each attempt writes below ``attempt-{n}``."""


Assignment = Annotated[SearchAssignment | PrivateAssignment, Field(discriminator="kind")]


class FeaturesMade(Frozen):
    """How far the features of a split are, which are computed before anything is trained on them."""

    done: Count
    number: Count
    per_second: Amount | None = None


class Heartbeat(Frozen):
    """Sent every few seconds; ``step`` is the progress of a private run, ``features`` what comes before it or before trials.

    ``ranks``: how many the cluster has room for, of a private run that may have asked for more. ``waits_for``: why nothing of
    the run has a place in the cluster yet; ``waited_seconds``: for how long, of this attempt, that was so in all.
    """

    fence: Fence
    ranks: NumRanks | None = None
    waits_for: Reason | None = None
    waited_seconds: Amount = 0.0
    step: Count | None = None
    steps_per_second: Amount | None = None
    features: FeaturesMade | None = None


HEARTBEAT_PAUSE = "Heartbeat-Pause"
"""Header of the answer to a heartbeat: the least seconds until the next one. Not a field of the reply, so that
drivers that are older than it go on."""


class HeartbeatReply(Frozen):
    """``cancel``: stop cleanly now. ``pause``: stop where nothing that was done is done again."""

    desired: Literal["run", "pause", "cancel"]


class SegmentRequest(Frozen):
    """Ask for the charge of the next steps. Answered only after it is committed.

    Of a search that is charged: of one whole trial, from step 0, and of its score.
    """

    fence: Fence
    start_step: Count
    num_steps: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    request_id: Annotated[Exact, Field(max_length=100)]
    """Fresh per segment, equal on a retry of the same request: the charge happens once."""


class SegmentGrant(Frozen):
    """``num_steps`` may be below what was asked, and 0 when the reservation is used up."""

    segment: Count
    num_steps: Count


class SegmentEnd(Frozen):
    """A segment's steps are done and its checkpoint is on storage."""

    fence: Fence
    checkpoint: Checkpoint


Norm = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class UpdatePoint(Frozen):
    """One step of a private run as its noisy gradient tells it: a function of what was released."""

    step: Count
    """Steps taken before it."""
    gradient_norm: Norm | None
    """Of the noisy sum over clip norm and expected batch size; None: it was not finite."""
    ema_distance: Norm | None
    """Of the weights from their average, before the step; None without an average."""


class Tally(Frozen):
    """How many test records of a class or a group a model tells right."""

    name: Exact
    num: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    correct: Count

    @model_validator(mode="after")
    def _are_parts(self) -> Self:
        if self.correct > self.num:
            raise ValueError(f"{self.correct} of {self.num} records cannot be right")
        return self


LEAST_TOLD = 10
"""Test records of the smallest part that is told of; users, where one guarantee is for a user."""
OTHER = "(other)"
"""What the parts are called that are too small to be told of one by one."""


def pool_small(parts: list[Tally], users: Sequence[frozenset[int]] | None = None) -> list[Tally]:
    """The parts, those of fewer than :data:`LEAST_TOLD` records together as the last one, :data:`OTHER`.

    Where ``users`` says whose records each part has, it is users that are counted: a part of many records
    of one user tells of nobody else. What is pooled so is not changed by pooling it again without them.

    Where these are too few even together, the next smallest part joins them: a sum over too few records
    could be told from the whole and the other parts. Which parts are told depends on their sizes alone, so
    it is the same for every model; to pool twice changes nothing. Nothing is left where all are too few.

    Example:
        >>> sizes = {"a": 200, "b": 12, "c": 9, "d": 40}
        >>> [(part.name, part.num) for part in pool_small([
        ...     Tally(name=name, num=num, correct=0) for name, num in sizes.items()])]
        [('a', 200), ('d', 40), ('(other)', 21)]
    """

    def size(*places: int) -> int:
        if users is None:
            return sum(parts[place].num for place in places)
        return len(frozenset[int]().union(*(users[place] for place in places)))

    # A part that has the name of the pool is of the pool.
    rising = sorted(
        enumerate(parts),
        key=lambda at: (at[1].name != OTHER, size(at[0]), at[1].num, at[1].name, at[0]),
    )
    count = sum(part.name == OTHER or size(at) < LEAST_TOLD for at, part in enumerate(parts))
    if count == 0:
        return parts
    while count < len(parts) and size(*(at for at, _ in rising[:count])) < LEAST_TOLD:
        count += 1
    pooled = [part for _, part in rising[:count]]
    if size(*(at for at, _ in rising[:count])) < LEAST_TOLD:
        return []
    other = Tally(
        name=OTHER,
        num=sum(part.num for part in pooled),
        correct=sum(part.correct for part in pooled),
    )
    return [*(part for _, part in sorted(rising[count:], key=lambda at: at[0])), other]


Parts = Annotated[list[Tally], AfterValidator(lambda parts: pool_small(parts))]


class Scores(Tally):
    """Of the whole test split, and of its parts: the small ones together, whoever counted them."""

    name: Exact = "all"
    classes: Parts
    """By label, those that have enough records."""
    groups: Parts = Field(default_factory=list[Tally])
    """Empty where the dataset names no column of groups."""


class Evaluation(Frozen):
    """The private model by class and group, beside one without privacy. No ε covers any of it."""

    private: Scores
    group: Exact | None = None
    """The column of the groups."""
    baseline: Scores | None = None
    """Of the same training without noise and clipping; None: not asked for, or there is none."""
    baseline_reason: Reason | None = None
    """Why there is none, although it was asked for."""


class PrivateResult(Frozen):
    """How a private run ended."""

    steps: Count
    """Steps in the released weights (re-executed steps of crashed attempts not counted)."""
    test_accuracy: Annotated[float, Field(ge=0, le=1)]
    """By the metric of the assignment."""
    num_test: Count
    model_path: Exact
    model_sha256: Sha256
    train_seconds: Amount
    software: dict[Exact, Exact]
    """Versions by name; ``commit`` is that of the product's own code, where it is known."""
    updates: Annotated[list[UpdatePoint], Field(max_length=1000)] = Field(
        default_factory=list[UpdatePoint]
    )
    """Some of its steps, rising; told at the end only (tan_core/engine/trace.py says why)."""
    evaluation: Evaluation | None = None
    """None: it was not asked for."""


class Finish(Frozen):
    """The final report of an attempt."""

    fence: Fence
    outcome: Literal["succeeded", "failed", "cancelled"]
    reason: Reason | None = None
    retryable: StrictBool = True
    """False: another attempt would end the same way, e.g. every trial diverged."""
    result: PrivateResult | None = None
