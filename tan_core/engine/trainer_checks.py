"""What a trainer refuses before it looks at any of its arguments more closely."""

import torch
from torch import nn

from tan_core.errors import ParameterError
from tan_core.execution import PrivateRun, Simulation
from tan_core.spec.train import TrainerConfig


def check_kinds(model: object, execution: object, config: object) -> None:
    """Refuse what is no model, no execution or no configuration, whatever it has in common with one."""
    for field, value, kind, accepted in (
        ("model", model, nn.Module, "torch.nn.Module"),
        ("execution", execution, PrivateRun | Simulation, "PrivateRun or Simulation"),
        ("config", config, TrainerConfig, "TrainerConfig"),
    ):
        if not isinstance(value, kind):
            raise ParameterError(
                f"{field} must be a {accepted}, got {type(value).__name__}", field=field
            )


def device_of(device: str | torch.device) -> torch.device:
    """The device, after a number has been there and back.

    Raises:
        ParameterError: torch knows no such device, or cannot compute on it here.
    """
    try:
        found = torch.device(device)
        torch.ones(1, device=found).item()
    # A build of torch without the device asserts that it has it.
    except (RuntimeError, TypeError, AssertionError) as error:
        here = ", ".join(["cpu", *(f"cuda:{n}" for n in range(torch.cuda.device_count()))])
        raise ParameterError(
            f"device {str(device)!r} cannot compute here: {str(error).splitlines()[0]:.80}; accepted: {here}",
            field="device",
        ) from error
    return found
