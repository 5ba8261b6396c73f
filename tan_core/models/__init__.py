"""The models that a study may name: one file per family, built from a spec, a shape and a generator."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn

from tan_core import _validate
from tan_core.errors import ParameterError
from tan_core.models import linear, mlp, nf_resnet, scatter, tanh_cnn, vit, wide_resnet
from tan_core.models.batch_norm import replace_batch_norm
from tan_core.models.checkpoint_file import Checkpoint
from tan_core.models.external import Made, build_python, build_timm
from tan_core.models.extractor import Extractor, split
from tan_core.models.initialise import initialise
from tan_core.models.pretrained import FrozenBackbone, begin_from
from tan_core.spec.models import (
    LinearModel,
    MlpModel,
    Model,
    ModelSpec,
    NfResNetModel,
    PythonModel,
    ScatterCnnModel,
    ScatterLinearModel,
    TanhCnnModel,
    TimmModel,
    VitModel,
    WideResNetModel,
)

__all__ = [
    "BUILDERS",
    "Checkpoint",
    "build",
    "build_backbone",
    "build_classifier",
    "build_head",
    "extractor_of",
    "has_backbone",
    "replace_batch_norm",
]

Builder = Callable[[Any, tuple[int, ...], int], nn.Module]

BUILDERS: Mapping[type[Model], Builder] = {
    LinearModel: linear.build,
    MlpModel: mlp.build,
    TanhCnnModel: tanh_cnn.build,
    ScatterLinearModel: scatter.build_linear,
    ScatterCnnModel: scatter.build_cnn,
    WideResNetModel: wide_resnet.build,
    NfResNetModel: nf_resnet.build,
    VitModel: vit.build,
}


def build(
    spec: ModelSpec,
    *,
    shape: Sequence[int],
    num_classes: int,
    generator: torch.Generator,
    checkpoint: Checkpoint | None = None,
) -> nn.Module:
    """The model of ``spec`` for inputs of ``shape``, initialised from ``generator`` alone.

    Where ``spec`` is pre-trained, the checkpoint's values are put in after that, and all but the
    classifier is frozen if it alone is trained (:func:`~tan_core.models.pretrained.begin_from`).

    Formal guarantees, for the models with a name of their own:

    * Equal arguments and equal generator seeds give equal parameters on every machine.
    * The global generator of torch is neither read nor moved.

    ``timm:`` and ``python:`` models initialise themselves. They do so while torch's global generator on
    the CPU stands at a seed drawn from ``generator``, and it is put back afterwards: what they draw from
    it follows from ``generator`` alone. With ``replace_batch_norm`` their batch normalisation is replaced before a
    checkpoint's values are put in (:func:`~tan_core.models.batch_norm.replace_batch_norm`).

    Args:
        spec: family and options.
        shape: of one example, channels first; ``[F]`` for a table.
        num_classes: number of logits, at least 1; 2 or more tell anything apart.
        generator: source of the initial parameters, on the CPU.
        checkpoint: what was read of ``spec.pretrained``; None where there is none.

    Raises:
        ParameterError: an argument is of another kind, the family cannot read inputs of this shape, an option does not fit it, or a
            ``timm:`` or ``python:`` model cannot be had.
        ModelError: its batch normalisation cannot be replaced.
        PretrainedError: the checkpoint is of another model, or there is none where one is named.
    """
    shape, num_classes = _checked(spec, shape, num_classes, generator)
    _validate.optional(Checkpoint, checkpoint=checkpoint)
    model, replaced = _initialised(spec, shape, num_classes, generator)
    begin_from(
        checkpoint, model, spec, num_classes=num_classes, generator=generator, replaced=replaced
    )
    return model


def _checked(
    spec: object, shape: Sequence[int], num_classes: int, generator: object
) -> tuple[tuple[int, ...], int]:
    """The shape and the classes as plain numbers; without a generator torch's global one would be drawn from."""
    _validate.instance(Model, spec=spec)
    _validate.instance(torch.Generator, generator=generator)
    num_classes = _validate.plain(num_classes)
    _validate.positive_integer(num_classes=num_classes)
    return _validate.sides(shape=shape), num_classes


def _initialised(
    spec: ModelSpec, shape: tuple[int, ...], num_classes: int, generator: torch.Generator
) -> Made:
    match spec:
        case TimmModel():
            return build_timm(spec, shape, num_classes, generator)
        case PythonModel():
            return build_python(spec, shape, num_classes, generator)
        case _:
            # Nothing is drawn while the layers are made: on the meta device they hold no values.
            with torch.device("meta"):
                model = BUILDERS[type(spec)](spec, shape, num_classes)
            model.to_empty(device="cpu")
            initialise(model, generator)
            return model, {}


def build_head(
    spec: ModelSpec,
    *,
    shape: Sequence[int],
    num_classes: int,
    generator: torch.Generator,
    checkpoint: Checkpoint | None = None,
) -> nn.Module:
    """What of the model of ``spec`` is trained: all of it, or what stands behind its extractor.

    Parameters have the values and names that :func:`build` gives them, so the state of a head loads
    into the whole model. Arguments and errors are those of :func:`build`.
    """
    model = build(
        spec, shape=shape, num_classes=num_classes, generator=generator, checkpoint=checkpoint
    )
    return split(model)[1]


def extractor_of(spec: ModelSpec) -> Extractor | None:
    """The frozen extractor that a model begins with, if any."""
    _validate.instance(Model, spec=spec)
    if isinstance(spec, ScatterLinearModel | ScatterCnnModel):
        return scatter.extractor(spec)
    return None


def has_backbone(spec: ModelSpec) -> bool:
    """Whether all that stands before the classifier is frozen, and can be computed apart from it.

    So it is where a model with a name of its own, and without an extractor already, trains its
    classifier alone. The code of ``timm:`` and ``python:`` models does not say what stands before the
    classifier; whole, they are held to mixing no examples by the trainer.
    """
    _validate.instance(Model, spec=spec)
    return (
        spec.pretrained is not None
        and spec.pretrained.train == "classifier"
        and type(spec) in BUILDERS
        and not spec.has_frozen_features
    )


def build_backbone(
    spec: ModelSpec, *, shape: Sequence[int], num_classes: int, checkpoint: Checkpoint
) -> FrozenBackbone:
    """What stands before the classifier of a model that :func:`has_backbone`, with its weights."""
    model = build(
        spec,
        shape=shape,
        num_classes=num_classes,
        generator=torch.Generator(),
        checkpoint=checkpoint,
    )
    return FrozenBackbone.of(spec, cast("nn.Sequential", model))


def build_classifier(
    spec: ModelSpec, *, shape: Sequence[int], num_classes: int, generator: torch.Generator
) -> nn.Module:
    """The classifier of a model that :func:`has_backbone`, under its name there, initialised alone.

    Raises:
        ParameterError: the model is another one, or as :func:`build` raises it.
    """
    shape, num_classes = _checked(spec, shape, num_classes, generator)
    if not has_backbone(spec):
        raise ParameterError(
            f"spec must be of a model that trains its classifier alone, got {spec.name}",
            field="spec",
        )
    with torch.device("meta"):
        model = cast("nn.Sequential", BUILDERS[type(spec)](spec, shape, num_classes))
    classifier = model[-1:].to_empty(device="cpu")
    initialise(classifier, generator)
    return classifier
