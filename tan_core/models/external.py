"""Models whose code is not ours: architectures of timm, and what a user's own function makes."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import nn

from tan_core.errors import ModelError, ParameterError
from tan_core.models.batch_norm import replace_batch_norm
from tan_core.models.prepared_input import before_names, with_input
from tan_core.models.shapes import image_shape
from tan_core.spec.models import ExternalModel, PythonModel, TimmModel

Made = tuple[nn.Module, Mapping[str, str]]
"""A model, and what :func:`~tan_core.models.batch_norm.replace_batch_norm` says of it; nothing where that was not asked for."""


def build_timm(
    spec: TimmModel, shape: tuple[int, ...], num_classes: int, generator: torch.Generator
) -> Made:
    """The architecture with the weights that timm draws for it.

    Raises:
        ParameterError: timm is not installed, does not know the architecture, or the architecture
            refuses an option or inputs of this shape.
        ModelError: its batch normalisation cannot be replaced, where that was asked for.
    """
    channels, _, _ = _read_shape(spec, image_shape(spec, shape))
    try:
        timm = import_module("timm")
    except ImportError as error:
        raise ParameterError(
            f"model {spec.name} needs the package timm, which cannot be imported here ({error}); "
            "install timm and torchvision where the workers run",
            field="model.name",
        ) from error

    def make() -> nn.Module:
        return timm.create_model(
            spec.architecture,
            pretrained=False,
            num_classes=num_classes,
            in_chans=channels,
            **spec.options,
        )

    return _made(spec, make, shape, num_classes, generator)


def build_python(
    spec: PythonModel, shape: tuple[int, ...], num_classes: int, generator: torch.Generator
) -> Made:
    """What ``factory(shape=..., num_classes=..., **options)`` returns, with its own initial weights.

    This imports the module. Whoever takes specs from others asks ``spec.is_allowed`` first.

    Raises:
        ParameterError: there is no such factory, or it fails, or its model cannot read the inputs.
        ModelError: its batch normalisation cannot be replaced, where that was asked for.
    """
    try:
        factory = getattr(import_module(spec.module), spec.factory)
    except (ImportError, AttributeError) as error:
        raise ParameterError(
            f"model {spec.name} cannot be found: {error}", field="model.name"
        ) from error

    read = _read_shape(spec, shape)

    def make() -> nn.Module:
        return factory(shape=read, num_classes=num_classes, **spec.options)

    return _made(spec, make, shape, num_classes, generator)


def _made(
    spec: TimmModel | PythonModel,
    make: Callable[[], Any],
    shape: tuple[int, ...],
    num_classes: int,
    generator: torch.Generator,
) -> Made:
    """The model, made and tried once while torch's global generator stands at a seed of ours.

    Such code draws its initial weights from that generator, on the CPU. With equal seeds they are
    equal, and the generator stands afterwards where it stood before; other sources of randomness are
    not held.
    """
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        try:
            model = make()
            if not isinstance(model, nn.Module):
                raise TypeError(f"made a {type(model).__name__}, not an nn.Module")
            replaced = _replaced(spec, model, shape)
            model = with_input(spec.input, model)
            with torch.no_grad():
                logits = model(torch.zeros(2, *shape))
        except ModelError:
            raise
        except Exception as error:
            raise ParameterError(
                f"model {spec.name} cannot be made for inputs of shape {list(shape)} with options "
                f"{spec.options}: {type(error).__name__}: {error}",
                field="model",
            ) from error
    if getattr(logits, "shape", None) != (2, num_classes):
        found = list(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise ModelError(
            f"model {spec.name} must give [2, {num_classes}] logits for 2 examples, got {found}",
            field="model.name",
        )
    return model, replaced


def _read_shape(spec: ExternalModel, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of what the network itself reads of inputs of ``shape``."""
    if spec.input is None:
        return shape
    try:
        return spec.input.shape_of(shape)
    except ValueError as error:
        raise ParameterError(
            f"input of model {getattr(spec, 'name', '')} {error}", field="model.input"
        ) from error


def _replaced(spec: ExternalModel, network: nn.Module, shape: tuple[int, ...]) -> dict[str, str]:
    """Replace what is to be replaced; the names of the layers in the whole model."""
    if spec.replace_batch_norm is None:
        return {}
    names = replace_batch_norm(network, _read_shape(spec, shape), by=spec.replace_batch_norm)
    place = before_names(spec)
    return {f"{place}{old}": f"{place}{new}" for old, new in names.items()}
