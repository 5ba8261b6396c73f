"""How far one record moves the sum, for every model that a study may name."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor, nn

from tan_core.engine.randomness import KEY_BYTES
from tan_core.errors import AuditError, ParameterError
from tan_core.mechanism import Mechanism
from tan_core.models import build, extractor_of, scatter
from tan_core.models.backbone import FrozenBackbone
from tan_core.models.extractor import Extractor
from tan_core.spec.models import MODEL_TYPES, Model, ModelSpec, PythonModel, ScatterLinearModel
from tan_core.spec.train import Precision
from worker.selftest.finding import Finding, for_certain
from worker.selftest.rig import Lab, Setup, weights

_MECHANISM: Final = Mechanism(sampling_rate=1.0, noise_multiplier=1e-9, clip_norm=1e-6, steps=1)
"""Everybody is drawn, noise is nothing, and a gradient of length 1 is a million times too long."""
_LEARNING_RATE: Final = 1e3
"""The update is far above the rounding of the weights; nothing runs after it."""
_NUM_CLASSES: Final = 10
_NUM_RECORDS: Final = 4
_LOW, _HIGH = 0.98, 1.02
"""In float32 a ReLU near a tie may go the other way in a batch of another size: 0.3 % per record."""

_TABLE, _IMAGE = (20,), (3, 8, 8)
_SMALLER: Final[Mapping[str, dict[str, Any]]] = {"nf-resnet-50": {"width": 1}}
"""Options of models that would take a minute as they are; the layers are the same."""
_SLOW: Final = frozenset({"wrn-40-4", "wrn-28-10", "nf-resnet-50"})
_SCATTERED: Final = {
    "scattering": ScatterLinearModel(),
    "flip_invariant": ScatterLinearModel(flip_invariant=True),
    "patches": ScatterLinearModel(patches=True),
    "whitened": ScatterLinearModel(normalization="whitened"),
    "whitened_patches": ScatterLinearModel(normalization="whitened", patches=True),
}
_BACKBONES: Final = ("wrn-16-4", "vit-tiny")
"""With initial weights: what a checkpoint would put in their place changes no layer."""
_ROUNDING: Final = 1e-4
_TRAPS: Final = ("batch_norm", "centred")
_FAR: Final = 100
_IN_BFLOAT16: Final = ("mlp", "tanh-cnn", "wrn-16-4", "vit-tiny")
_SHARES: Final = [1.0, *[4.0] * (_NUM_CLASSES - 1)]
_VIEWS: Final = {"augmentation_multiplicity": 4, "crop_padding": 2}
"""Crops alone: a record's flips are drawn after the crops of all, so they depend on who else is there."""


def models(*, quick: bool) -> list[str]:
    """The registered models that are probed; quickly, without those that take seconds each."""
    return [name for name in MODEL_TYPES if not (quick and name in _SLOW)]


def registered_models(lab: Lab, *, quick: bool) -> Iterator[Finding]:
    """Leaving one of four records out moves the clipped sum by C and no further."""
    for name in models(quick=quick):
        yield _bounded(lab, f"sensitivity.{name}", _setup(lab, _registered(name)))


def frozen_features(lab: Lab) -> Iterator[Finding]:
    """Features are computed before anything is clipped: what they mixed, no clipping would undo."""
    for name, extractor in _extractors():
        images = lab.random.random((_NUM_RECORDS, *_IMAGE)).astype(np.float32)
        images[-1] *= _FAR
        with torch.inference_mode():
            together = extractor(torch.from_numpy(images))
            apart = extractor(torch.from_numpy(images[:-1]))
        yield for_certain(
            f"sensitivity.features.{name}",
            "what is extracted of a record says nothing of another one",
            "distance of the others' features with and without a record far off, over their length",
            float((together[:-1] - apart).norm() / apart.norm()),
            high=_ROUNDING,
            fault="features relative to the mean of the records beside it",
        )


def _extractors() -> Iterator[tuple[str, Extractor]]:
    for name, spec in _SCATTERED.items():
        yield name, scatter.extractor(spec)
    for name in _BACKBONES:
        spec = cast("ModelSpec", _registered(name))
        whole = build(spec, shape=_IMAGE, num_classes=_NUM_CLASSES, generator=torch.Generator())
        yield name, FrozenBackbone.of(spec, cast("nn.Sequential", whole))


def several_views(lab: Lab) -> Iterator[Finding]:
    """The four views of a record together move the sum by C and no further."""
    setup = _setup(lab, _registered("tanh-cnn"), trainer=_VIEWS)
    finding = _bounded(lab, "sensitivity.views", setup)
    yield replace(
        finding,
        claim="leaving out a record of 4 augmented views moves the clipped sum by C",
        fault="views clipped one by one",
    )


def weighted_classes(lab: Lab) -> Iterator[Finding]:
    """A record of the class that is said to be the rarest moves the sum by C, one of another class by less."""
    setup = _setup(lab, _registered("mlp"), trainer={"class_shares": _SHARES})
    setup.labels[-1] = 0
    yield replace(
        _bounded(lab, "sensitivity.classes", setup),
        claim="where classes have shares, leaving out a record of the rarest moves the clipped sum by C",
        fault="classes that are weighed up, or by the loss that is clipped",
    )


def passes_in_bfloat16(lab: Lab) -> Iterator[Finding]:
    """What the passes round does not enter the bound."""
    for name in _IN_BFLOAT16:
        setup = _setup(lab, _registered(name), trainer={"precision": Precision.BFLOAT16})
        finding = _bounded(lab, f"sensitivity.bfloat16.{name}", setup)
        yield replace(
            finding,
            claim="leaving out a record moves the clipped sum by C where the passes are in bfloat16",
            fault="norms of other numbers than those of the sum; a processor that rounds by the batch",
        )


def non_finite_record(lab: Lab) -> Iterator[Finding]:
    """A record whose gradient is no number adds nothing, and spoils nothing."""
    setup = _setup(lab, _registered("mlp"))
    setup.inputs[-1] = np.inf
    yield for_certain(
        "sensitivity.non_finite",
        "a record without a finite gradient adds nothing",
        "distance of the sums with and without it, in C",
        _distance(lab, setup),
        high=_HIGH - 1,
        fault="a gradient that is no number in the sum",
    )


def mixing_models(lab: Lab) -> Iterator[Finding]:
    """A model that mixes the records of a batch is refused, or it would move the sum without limit."""
    for name in _TRAPS:
        spec = PythonModel(name=f"python:worker.selftest.traps:{name}")
        setup = _setup(lab, spec)
        # Far from the others it moves what they are taken relative to: without it every second mix passed.
        setup.inputs[-1] *= _FAR
        try:
            found = _distance(lab, setup)
        except (ParameterError, AuditError):
            found = 0.0
        yield for_certain(
            f"sensitivity.{name}",
            "a model that mixes records is refused",
            "distance of the sums with and without a record, in C; 0 where refused",
            found,
            high=_HIGH,
            fault="batch normalisation let through",
        )


def _registered(name: str) -> Model:
    return MODEL_TYPES[name].model_validate({"name": name, **_SMALLER.get(name, {})})


def _setup(lab: Lab, spec: Any, trainer: Mapping[str, Any] | None = None) -> Setup:
    """Four random records of what the model reads."""
    is_image = spec.smallest_side is not None
    shape = _IMAGE if is_image else _TABLE
    records = lab.random.standard_normal((_NUM_RECORDS, *shape)).astype(np.float32)
    extractor = extractor_of(spec)
    if extractor is not None:
        with torch.inference_mode():
            records = extractor(torch.from_numpy(records)).numpy()
    return Setup(
        mechanism=_MECHANISM,
        model=spec,
        inputs=records,
        labels=lab.random.integers(0, _NUM_CLASSES, _NUM_RECORDS),
        num_classes=_NUM_CLASSES,
        shape=shape,
        trainer={"learning_rate": _LEARNING_RATE, **(trainer or {})},
    )


def _bounded(lab: Lab, check: str, setup: Setup) -> Finding:
    return for_certain(
        check,
        "leaving out a record with a gradient far above C moves the clipped sum by C",
        "distance of the sums with and without it, in C",
        _distance(lab, setup),
        low=_LOW,
        high=_HIGH,
        fault="no clipping, or clipping of anything but each record",
    )


def _distance(lab: Lab, setup: Setup) -> float:
    """Of the sums with and without the last record, all else being equal, in clipping norms."""
    secret = lab.random.bytes(KEY_BYTES)
    without = replace(setup, inputs=setup.inputs[:-1], labels=setup.labels[:-1])
    return float((_sum(lab, setup, secret) - _sum(lab, without, secret)).norm())


def _sum(lab: Lab, setup: Setup, secret: bytes) -> Tensor:
    """What one step adds up, [P], in clipping norms. One secret means equal weights, views and noise."""
    seen: list[Tensor] = []
    lab.run(setup, lambda trainer: seen.append(weights(trainer)), secret=secret)
    before, after = seen
    return (before.double() - after.double()) * (setup.expected_batch_size / _LEARNING_RATE)
