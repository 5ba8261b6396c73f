"""The plan: what a study would run, promise and cost. Its JSON is a contract with users."""

from typing import Literal

from pydantic import Field

from tan_core.accounting.search import SearchAccounting
from tan_core.execution import PrivateRun
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tan_core.planner.cap import with_cap
from tan_core.planner.charged import score_mechanism
from tan_core.spec.base import Frozen
from tan_core.spec.train import Precision


class PlannedRun(Frozen):
    """The private run. Exact: these floats are what is executed, nothing is rounded."""

    num_examples: int
    sampling_rate: float
    expected_batch_size: int | float
    noise_multiplier: float
    steps: int
    clip_norm: float
    max_batch_size: int | None = None
    """The cap of a batch; None: batches are never cut."""
    precision: Precision | None = None
    """Of the passes through the model; None: it is searched, or no study was asked for."""


class PlannedPrivacy(Frozen):
    """What the study promises. Every epsilon here is rounded up to four decimals.

    It is of the private run, and under ``accounted`` of the run, all trials and all their scores together.
    """

    epsilon: float
    """Of the planned steps."""
    delta: float
    accountant: Accountant
    neighboring_relation: NeighboringRelation
    epsilon_by_accountant: dict[Accountant, float | None]
    """None where an accountant could not answer, as ``warnings`` says, and of prv where a search is charged: it is not asked."""
    epsilon_tan: float
    """The paper's estimate. For plots: not a bound."""
    signal_to_noise: float
    """Of the private run alone, as is the next one."""
    overcharge: float | None
    """Exact epsilon over its limit at a huge batch; None where that limit is 0."""
    epsilon_reserved: float
    """Of the planned steps and the slack: what the ledger sets aside."""
    target_epsilon: float | None
    """What was asked for; None where the mechanism was."""


class PlannedReservation(Frozen):
    """What the ledger reserves, in steps."""

    steps: int
    """Planned steps and slack."""
    slack_steps: int
    segment_steps: int
    charged: bool = Field(default=True, exclude_if=lambda charged: charged)
    """False: the data are public, which have no ledger. Left out elsewhere."""


class PlannedSimulation(Frozen):
    """One rung. It has no epsilon field on purpose: not even where its trials are private has one of them its own."""

    scale_factor: int | float
    expected_batch_size: int | float
    sampling_rate: float
    noise_multiplier: float
    steps: int
    trials: float
    """Expected to begin it, as ASHA cuts and the budget holds; a heat or the curves of a rung end some of them earlier. Of a
    confirmation, how often it is simulated in any case."""
    learning_rate_factor: float = 1.0
    """The private run's learning rate over the simulation's: constant TAN leaves it alone; a run that goes on from the
    weights of its trial takes a part of it."""
    private: bool = False
    """Whether its trials are private runs of their own, charged to the budget: under ``accounted`` alone."""


class PlannedHeat(Frozen):
    """How the first rung begins where it has a heat."""

    steps: int
    """That all trials take."""
    trials: float
    """Expected to go on to the end of the rung, as ASHA cuts and the budget holds."""


class PlannedChargedSearch(Frozen):
    """What is charged for the search beside the private run: its trials and the scores that are seen of them."""

    trials: int
    anew: int | None = Field(default=None, exclude_if=lambda anew: anew is None)
    """Of these, how many begin anew; each later one goes on from the weights of the best before it. None, and left out: all do."""
    spare_trials: int
    """Reserved on top of them, for those that a crash ends; what never began is given back."""
    sampling_rate: float
    noise_multiplier: float
    clip_norm: float
    steps: int
    """Of one trial."""
    score_noise_multiplier: float
    """Of the noise on a score: units of the validation split, of which it counts those that are told right."""
    score_std: float | None = None
    """The same as a part of the validation split: what a score's accuracy is off by; None where its size is not known."""
    epsilon_of_run: float | None = None
    """Of the planned private run alone; as the next two at the plan's delta, by its accountant and rounded up.
    ``privacy.epsilon`` is of all three composed, and not their sum. None: it could not be priced in time, or the plan
    is of before it was told."""
    epsilon_of_trials: float | None = None
    """Of all planned trials alone."""
    epsilon_of_scores: float | None = None
    """Of their scores alone."""

    def trial(self, neighboring_relation: NeighboringRelation) -> Mechanism:
        """What one trial does to the data."""
        return Mechanism(
            sampling_rate=self.sampling_rate,
            noise_multiplier=self.noise_multiplier,
            clip_norm=self.clip_norm,
            steps=self.steps,
            neighboring_relation=neighboring_relation,
        )

    def reserved(self, neighboring_relation: NeighboringRelation) -> tuple[Mechanism, Mechanism]:
        """All trials and all scores, the spare ones included: what the ledger holds."""
        trial, count = self.trial(neighboring_relation), self.trials + self.spare_trials
        scores = score_mechanism(
            self.score_noise_multiplier, count=count, neighboring_relation=neighboring_relation
        )
        return trial.with_steps(trial.steps * count), scores


class PlannedStepCandidate(Frozen):
    """Another number of steps for the same batch and the same epsilon.

    At a fixed batch there is a best noise level, and so a best number of steps (De et al. 2022): these
    are the points to try. None of them costs more epsilon than the reference may.
    """

    steps: int
    noise_multiplier: float
    """Meets the reference's target at these steps, their slack included."""
    signal_to_noise: float
    overcharge: float | None
    """As in ``privacy``; None also where it could not be computed."""
    learning_rate_factor: float
    """Its learning rate over the reference's: learning rate times steps is kept."""
    private_run_examples: int
    reference: bool


class PlannedSearchPrivacy(Frozen):
    """What the search and the private run cost together, the run with the slack of the reservation.

    So even under public_proxy it is above what is promised, which is of the planned steps. Every epsilon
    is rounded up.
    """

    mode: SearchAccounting | None
    """``search.accounting``; None where a mechanism was planned, and no study."""
    epsilon: float | None
    """Of search and run in this mode; None where nothing can be claimed, or priced."""
    epsilon_if_accounted: float | None
    """Of every simulation composed with the run; None where there is none to charge, or it was not priced."""
    accountant: Accountant = Accountant.PLD
    """Whose figures these are."""
    simulations: int
    """All that ``epsilon_if_accounted`` composes: every trial at every rung, and the most repetitions."""
    note: str
    """The words that belong to these figures."""


class PlannedCost(Frozen):
    """Compute, in examples seen forward and backward."""

    counts: Literal["examples", "users", "units"] = Field(
        default="examples", exclude_if=lambda counts: counts == "examples"
    )
    """What is drawn and counted here as an example: ``users`` where one guarantee is for one of them, whose records
    make one gradient; ``units`` where the search draws the one and the private run the other."""
    private_run_examples: int
    search_examples: int
    """Of all trials, as many at each rung as ASHA is expected to leave and the budget holds."""
    finals_examples: int = 0
    """Of the finalists' repetitions with fresh seeds, at most."""
    full_search_examples: int
    """The same trials, each at the full batch."""
    saving: float
    """``full_search_examples`` over ``search_examples``; 1 without a search."""
    examples_per_second: float | None = None
    """Of one worker of the private run, as measured; None: nothing was measured yet."""
    search_examples_per_second: float | None = None
    """Of one device, with as many simulations as share it: small batches are slower."""
    rate_source: str | None = None
    """Where both rates were measured, in words."""
    private_run_seconds: float | None = None
    """On the study's workers, side by side."""
    search_seconds: float | None = None
    """Of all trials and finals on one device; several devices divide it."""
    memory_bytes: int | None = None
    """Of one worker, about: what ``planner.memory`` counts; None where the model is not known."""


class Plan(Frozen):
    """A study, decided."""

    reference: PlannedRun
    privacy: PlannedPrivacy
    reservation: PlannedReservation
    simulations: list[PlannedSimulation]
    """The rungs, the smallest batch first; none without a search."""
    heat: PlannedHeat | None = Field(default=None, exclude_if=lambda heat: heat is None)
    """The first part of the first rung, after which only the best trials go on; left out where there is none."""
    charged_search: PlannedChargedSearch | None = Field(
        default=None, exclude_if=lambda charged: charged is None
    )
    """What the search is charged; left out where it is not."""
    goes_on: bool = Field(default=False, exclude_if=lambda goes_on: not goes_on)
    """Whether the private run begins with the weights of its trial, in place of fresh ones. Left out where it does not."""
    confirmation: PlannedSimulation | None = None
    """What finalists are simulated at once more, above the rungs; None: they climb the rungs again."""
    step_candidates: list[PlannedStepCandidate] = Field(default_factory=list[PlannedStepCandidate])
    search_privacy: PlannedSearchPrivacy | None = None
    learnt_from: str | None = Field(default=None, exclude_if=lambda trial: trial is None)
    """The trial, of an earlier search of the same private data that was not accounted, whose parameters the study has:
    as the service knew it when it planned. Left out where it knew of none."""
    features_note: str | None = Field(default=None, exclude_if=lambda note: note is None)
    """Whether features are computed once for each record, where the classifier of a checkpoint alone is trained; left out elsewhere."""
    cost: PlannedCost
    warnings: list[str]
    """What the user should not overlook: an overcharge, a large delta, a silent accountant."""

    def private_run(self) -> PrivateRun:
        """The very run that was priced."""
        poisson = Mechanism(
            sampling_rate=self.reference.sampling_rate,
            noise_multiplier=self.reference.noise_multiplier,
            clip_norm=self.reference.clip_norm,
            steps=self.reference.steps,
            neighboring_relation=self.privacy.neighboring_relation,
        )
        num_examples = self.reference.num_examples
        return PrivateRun(
            mechanism=with_cap(poisson, self.reference.max_batch_size, num_examples),
            num_examples=num_examples,
        )

    @property
    def rungs(self) -> list[int]:
        """Simulated expected batch sizes, smallest first."""
        return [round(simulation.expected_batch_size) for simulation in self.simulations]

    @property
    def confirmation_batch(self) -> int | None:
        """Expected batch size of the confirmation, if there is one."""
        return None if self.confirmation is None else round(self.confirmation.expected_batch_size)
