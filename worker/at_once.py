"""Where a trial computes, and how many views it or a rank has in memory at once."""

from collections.abc import Sequence

import ray
import torch
from torch import nn

from tan_core.engine.memory import views_at_once
from tan_core.errors import ParameterError
from tan_core.spec.train import MICROBATCH_SIZE, TrainerConfig


def trial_device() -> torch.device:
    """A GPU where the trial was lent one or a part of one: Ray lets the others see it, too."""
    is_lent = torch.cuda.is_available() and _share_of_gpu() > 0
    return torch.device("cuda" if is_lent else "cpu")


def microbatch_size(
    asked: int,
    model: nn.Module,
    shape: Sequence[int],
    config: TrainerConfig,
    device: torch.device,
) -> int:
    """For a trainer of this model on records of this shape.

    What is no mechanism and no promise may follow the machine: a GPU that is given 256 views at once waits
    for its processor most of the time. A number other than the default was chosen by somebody and stays.
    """
    if device.type == "cpu" or asked != MICROBATCH_SIZE:
        return asked
    try:
        return views_at_once(
            model,
            shape,
            views=config.augmentation_multiplicity,
            precision=config.precision,
            share=_share_of_gpu() or 1.0,
            device=device,
        )
    # What is wrong with the model the trainer says better.
    except (RuntimeError, ParameterError):
        return asked


def devices_lent() -> float:
    """GPUs that Ray has lent this worker, or parts of one; 1, a processor, where it has lent none."""
    return _gpus() or 1.0


def _share_of_gpu() -> float:
    """What Ray has lent this worker of a GPU; 1 where no Ray lends anything."""
    gpus = _gpus()
    return 1.0 if gpus is None else min(1.0, gpus)


def _gpus() -> float | None:
    if not ray.is_initialized():
        return None
    try:
        lent = ray.get_runtime_context().get_assigned_resources()
    except AssertionError:  # a driver is lent nothing
        return None
    return float(lent.get("GPU", 0))
