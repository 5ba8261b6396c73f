"""The plan: what a study would run, promise and cost. Its JSON is a contract (DESIGN 4.3)."""

from typing import Literal

from tan_core.execution import PrivateRun
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tan_core.spec.base import Frozen


class PlannedRun(Frozen):
    """The private run. Exact: these floats are what is executed, nothing is rounded."""

    num_examples: int
    sampling_rate: float
    expected_batch_size: int | float
    noise_multiplier: float
    steps: int
    clip_norm: float


class PlannedPrivacy(Frozen):
    """What the run promises. Every epsilon here is rounded up to four decimals."""

    epsilon: float
    """Of the planned steps."""
    delta: float
    accountant: Accountant
    neighboring_relation: NeighboringRelation
    epsilon_by_accountant: dict[Accountant, float | None]
    """None where an accountant could not answer; ``warnings`` says why."""
    epsilon_tan: float
    """The paper's estimate. For plots: not a bound."""
    signal_to_noise: float
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


class PlannedSimulation(Frozen):
    """One rung. Not private: it has no epsilon field on purpose."""

    scale_factor: int | float
    expected_batch_size: int | float
    sampling_rate: float
    noise_multiplier: float
    steps: int
    learning_rate_factor: float = 1.0
    """The private run's learning rate over the simulation's: constant TAN leaves it alone."""
    private: Literal[False] = False


class PlannedCost(Frozen):
    """Compute, in examples seen forward and backward. The search at most: pruned trials cost less."""

    private_run_examples: int
    search_examples: int
    full_search_examples: int
    """The same trials, each at the full batch."""
    saving: float


class Plan(Frozen):
    """A study, decided."""

    reference: PlannedRun
    privacy: PlannedPrivacy
    reservation: PlannedReservation
    simulations: list[PlannedSimulation]
    cost: PlannedCost
    warnings: list[str]
    """What the user should not overlook: an overcharge, a large delta, a silent accountant."""

    def private_run(self) -> PrivateRun:
        """The very run that was priced."""
        return PrivateRun(
            mechanism=Mechanism(
                sampling_rate=self.reference.sampling_rate,
                noise_multiplier=self.reference.noise_multiplier,
                clip_norm=self.reference.clip_norm,
                steps=self.reference.steps,
                neighboring_relation=self.privacy.neighboring_relation,
            ),
            num_examples=self.reference.num_examples,
        )

    @property
    def rungs(self) -> list[int]:
        """Simulated expected batch sizes, smallest first."""
        return [round(simulation.expected_batch_size) for simulation in self.simulations]
