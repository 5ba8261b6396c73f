"""What stands in the place of batch normalisation, in models whose code is not ours.

Batch normalisation mixes the examples of a batch, so no example has a gradient of its own. Group normalisation
takes its moments from each example by itself, and has a scale and a shift for each channel as well. A frozen one
has those that a checkpoint holds, as the network has when it is used.

References:
    Wu and He (2018), "Group Normalization", arXiv:1803.08494: 32 groups.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast, get_args

import torch
from torch import Tensor, nn

from tan_core import _validate
from tan_core.errors import ModelError, ParameterError
from tan_core.models.changed import is_changed
from tan_core.models.frozen_batch_norm import FrozenBatchNorm
from tan_core.spec.models import InPlaceOfBatchNorm

BATCH_NORMS: Final = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
    nn.LazyBatchNorm1d,
    nn.LazyBatchNorm2d,
    nn.LazyBatchNorm3d,
)
"""What mixes the examples of a batch; so do their subclasses."""
_REPLACED: Final = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
"""Of these very types: a subclass may compute anything."""
_OF_TIMM: Final = "timm.layers.norm_act.BatchNormAct2d"
"""By name, as timm is not to be loaded for it: a norm, what it calls ``drop``, and an activation in one layer."""
_MOST_GROUPS: Final = 32
_FEWEST_NUMBERS: Final = 3
"""Of a group: one number is normalised to 0, and two to a sign."""
_FIELD: Final = "model.replace_batch_norm"
_PARAMETERS: Final = ("weight", "bias")
_STATISTICS: Final = ("running_mean", "running_var", "num_batches_tracked")


def replace_batch_norm(
    model: nn.Module, shape: Sequence[int], *, by: InPlaceOfBatchNorm = "group"
) -> dict[str, str]:
    """Put something that mixes no examples in the place of every batch normalisation of a model.

    It takes over scale, shift and ``eps``.

    * ``group``: a group normalisation. It has the largest number of groups up to 32 that divides its channels;
      one, and so is a layer normalisation, where it reads vectors [N, C] or where a group would hold fewer than three
      numbers of an example, as behind a global pool. One run on zeros tells what each of them reads.
    * ``frozen``: a :class:`~tan_core.models.frozen_batch_norm.FrozenBatchNorm` with the running mean and variance as well,
      for networks that were trained elsewhere: they compute what they computed when they were used.

    timm's ``BatchNormAct2d`` becomes three layers: ``norm``, ``drop`` and ``act``.

    Formal guarantees:

    * No new layer mixes examples, or keeps statistics of what it reads.
    * What several places shared they share afterwards: a layer, a scale, a shift.
    * torch's global generator on the CPU is left as it was.

    Args:
        model: reads [B, *shape] floats in the type of what is trained; it is changed in place.
        shape: of one example.
        by: what takes their place.

    Returns:
        The names of the new layers, by the names of the layers that they stand for.

    Raises:
        ParameterError: ``by`` is something else.
        ModelError: a layer may compute something else (a subclass, hooks), has no shape yet, is the model itself, or keeps
            no statistics that could be frozen, and nothing is changed; or a group normalisation would read fewer than three
            numbers of an example. The message names it.
        Exception: what the model raises in that run, where it does not read such inputs, or uses what its new layers do not have.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 48, 3), nn.BatchNorm2d(48), nn.Flatten(), nn.Linear(1728, 2))
        >>> replace_batch_norm(model, (3, 8, 8))
        {'1': '1'}
        >>> type(model[1]).__name__, model[1].num_groups
        ('GroupNorm', 24)
    """
    _validate.instance(nn.Module, model=model)
    shape = _validate.sides(shape=shape)
    if by not in get_args(InPlaceOfBatchNorm):
        raise ParameterError(f"by must be group or frozen, got {by!r}", field="by")
    found = {
        name: layer
        for name, layer in model.named_modules(remove_duplicate=False)
        if isinstance(layer, BATCH_NORMS)
    }
    for name, layer in found.items():
        _check_known(name, layer)
        if by == "frozen":
            _check_has_statistics(name, layer)
    make = _group_norm if by == "group" else FrozenBatchNorm
    norms = {layer: make(layer) for layer in found.values()}
    replaced: dict[str, str] = {}
    for name, layer in found.items():
        norm = norms[layer]
        if type(layer) in _REPLACED:
            model.set_submodule(name, norm)
            replaced[name] = name
        else:
            parts = {"norm": norm, "drop": layer.drop, "act": layer.act}
            model.set_submodule(name, nn.Sequential(OrderedDict(cast("Any", parts))))
            replaced[name] = f"{name}.norm"
    if replaced and by == "group":
        _fit_groups(model, shape, replaced.values())
    return replaced


def by_new_names(
    weights: Mapping[str, Tensor], replaced: Mapping[str, str], own: Collection[str]
) -> dict[str, Tensor]:
    """A checkpoint from before layers were replaced, as one from after: without statistics that have no place there.

    Args:
        weights: of the checkpoint.
        replaced: as :func:`replace_batch_norm` returns it.
        own: names of the model as it is now.

    Example:
        >>> before = {"bn.weight": torch.ones(4), "bn.running_mean": torch.zeros(4), "fc.bias": torch.zeros(2)}
        >>> [*by_new_names(before, {"bn": "bn.norm"}, ["bn.norm.weight", "bn.norm.bias", "fc.bias"])]
        ['bn.norm.weight', 'fc.bias']
    """
    renamed = {
        f"{old}.{each}": f"{new}.{each}"
        for old, new in replaced.items()
        for each in (*_PARAMETERS, *_STATISTICS)
    }
    kept = {name: new for name, new in renamed.items() if new in own}
    dropped = {f"{old}.{each}" for old in replaced for each in _STATISTICS} - kept.keys()
    return {
        renamed.get(name, name): value for name, value in weights.items() if name not in dropped
    }


def _check_known(name: str, layer: nn.Module) -> None:
    kind = type(layer)
    is_known = kind in _REPLACED or f"{kind.__module__}.{kind.__qualname__}" == _OF_TIMM
    if name and is_known and not is_changed(layer):
        return
    raise ModelError(
        f"{f'layer {name!r}' if name else 'the model'} is {kind.__name__}, which replace_batch_norm cannot "
        "replace; accepted: BatchNorm1d, 2d and 3d and SyncBatchNorm of torch, and BatchNormAct2d of timm, as layers of a "
        "model and without hooks; or a model without it",
        field=_FIELD,
    )


def _check_has_statistics(name: str, layer: Any) -> None:
    if layer.running_mean is None or layer.running_var is None:
        raise ModelError(
            f"layer {name!r} is {type(layer).__name__} with track_running_stats=False: it keeps no statistics that could be "
            "frozen; accepted: replace_batch_norm: group",
            field=_FIELD,
        )


def _group_norm(layer: Any) -> nn.GroupNorm:
    channels: int = layer.num_features
    groups = max(each for each in range(1, _MOST_GROUPS + 1) if channels % each == 0)
    norm = nn.GroupNorm(groups, channels, layer.eps, affine=layer.affine)
    norm.weight, norm.bias = layer.weight, layer.bias
    return norm.train(layer.training)


def _fit_groups(model: nn.Module, shape: tuple[int, ...], names: Iterable[str]) -> None:
    """Run the model once, and leave one group to each layer that reads too little for more."""
    hooks = [
        model.get_submodule(name).register_forward_pre_hook(partial(_fit, name), with_kwargs=True)
        for name in names
    ]
    trained = (each for each in model.parameters() if each.requires_grad)
    inputs = torch.zeros(2, *shape).to(next(trained, torch.zeros(())))
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            model(inputs)
    finally:
        for hook in hooks:
            hook.remove()


def _fit(name: str, norm: nn.GroupNorm, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    (x,) = (*args, *kwargs.values())
    numbers = x[0].numel()
    if numbers < _FEWEST_NUMBERS:
        raise ModelError(
            f"layer {name!r} reads {numbers} number{'s' * (numbers > 1)} of an example, of which normalising leaves "
            f"nothing, or a sign; accepted: {_FEWEST_NUMBERS} or more, or a model without it",
            field=_FIELD,
        )
    if x.dim() == 2 or numbers // norm.num_groups < _FEWEST_NUMBERS:
        norm.num_groups = 1
