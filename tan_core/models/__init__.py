"""The models that a study may name: one file per family, built from a spec, a shape and a generator."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import torch
from torch import nn

from tan_core import _validate
from tan_core.errors import ParameterError
from tan_core.models import linear, mlp, nf_resnet, scatter, tanh_cnn, vit, wide_resnet
from tan_core.models.backbone import (
    Backbone,
    ClassifierPlace,
    FrozenBackbone,
    ListenedBackbone,
    place_of_classifier,
)
from tan_core.models.batch_norm import replace_batch_norm
from tan_core.models.checkpoint_file import Checkpoint
from tan_core.models.external import Made, build_python, build_timm
from tan_core.models.extractor import Extractor, split
from tan_core.models.initialise import initialise
from tan_core.models.pretrained import begin_from
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


def has_backbone(spec: ModelSpec, *, shape: Sequence[int], num_classes: int) -> bool:
    """Whether all that stands before the classifier is frozen, and can be computed apart from it.

    So it is where a model without an extractor already trains its classifier alone. Of ``timm:`` and ``python:`` models one is
    made, once in a process, and run on random images: they can be taken apart if their output is what their classifier
    makes of features, [B, F], and nothing else.

    Args:
        spec: family and options.
        shape: of one example.
        num_classes: number of logits.

    Raises:
        ParameterError: an argument is of another kind, or a ``timm:`` or ``python:`` model cannot be had.
        ModelError: its batch normalisation cannot be replaced.
    """
    _validate.instance(Model, spec=spec)
    if not spec.trains_classifier_alone:
        return False
    if isinstance(spec, TimmModel | PythonModel):
        shape, num_classes = _checked(spec, shape, num_classes, torch.Generator())
        return _place(spec, shape, num_classes) is not None
    return not spec.has_frozen_features


def build_backbone(
    spec: ModelSpec, *, shape: Sequence[int], num_classes: int, checkpoint: Checkpoint
) -> Backbone:
    """What stands before the classifier of a model that :func:`has_backbone`, with its weights."""
    model = build(
        spec,
        shape=shape,
        num_classes=num_classes,
        generator=torch.Generator(),
        checkpoint=checkpoint,
    )
    if isinstance(spec, TimmModel | PythonModel):
        place = _place_of_classifier(spec, tuple(shape), num_classes)
        return ListenedBackbone.of(spec, model, place.name, shape=shape)
    return FrozenBackbone.of(spec, cast("nn.Sequential", model))


def build_classifier(
    spec: ModelSpec, *, shape: Sequence[int], num_classes: int, generator: torch.Generator
) -> nn.Module:
    """The classifier of a model that :func:`has_backbone`, under its name there, initialised alone.

    Raises:
        ParameterError: the model is another one, or as :func:`build` raises it.
    """
    shape, num_classes = _checked(spec, shape, num_classes, generator)
    if isinstance(spec, TimmModel | PythonModel):
        classifier = _place_of_classifier(spec, shape, num_classes).fill(num_classes)
    elif has_backbone(spec, shape=shape, num_classes=num_classes):
        with torch.device("meta"):
            classifier = cast("nn.Sequential", BUILDERS[type(spec)](spec, shape, num_classes))[-1:]
    else:
        raise _no_classifier_alone(spec)
    classifier = classifier.to_empty(device="cpu")
    initialise(classifier, generator)
    return classifier


def _place_of_classifier(
    spec: TimmModel | PythonModel, shape: tuple[int, ...], num_classes: int
) -> ClassifierPlace:
    place = _place(spec, shape, num_classes) if spec.trains_classifier_alone else None
    if place is None:
        raise _no_classifier_alone(spec)
    return place


def _no_classifier_alone(spec: ModelSpec) -> ParameterError:
    return ParameterError(
        f"spec must be of a model that trains its classifier alone, got {spec.name}", field="spec"
    )


def _place(
    spec: TimmModel | PythonModel, shape: tuple[int, ...], num_classes: int
) -> ClassifierPlace | None:
    """It depends on no file."""
    described = spec.model_dump_json(exclude={"pretrained"})
    return _place_in(type(spec), described, shape, num_classes)


@lru_cache(maxsize=16)
def _place_in(
    kind: type[TimmModel | PythonModel], described: str, shape: tuple[int, ...], num_classes: int
) -> ClassifierPlace | None:
    """Found once for all trials of a process: making such a model takes longer than many of them."""
    model, _ = _initialised(
        kind.model_validate_json(described), shape, num_classes, torch.Generator()
    )
    return place_of_classifier(model, shape=shape, num_classes=num_classes)
