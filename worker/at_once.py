"""How many views a trial or a rank has in memory at once: as many as was asked for, or as a GPU holds."""

from collections.abc import Sequence

import ray
import torch
from torch import nn

from tan_core.engine.memory import views_at_once
from tan_core.spec.train import MICROBATCH_SIZE, TrainerConfig


def microbatch_size(
    asked: int,
    model: nn.Module,
    shape: Sequence[int],
    config: TrainerConfig,
    device: torch.device | str,
) -> int:
    """For a trainer of this model on records of this shape.

    What is no mechanism and no promise may follow the machine: a GPU that is given 256 views at once waits
    for its processor most of the time. A number other than the default was chosen by somebody and stays.
    """
    if torch.device(device).type == "cpu" or asked != MICROBATCH_SIZE:
        return asked
    return views_at_once(
        model,
        shape,
        views=config.augmentation_multiplicity,
        precision=config.precision,
        share=_share_of_gpu(),
        device=device,
    )


def _share_of_gpu() -> float:
    """Of the GPU that Ray has lent this worker, which other trials may use too."""
    lent = ray.get_runtime_context().get_assigned_resources() if ray.is_initialized() else {}
    return min(1.0, float(lent.get("GPU", 0)) or 1.0)
