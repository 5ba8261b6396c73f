"""The model that a private one is compared with: the same training without noise and without clipping.

It reads the private data without any privacy: who asks for it declares that (``evaluation.baseline``).
Its weights stay in this process and end with it; what leaves are counts on the test split, which no ε
covers.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tan_core.data import Split
from tan_core.engine import SeededRandomness, Trainer
from tan_core.execution import Simulation
from tan_core.mechanism import Mechanism
from tan_core.models import Checkpoint
from tan_core.spec.train import Clipping, Optimizer, TrainerConfig
from tan_core.wire import Evaluation, PrivateAssignment, Scores, clean_reason
from worker.at_once import microbatch_size
from worker.begin import model_for
from worker.metric import score_of
from worker.reasons import reason_of

RATES = (1.0, 0.25, 0.0625)
"""Of the private run's learning rate, which noise and clipping have shaped: the best on the validation
split is taken."""


class StoppedError(RuntimeError):
    """Nobody waits for the baseline any more."""


class Noiseless(SeededRandomness):
    """Draws like a simulation's, and no noise."""

    def add_noise(
        self, step: int, total_P: Tensor, deviation: float, *, share: int = 0, shares: int = 1
    ) -> None:
        """Nothing."""
        del step, total_P, deviation, share, shares


def with_baseline(
    evaluation: Evaluation, score: Callable[[Trainer], Scores], train: Callable[[], Trainer]
) -> Evaluation:
    """The evaluation beside the scores of what ``train`` makes, or why there are none.

    Whatever goes wrong here, the private run has been paid for and its result must not be lost.
    """
    try:
        return evaluation.model_copy(update={"baseline": score(train())})
    except Exception as error:  # noqa: BLE001 - it is told, and nothing else depends on it
        return evaluation.model_copy(update={"baseline_reason": clean_reason(reason_of(error))})


def train_baseline(
    assignment: PrivateAssignment,
    *,
    train: Split,
    validation: Split,
    checkpoint: Checkpoint | None,
    device: torch.device,
    is_unwanted: Callable[[], bool],
    progressed: Callable[[], None] = lambda: None,
) -> Trainer:
    """The best of the runs at :data:`RATES` by its score on the validation split.

    ``progressed`` is called as :attr:`~tan_core.engine.Trainer.progressed` is.

    Raises:
        ValueError: the weights of every one diverged.
        StoppedError: ``is_unwanted`` said so between two steps.
    """
    best: tuple[float, Trainer] | None = None
    for rate in RATES:
        trainer = _trainer(assignment, train, checkpoint, device, rate)
        trainer.progressed = progressed
        for _ in range(trainer.mechanism.steps):
            if is_unwanted():
                raise StoppedError("the study was cancelled before it was trained")
            trainer.step()
        if trainer.is_diverged:
            continue
        hits = trainer.hits(validation.inputs, validation.labels)
        accuracy = score_of(hits, torch.from_numpy(validation.labels), assignment.metric)
        if best is None or accuracy > best[0]:
            best = accuracy, trainer
    if best is None:
        raise ValueError("its weights diverged at every learning rate that was tried")
    return best[1]


def _trainer(
    assignment: PrivateAssignment,
    train: Split,
    checkpoint: Checkpoint | None,
    device: torch.device,
    rate: float,
) -> Trainer:
    mechanism = Mechanism.from_json(assignment.mechanism.event)
    config = assignment.trainer
    model = model_for(
        assignment,
        assignment.model,
        generator=torch.Generator().manual_seed(0),
        checkpoint=checkpoint,
    )
    asked, shape = assignment.microbatch_size, train.inputs.shape[1:]
    return Trainer(
        model=model,
        execution=Simulation(
            dynamics=mechanism, num_examples=assignment.num_examples, scale_factor=1.0
        ),
        config=TrainerConfig.model_validate(
            {
                **config.model_dump(),
                "clipping": Clipping.NONE,
                "learning_rate": rate * _plain_rate(config),
            }
        ),
        inputs=train.inputs,
        labels=train.labels,
        users=train.users,
        randomness=Noiseless(0),
        microbatch_size=microbatch_size(asked, model, shape, config, device),
        device=device,
    )


def _plain_rate(config: TrainerConfig) -> float:
    """What makes a step of SGD ``learning_rate`` times the mean gradient: the engine divides by C."""
    if config.optimizer is Optimizer.SGD:
        return config.learning_rate * config.clip_norm
    return config.learning_rate
