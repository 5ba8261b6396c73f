"""Models that begin from a checkpoint: put it in, and freeze what is not trained."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import cast, get_args

import torch
from torch import Tensor, nn

from tan_core.errors import PretrainedError
from tan_core.models.batch_norm import by_new_names
from tan_core.models.checkpoint_file import Checkpoint
from tan_core.models.low_rank import adapt, adaptable
from tan_core.models.parts import parameters_of
from tan_core.models.prepared_input import before_names
from tan_core.spec.models import ModelSpec
from tan_core.spec.pretrained import Beside, lacking

_NAMES_SHOWN = 5
_RUNNING = ("running_mean", "running_var")
"""Ends of names: of a batch normalisation as it is used."""
_WRAPPERS = ("module.", "_module.", "_orig_mod.")
"""What is put before every name by DataParallel and DistributedDataParallel, by Opacus, and by ``torch.compile``."""


def begin_from(
    checkpoint: Checkpoint | None,
    model: nn.Module,
    spec: ModelSpec,
    *,
    num_classes: int,
    generator: torch.Generator,
    replaced: Mapping[str, str] | None = None,
) -> None:
    """Put the checkpoint of ``spec.pretrained`` into ``model``, and freeze what is not trained.

    With ``train: lora`` its linear layers are replaced by :class:`~tan_core.models.low_rank.LowRankLinear`.

    The classifier is the last linear layer. It keeps the initial values that it has where it alone is
    trained, and where the checkpoint's is for another number of classes.

    Of a batch normalisation that was replaced, scale and shift are those of the layer in its place: both follow on
    numbers of mean 0 and variance 1. Its running statistics are a frozen one's; a group normalisation takes its own, and they
    are left out.

    Args:
        checkpoint: None where ``spec`` names none.
        model: of ``spec``, initialised.
        spec: whether all is trained, the classifier alone, or a part of what stands before it as well.
        num_classes: of the model.
        generator: source of low-rank factors.
        replaced: what :func:`~tan_core.models.batch_norm.replace_batch_norm` said of it.

    Raises:
        PretrainedError: the checkpoint is of another model: names are missing or left over, a shape
            differs, a value is not a finite number, or nothing of it is used. Or the model has no parameters of
            the part that is to be trained, or no classifier. It is as it was.
    """
    if (checkpoint is None) != (spec.pretrained is None):
        raise PretrainedError(
            f"model {spec.name} names the checkpoint {spec.pretrained and spec.pretrained.path}, "
            f"given is {checkpoint and checkpoint.path}",
            field="model.pretrained",
        )
    if checkpoint is None or spec.pretrained is None:
        return
    _check_stated_model(checkpoint, spec)
    train = spec.pretrained.train
    classifier = _classifier(model, num_classes)
    if train != "all" and not classifier:
        raise PretrainedError(
            f"model {spec.name} has no linear layer of {num_classes} classes at its end; "
            "accepted: train: all",
            field="model.pretrained.train",
        )
    if train not in ("all", "classifier"):
        _check_has(train, model, spec, classifier)
    trained = {*classifier}
    if train == "norms" or train == "biases":
        trained |= parameters_of(train, model)
    own, place = model.state_dict(), before_names(spec)
    weights = by_new_names(_by_own_names(checkpoint.weights, own, place), replaced or {}, own)
    checkpoint = replace(checkpoint, weights=weights)
    is_fresh = train == "classifier" or _is_for_other_classes(checkpoint, own, classifier)
    fresh = classifier if is_fresh else ()
    kept = {name: value for name, value in own.items() if name not in fresh}
    if not kept:
        raise PretrainedError(
            f"{checkpoint.path}: nothing of it would be used: model {spec.name} trains a classifier "
            "and nothing else, which would start anew",
            field="model.pretrained.train",
        )
    # Whoever wrote the network knows no name of what prepares its input.
    _load(checkpoint, kept, fresh, unsaid=place)
    if train == "lora":
        layers, rank = adaptable(model, besides=classifier), spec.pretrained.rank
        assert rank is not None  # noqa: S101 the spec has it
        trained |= adapt(model, layers, rank=rank, generator=generator)
    if train != "all":
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in trained)


def _check_has(
    part: Beside, model: nn.Module, spec: ModelSpec, classifier: Collection[str]
) -> None:
    """Refuse a part of which nothing stands before the classifier."""
    found = [each for each in get_args(Beside) if _has(each, model, classifier)]
    if part not in found:
        raise PretrainedError(
            lacking(part, spec.name, accepted=["all", "classifier", *found]),
            field="model.pretrained.train",
        )


def _has(part: Beside, model: nn.Module, classifier: Collection[str]) -> bool:
    if part == "lora":
        return bool(adaptable(model, besides=classifier))
    return not parameters_of(part, model) <= {*classifier}


def _unwrapped(given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The weights by the names that they had before the model was wrapped to be trained; as they are where it was not."""
    for prefix in _WRAPPERS:
        if (
            given
            and all(name.startswith(prefix) for name in given)
            and not given.keys() & own.keys()
        ):
            bare = {name.removeprefix(prefix): value for name, value in given.items()}
            return _unwrapped(bare, own)
    return given


def _by_own_names(
    given: Mapping[str, Tensor], own: Mapping[str, Tensor], place: str
) -> Mapping[str, Tensor]:
    """The weights of a network by the names that they have in a model that prepares its input."""
    bare = _unwrapped(given, own)
    if bare.keys() & own.keys():
        return bare
    return {f"{place}{name}": value for name, value in bare.items()}


def _check_stated_model(checkpoint: Checkpoint, spec: ModelSpec) -> None:
    """Options such as an activation change what weights mean, and not their shapes."""
    if checkpoint.model is None:
        return
    found, wanted = (each.model_dump(exclude={"pretrained"}) for each in (checkpoint.model, spec))
    if found != wanted:
        raise PretrainedError(
            f"{checkpoint.path}: holds weights of model {found}, the study's is {wanted}",
            field="model.pretrained.path",
        )


def classifier_of(model: nn.Module, num_classes: int) -> tuple[str, nn.Linear] | None:
    """The last linear layer and its name; None where it gives no logits."""
    layers = [each for each in model.named_modules() if isinstance(each[1], nn.Linear)]
    if not layers or layers[-1][1].out_features != num_classes:
        return None
    return cast("tuple[str, nn.Linear]", layers[-1])


def _classifier(model: nn.Module, num_classes: int) -> list[str]:
    """Names of its parameters; none where there is none."""
    found = classifier_of(model, num_classes)
    if found is None:
        return []
    prefix, layer = found
    return [f"{prefix}.{name}".lstrip(".") for name, _ in layer.named_parameters()]


def _is_for_other_classes(
    checkpoint: Checkpoint, own: Mapping[str, Tensor], classifier: Collection[str]
) -> bool:
    """Whether the classifiers differ in the number of classes, and in nothing else."""
    shapes = [
        (checkpoint.weights[name].shape, own[name].shape)
        for name in classifier
        if name in checkpoint.weights
    ]
    return (
        len(shapes) == len(classifier) > 0
        and all(found[1:] == wanted[1:] for found, wanted in shapes)
        and all(found[:1] != wanted[:1] for found, wanted in shapes)
    )


def _load(
    checkpoint: Checkpoint, wanted: Mapping[str, Tensor], fresh: Collection[str], *, unsaid: str
) -> None:
    """Write the checkpoint's values over ``wanted``: every one, or none of them. Refusals leave ``unsaid`` out of names."""
    given = {name: value for name, value in checkpoint.weights.items() if name not in fresh}
    missing, unexpected = (
        {name.removeprefix(unsaid) for name in names}
        for names in (wanted.keys() - given.keys(), given.keys() - wanted.keys())
    )
    if missing and not unexpected and all(name.endswith(_RUNNING) for name in missing):
        raise PretrainedError(
            f"{checkpoint.path}: replace_batch_norm: frozen takes mean and variance from the file, and it lacks "
            f"{_listed(missing)}; accepted: a file that has them, or replace_batch_norm: group",
            field="model.pretrained.path",
        )
    if missing or unexpected:
        problems = [
            *([f"it lacks {_listed(missing)}"] if missing else []),
            *([f"the model has no {_listed(unexpected)}"] if unexpected else []),
        ]
        raise PretrainedError(
            f"{checkpoint.path}: is of another model: {'; '.join(problems)}",
            field="model.pretrained.path",
        )
    values = {
        name: _value(name.removeprefix(unsaid), given[name], wanted[name], checkpoint)
        for name in wanted
    }
    with torch.no_grad():
        for name, value in values.items():
            wanted[name].copy_(value)


def _value(name: str, found: Tensor, wanted: Tensor, checkpoint: Checkpoint) -> Tensor:
    """The value as the model holds it."""
    if found.shape != wanted.shape:
        problem = f"has shape {list(found.shape)}, expected {list(wanted.shape)}"
    elif not _is_plain(found) or found.is_floating_point() != wanted.is_floating_point():
        problem = f"holds {found.dtype} ({found.layout}, {found.device}), expected {wanted.dtype}"
    elif not (value := found.to(wanted.dtype)).isfinite().all():
        problem = f"holds a value that is not a finite {wanted.dtype}"
    elif name.endswith("running_var") and (value < 0).any():
        problem = "holds a variance below 0"
    else:
        return value
    raise PretrainedError(f"{checkpoint.path}: {name} {problem}", field="model.pretrained.path")


def _is_plain(value: Tensor) -> bool:
    """Numbers in memory: neither sparse nor quantised, nor a tensor without values."""
    return value.layout is torch.strided and value.device.type == "cpu" and not value.is_quantized


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMES_SHOWN])
    rest = len(names) - _NAMES_SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown
