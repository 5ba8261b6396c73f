"""What a trainer refuses: arguments of another kind, and those that do not fit each other."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tan_core import _validate
from tan_core.engine.inputs import ByIndex, as_indices
from tan_core.engine.probe import fed, logits
from tan_core.engine.randomness import Randomness, SeededRandomness
from tan_core.engine.users import Users
from tan_core.errors import ParameterError
from tan_core.execution import PrivateRun, Simulation
from tan_core.mechanism import Mechanism
from tan_core.spec.train import Clipping, TrainerConfig

_FUNCTION = (Callable, type(None))


def check_kinds(
    model: object, execution: object, config: object, randomness: object, all_reduce: object
) -> None:
    """Refuse what is none of these, whatever it has in common with one."""
    check_randomness("randomness", randomness)
    for field, value, kind, accepted in (
        ("model", model, nn.Module, "torch.nn.Module"),
        ("execution", execution, PrivateRun | Simulation, "PrivateRun or Simulation"),
        ("config", config, TrainerConfig, "TrainerConfig"),
        ("all_reduce", all_reduce, _FUNCTION, "function of a tensor, or None"),
    ):
        _check_kind(field, value, kind, accepted)


def check_randomness(field: str, randomness: object) -> None:
    """Refuse a seed, a generator, and whatever else does not draw as the engine asks."""
    _check_kind(field, randomness, Randomness, "PrivateRandomness or SeededRandomness")


def _check_kind(field: str, value: object, kind: Any, accepted: str) -> None:
    if not isinstance(value, kind):
        raise ParameterError(
            f"{field} must be a {accepted}, got {type(value).__name__}", field=field
        )


def device_of(device: str | torch.device) -> torch.device:
    """The device, after a number in float64, the type of norms, has been there and back.

    Raises:
        ParameterError: torch knows no such device, or cannot compute on it here.
    """
    try:
        found = torch.device(device)
        torch.ones(1, device=found, dtype=torch.float64).item()
    # A build of torch without the device asserts that it has it.
    except (RuntimeError, TypeError, AssertionError, OverflowError) as error:
        here = ", ".join(["cpu", *(f"cuda:{n}" for n in range(torch.cuda.device_count()))])
        raise ParameterError(
            f"device {str(device)!r} cannot compute here: {str(error).splitlines()[0]:.80}; accepted: {here}",
            field="device",
        ) from error
    return found


def check_data(
    execution: PrivateRun | Simulation,
    inputs: Tensor | ByIndex,
    labels: Tensor,
    users: Users | None,
) -> None:
    """Refuse data of another size than was planned for, or that do not go together."""
    found = len(inputs) if users is None else len(users)
    if found != execution.num_examples:
        raise ParameterError(
            f"inputs hold {found} {'examples' if users is None else 'users'}, the execution "
            f"was planned for {execution.num_examples}",
            field="inputs",
        )
    if users is not None and users.num_in_all != len(inputs):
        raise ParameterError(
            f"{len(inputs)} inputs but {users.num_in_all} users of them", field="users"
        )
    as_indices(labels, field="labels", num=len(inputs))


def check_privacy(
    execution: PrivateRun | Simulation,
    mechanism: Mechanism,
    config: TrainerConfig,
    randomness: Randomness,
) -> None:
    """Refuse what would execute another mechanism than is priced."""
    if config.clip_norm != mechanism.clip_norm:
        raise ParameterError(
            f"config.clip_norm is {config.clip_norm!r}, the mechanism's is "
            f"{mechanism.clip_norm!r}; they must be equal",
            field="clip_norm",
        )
    if isinstance(execution, PrivateRun) and config.clipping is Clipping.NONE:
        raise ParameterError(
            "a private run needs clipping: per_example or automatic, got none: without it an "
            "example can move the sum without limit, and no epsilon is true",
            field="clipping",
        )
    if isinstance(execution, PrivateRun) and isinstance(randomness, SeededRandomness):
        raise ParameterError(
            "a private run needs PrivateRandomness: a known seed voids the guarantee",
            field="randomness",
        )


@torch.no_grad()
def check_classes(
    model: nn.Module,
    shape: torch.Size,
    labels: Tensor,
    *,
    config: TrainerConfig,
    users: Users | None,
) -> None:
    """Before a step: one label too large would end the run in the middle, with what it cost, and be told."""
    width = logits(model, torch.zeros(2, *shape).to(fed(model))).shape[-1]
    if len(labels) and not 0 <= labels.min() <= labels.max() < width:
        raise ParameterError(
            f"labels must be >= 0 and below {width}, the classes that the model tells apart",
            field="labels",
        )
    stated = config.class_shares
    if stated is not None and len(stated) != width:
        raise ParameterError(
            f"class_shares must be one for each of {width} classes that the model tells apart, got {len(stated)}",
            field="class_shares",
        )
    if stated is not None and users is not None:
        raise ParameterError(
            "class_shares need records as units: a user's gradient is clipped once, and its records may be of several classes",
            field="class_shares",
        )


def check_state(
    tensors: Mapping[str, object],
    meta: Mapping[str, object],
    *,
    like: Mapping[str, Tensor],
    steps: int,
) -> None:
    """Refuse what a trainer cannot go on from, before any of it is taken over: torch would stretch a single number to a vector."""
    for name, own in like.items():
        found, expected = tensors[name], f"{own.dtype} of shape {list(own.shape)}"
        if not isinstance(found, Tensor):
            got = type(found).__name__
        elif found.shape == own.shape and found.dtype == own.dtype:
            continue
        else:
            got = f"{found.dtype} of shape {list(found.shape)}"
        raise ParameterError(f"the checkpoint's {name} is {got}, expected {expected}", field=name)
    step = meta.get("step")
    _validate.natural_number(step=step)
    _validate.in_range(0, steps, step=step)  # pyright: ignore[reportArgumentType] it is one


def check_weights(weights: object, vector: Tensor) -> None:
    """Refuse what is no vector of a model's trained parameters."""
    if not (isinstance(weights, Tensor) and weights.shape == vector.shape):
        found = (
            f"shape {list(weights.shape)}"
            if isinstance(weights, Tensor)
            else type(weights).__name__
        )
        raise ParameterError(
            f"weights must be a tensor of shape {list(vector.shape)}, as Trainer.released, got {found}",
            field="weights",
        )
