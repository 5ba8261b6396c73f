"""Clipped sums by book-keeping: one backward pass, per-example norms per layer, one weighted sum.

The forward pass keeps what enters each layer, the backward pass only reaches the layers' outputs, and
the two together give every per-example norm. The K views of an example are folded into the positions
that a layer sums over, so they cost no gradient of their own; so are the runs of a layer that runs
several times.

Layers of a known kind never have the gradient of each example. Where norms do not add up or nobody
knows how the layer computes, the gradients of each example are made, for that layer alone: any other
kind of layer, one of which a weight is trained and not all, parameters that several layers share.

References:
    Goodfellow (2015), arXiv:1510.01799; Bu, Wang, Zha and Karypis (2023), arXiv:2210.00038.
"""

# Shape legend: B = examples, K = views of each, V = B * K, R = runs of a layer.
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from tan_core.engine import gpu, native
from tan_core.engine.chain import Chain
from tan_core.engine.fast_layers import Methods, Prepare, fast_methods
from tan_core.engine.layers import (
    ChannelSums,
    LayerGradients,
    bias_alone,
    layer_gradients,
    linear,
    of_channel_sums,
)
from tan_core.engine.layers.any_layer import Call, per_example_gradients
from tan_core.engine.layers.base import squared_norms
from tan_core.engine.passes import as_read, check_precision, passes, widened
from tan_core.engine.units import Unit, units_of
from tan_core.engine.ways import Way, channels_last
from tan_core.errors import ParameterError
from tan_core.models.changed import is_changed
from tan_core.spec.train import Precision

_NEVER_ALONE = (nn.InstanceNorm2d, nn.InstanceNorm3d)
"""On their way back torch 2.13 takes one layout in memory for another where a batch is of one view."""
_KNOWN_CODE = ("torch.nn.", "tan_core.")
"""Whose layers call none of torch's functional norms; those of others may."""


_AS_WRITTEN: Final = ("none", "ieee")
_PRODUCTS: Final[tuple[tuple[tuple[str, Any], ...], ...]] = (
    tuple(
        (f"mkldnn.{name}", getattr(torch.backends.mkldnn, name))
        for name in ("matmul", "conv", "rnn")
    ),
    (("cuda.matmul", torch.backends.cuda.matmul),),
)
"""What makes sums on a processor, and on a GPU: cuDNN, which torch lets use TF32, makes none there."""


@dataclass(frozen=True, slots=True)
class BatchGradients:
    """The gradients of one batch."""

    norms: Tensor
    """[B], float64."""
    losses: Tensor
    """[B]: mean over the views, by their shares."""
    weighted_sum: Callable[[Tensor], Iterator[tuple[str, Tensor]]]
    """[B] weights -> the weighted sum by parameter name, each made when it is asked for."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a unit and the gradients of what left it, None where the loss does not see it."""

    call: Call
    gradients: tuple[Tensor | None, ...]


@dataclass(frozen=True, slots=True)
class _Record:
    """The runs of one forward pass, by unit and in order."""

    calls: dict[str, list[Call]]
    sums: dict[str, list[ChannelSums]]
    """Of units that sum their gradients by themselves on the way back: nothing is kept for them."""


class Books:
    """Keeps the books of one model; made anew when the model or what is frozen changes.

    Args:
        model: passes :func:`~tan_core.engine.gradients.check_model`.
        precision: of the passes through the model while the books are open.

    Raises:
        ParameterError: nothing is trainable, or as :func:`~tan_core.engine.passes.check_precision` raises it.
    """

    def __init__(self, model: nn.Module, precision: Precision = Precision.FLOAT32) -> None:
        check_precision(model, precision)
        self._model = model
        self._precision = precision
        self._units = units_of(model)
        trainable = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
        if not trainable:
            raise ParameterError("the model has no trainable parameter", field="model")
        self._like = next(iter(trainable.values()))
        self._shapes = {name: p.shape for name, p in trainable.items()}
        self._is_channels_last = _can_be_channels_last(model)
        self._record: _Record | None = None
        self._runs_in_pairs = any(map(_may_be_another_alone, model.modules()))
        self._may_be_in_place: list[Any] = [
            layer for layer in model.modules() if hasattr(layer, "inplace")
        ]
        is_by_hand = precision is Precision.FLOAT32 and native.accepts(*trainable.values())
        self._chain = Chain.of(model, self._units) if is_by_hand else None
        self._ways: list[Way | None] | None = None
        plain = {unit.layer: unit for unit in self._units if unit.is_plain}
        own_ways = _layers_of_rows(model, self._units)
        self._prepared = [
            (layer, plain.get(layer), prepare)
            for layer in model.modules()
            if (prepare := None if layer in own_ways else self._fast(layer)) or layer in plain
        ]

    def _fast(self, layer: nn.Module) -> Prepare | None:
        return fast_methods(layer, is_channels_last=self._is_channels_last)

    @property
    def model(self) -> nn.Module:
        """Whose books these are."""
        return self._model

    @property
    def precision(self) -> Precision:
        """Of the passes."""
        return self._precision

    @property
    def runs_in_pairs(self) -> bool:
        """Whether a view may not run alone: there is a layer whose way back would then be another one, or might be."""
        return self._runs_in_pairs

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters, and so of their sums."""
        return self._like.dtype

    def zeros(self) -> Tensor:
        """[P]: the sum over nothing."""
        return self._like.new_zeros(sum(shape.numel() for shape in self._shapes.values()))

    def joined(self, sums: Iterable[tuple[str, Tensor]]) -> Tensor:
        """[P]: sums by name, every trainable parameter's, in the model's own order."""
        by_name = dict(sums)
        self._check_complete(by_name)
        return torch.cat([by_name[name].flatten() for name in self._shapes])

    def add(
        self,
        total_P: Tensor,
        sums: Iterable[tuple[str, Tensor]],
        added: Callable[[str], object] = lambda _: None,
        *,
        times: float = 1.0,
    ) -> Tensor:
        """``total_P`` itself, with ``times`` such sums added to it one by one; ``added`` is told each name."""
        pieces = total_P.split([shape.numel() for shape in self._shapes.values()])
        views = {
            name: piece.view(shape)
            for (name, shape), piece in zip(self._shapes.items(), pieces, strict=True)
        }
        names: list[str] = []
        for name, value in sums:
            views[name].add_(value, alpha=times)
            names.append(name)
            added(name)
        self._check_complete(names)
        return total_P

    def _check_complete(self, names: Iterable[str]) -> None:
        unlike = self._shapes.keys() ^ names
        if unlike:
            raise RuntimeError(f"no gradients for {sorted(unlike)}")

    def passes(self, *, is_cached: bool = True) -> AbstractContextManager[object]:
        """What a forward pass of the model runs in."""
        return passes(self._model, self._precision, is_cached=is_cached)

    def check_modes(self) -> None:
        """There must be gradients, and a norm in one precision does not bound a sum in a lower one.

        Raises:
            RuntimeError: torch is set to compute without gradients, or in lower precision.
        """
        if torch.is_inference_mode_enabled():
            raise RuntimeError("torch.inference_mode is on, so nothing has a gradient; leave it")
        if torch.is_autocast_enabled(self._like.device.type):
            raise RuntimeError(
                "autocast is on: sums in lower precision than their norms are not bounded by them; "
                "leave torch.autocast and set the precision of the trainer"
            )
        if self.dtype != torch.float32:
            return
        for name, kind in _PRODUCTS[self._like.device.type == "cuda"]:
            if (set_to := kind.fp32_precision) not in _AS_WRITTEN:
                raise RuntimeError(
                    f"torch.backends.{name}.fp32_precision is {set_to!r}: sums would be less precise than their norms; "
                    'set it to "ieee", as torch.set_float32_matmul_precision("highest") does for products of matrices'
                )

    @contextmanager
    def opened(self) -> Generator[None]:
        """While the block runs, layers take fast ways and are listened to; parameters must stay."""
        if self._chain is None or not self._chain.is_unchanged:
            with self._hastened(listens=True):
                yield
            return
        self._ways = self._chain.ways()
        try:
            yield
        finally:
            self._ways = None

    @contextmanager
    def closed(self) -> Generator[None]:
        """While the block runs, layers take fast ways and nothing is written down; parameters must stay."""
        with self._hastened(listens=False):
            yield

    @contextmanager
    def _hastened(self, *, listens: bool) -> Generator[None]:
        replaced: list[tuple[dict[str, Any], Methods]] = []
        try:
            for layer, unit, prepare in self._prepared:
                methods = prepare() if prepare else {}
                if listens and unit is not None:
                    forward = methods.get("forward", partial(type(layer).forward, layer))
                    channel_sums = methods.get("channel_sums", lambda: None)
                    methods["forward"] = self._listening(unit, forward, channel_sums)
                replaced.append((vars(layer), methods))
                vars(layer).update(methods)
            yield
        finally:
            for own, methods in replaced:
                for method in methods:
                    own.pop(method, None)

    def predictions(self, inputs: Tensor) -> Tensor:
        """What the model says of a batch, without gradients, by the fast ways where the books are :meth:`closed`."""
        return self._model(self._laid_out(inputs))

    def _laid_out(self, inputs: Tensor) -> Tensor:
        is_image = inputs.dim() == 4 and self._is_channels_last
        return channels_last(inputs) if is_image else inputs.contiguous()

    def batch_gradients(
        self, inputs: Tensor, labels: Tensor, *, views: int, shares: Tensor | None = None
    ) -> BatchGradients:
        """Norms, losses and weighted sums of the gradients of one batch; the books must be open.

        Args:
            inputs: [B * K, ...]; the K views of an example stand together.
            labels: [B], or [B, K] where views have labels of their own.
            views: K.
            shares: [B, K], of each view in its example's loss; None: 1/K.

        Raises:
            RuntimeError: a layer did not run or does not reach the loss, does not have the views as
                first dimension, computes otherwise when it sees one example alone, or its input, or the
                output of one of no known kind, was changed in place: its norms would be wrong.
        """
        if self.runs_in_pairs and len(inputs) == 1:
            return self._beside_a_copy(inputs, labels)
        inputs, rows = self._laid_out(inputs), dict[str, Tensor]()
        if (found := self._by_hand(inputs, labels, views, shares)) is not None:
            losses_V, kept = found
        elif self._ways is None:
            losses_V, kept, rows = self._by_autograd(inputs, labels, views, shares)
        else:
            with self._hastened(listens=True):
                losses_V, kept, rows = self._by_autograd(inputs, labels, views, shares)

        def weighted_sum(weights_B: Tensor) -> Iterator[tuple[str, Tensor]]:
            for name, of_all in rows.items():
                yield name, torch.tensordot(weights_B, of_all, 1)
            for unit, of_layer in kept:
                for own, value in of_layer.weighted_sum(weights_B).items():
                    yield unit.parameters[own], value

        squared = [of_layer.squared_norms for _, of_layer in kept]
        squared += [squared_norms(of_all[..., None].flatten(1)) for of_all in rows.values()]
        return BatchGradients(
            norms=reduce(torch.add, squared).sqrt(),
            losses=_of_examples(losses_V, views, shares),
            weighted_sum=weighted_sum,
        )

    def _beside_a_copy(self, input_1: Tensor, label_1: Tensor) -> BatchGradients:
        """Of a single view."""
        both = self.batch_gradients(
            input_1.repeat_interleave(2, 0), label_1.flatten().repeat(2), views=1
        )
        return BatchGradients(
            norms=both.norms[:1],
            losses=both.losses[:1],
            weighted_sum=lambda weights_B: both.weighted_sum(functional.pad(weights_B, (0, 1))),
        )

    def _by_hand(
        self, inputs: Tensor, labels: Tensor, views: int, shares: Tensor | None
    ) -> tuple[Tensor, list[tuple[Unit, LayerGradients]]] | None:
        """Losses [V] and the gradients of each unit; None where the model is no chain or cannot read these inputs."""
        if self._chain is None or self._ways is None:
            return None
        with torch.no_grad():
            run = self._chain.there(self._ways, inputs)
            if run is None:
                # What it cannot read now it will not read in the next step.
                self._chain = None
                return None
            losses_V, g_VO = _losses(run.logits, labels, views, shares)
            kept: list[tuple[Unit, LayerGradients]] = []
            for unit, entered, g, passed in self._chain.back(run, g_VO):
                if passed.sums is not None and passed.sums.of_views is not None:
                    of_unit = _summed(unit, [passed.sums], len(inputs), views)
                elif entered is None:
                    of_unit = _of_bias(unit, [g], len(inputs), views)
                elif passed.squared_inputs is not None:
                    assert isinstance(unit.layer, nn.Linear)  # noqa: S101 no other layer takes them
                    of_unit = linear(unit.layer, entered, g, views, passed.squared_inputs)
                else:
                    of_unit = layer_gradients(unit.layer, entered, g, views)
                kept.append((unit, of_unit))
        return losses_V, kept[::-1]

    def _by_autograd(
        self, inputs: Tensor, labels: Tensor, views: int, shares: Tensor | None
    ) -> tuple[Tensor, list[tuple[Unit, LayerGradients]], dict[str, Tensor]]:
        """Losses [V], the gradients of each unit, and of those that are not plain by name, [B, ...]."""
        with torch.enable_grad():
            with self._recorded() as record, self.passes():
                logits = self._model(inputs)
            logits = logits.to(self.dtype)
            losses_V, g_VO = _losses(logits.detach(), labels, views, shares)
            self._check(record)
            runs = _differentiated(logits, g_VO, record)
        kept: list[tuple[Unit, LayerGradients]] = []
        rows: dict[str, Tensor] = {}
        num_views = inputs.shape[0]
        for unit in self._units:
            # What a layer needs no longer makes room for the gradients of its examples.
            of_unit = runs.pop(unit.name, [])
            if unit.name in record.sums:
                kept.append((unit, _summed(unit, record.sums[unit.name], num_views, views)))
                continue
            if not unit.reads_inputs:
                seen = [run.gradients[0] for run in of_unit]
                gradients = [widened(g, self.dtype) for g in seen if g is not None]
                kept.append((unit, _of_bias(unit, gradients, num_views, views)))
                continue
            folded = _folded(unit, of_unit, num_views=num_views, views=views)
            if folded is not None:
                a, g, times = folded
                if not gpu.reads_convolution(unit.layer, a, g, times):
                    a, g = widened(a, self.dtype), widened(g, self.dtype)
                kept.append((unit, layer_gradients(unit.layer, a, g, times)))
                continue
            with self.passes(is_cached=False):
                of_examples = _rows(unit, of_unit, num_views=num_views, views=views)
            _add(rows, of_examples)
        return losses_V, kept, rows

    def _listening(
        self,
        unit: Unit,
        forward: Callable[[Tensor], Tensor],
        channel_sums: Callable[[], ChannelSums | None],
    ) -> Callable[..., Tensor]:
        """A forward of a plain layer that writes down its calls."""
        layer, name = unit.layer, unit.name

        def listening(*args: Tensor, **kwargs: Tensor) -> Tensor:
            if self._record is None:
                return type(layer).forward(layer, *args, **kwargs)
            (x,) = (*args, *kwargs.values())
            x = as_read(layer, x, self._precision)
            output = forward(x)
            sums = channel_sums()
            if sums is None or not torch.is_grad_enabled():
                return self._written_down(unit, (x,), {}, output)
            self._record.sums.setdefault(name, []).append(sums)
            return output

        return listening

    def _written_down(self, unit: Unit, args: tuple[Any, ...], kwargs: Any, output: Any) -> Any:
        """Keep a call of a unit; what is to be handed on instead of the output."""
        # Where gradients are switched off, none will come back.
        if self._record is None or not torch.is_grad_enabled():
            return output
        call, output = Call.of(
            args, kwargs, output, keeps_inputs=unit.reads_inputs, reads_outputs=not unit.is_plain
        )
        self._record.calls.setdefault(unit.name, []).append(call)
        return output

    @contextmanager
    def _recorded(self) -> Generator[_Record]:
        """The runs of each unit while the block runs; nothing works in place meanwhile."""
        record = _Record({}, {})

        def recorder(unit: Unit) -> Callable[..., Any]:
            return lambda _, *call: self._written_down(unit, *call)

        handles = [
            unit.layer.register_forward_hook(recorder(unit), with_kwargs=True)
            for unit in self._units
            if not unit.is_plain
        ]
        in_place = [layer for layer in self._may_be_in_place if layer.inplace]
        for layer in in_place:
            layer.inplace = False
        self._record = record
        try:
            yield record
        finally:
            self._record = None
            for layer in in_place:
                layer.inplace = True
            for handle in handles:
                handle.remove()

    def _check(self, record: _Record) -> None:
        """Every trainable parameter gets its norm in this very step, from what its layer saw."""
        for unit in self._units:
            calls, sums = record.calls.get(unit.name, []), record.sums.get(unit.name, [])
            if not (calls or sums):
                raise RuntimeError(
                    f"layer {unit.name!r} did not run: what is trained must run in every step, by a "
                    "call of the layer and not by the use of its parameters"
                )
            if calls and sums:
                raise RuntimeError(
                    f"layer {unit.name!r} runs on the inputs themselves and on what trained layers make of "
                    "them: make it two layers"
                )
            if not all(call.is_untouched for call in calls):
                raise RuntimeError(
                    f"what enters or leaves layer {unit.name!r} must not be changed in place: write "
                    "x = x + y for x += y"
                )


def _labels_of_views(labels: Tensor, views: int) -> Tensor:
    """[V]: each view's own, or its example's."""
    if labels.dim() == 2:
        return labels.flatten()
    return labels if views == 1 else labels.repeat_interleave(views)


def _of_examples(losses_V: Tensor, views: int, shares: Tensor | None) -> Tensor:
    if views == 1:
        return losses_V
    losses_BK = losses_V.view(-1, views)
    return losses_BK.mean(1) if shares is None else (losses_BK * shares).sum(1)


def _losses(
    logits_VO: Tensor, labels: Tensor, views: int, shares: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Cross-entropies [V] and the gradients by the logits, [V, O], of the mean over each example's views."""
    losses_V, g_VO = _cross_entropies(logits_VO, _labels_of_views(labels, views))
    if views > 1:
        g_VO *= 1 / views if shares is None else shares.reshape(-1, 1)
    return losses_V, g_VO


def _cross_entropies(logits_VO: Tensor, labels_V: Tensor) -> tuple[Tensor, Tensor]:
    # The kernel reads 64 bits for each row; torch says what is wrong with other labels.
    is_read = labels_V.is_cpu and labels_V.dtype == torch.int64
    is_row_by_row = logits_VO.dim() == 2 and labels_V.shape == logits_VO.shape[:1]
    if is_read and is_row_by_row and native.accepts(logits_VO):
        found = native.cross_entropies(logits_VO, labels_V)
        if found is not None:
            return found
    with torch.enable_grad():
        logits_VO = logits_VO.detach().requires_grad_()
        losses_V = functional.cross_entropy(logits_VO, labels_V, reduction="none")
        (g_VO,) = torch.autograd.grad(losses_V.sum(), logits_VO)
    return losses_V.detach(), g_VO


def _differentiated(logits_VO: Tensor, g_VO: Tensor, record: _Record) -> dict[str, list[_Run]]:
    """The runs of each unit, by name, after one backward pass: of the mean over each example's views."""
    calls = record.calls
    ends = [end for of_unit in calls.values() for call in of_unit for end in call.ends]
    if not logits_VO.requires_grad:
        raise RuntimeError("no layer that is trained reaches the loss")
    gradients = iter(torch.autograd.grad(logits_VO, ends, g_VO, allow_unused=True))
    runs = {
        name: [_Run(call, tuple(next(gradients) for _ in call.outputs)) for call in of_unit]
        for name, of_unit in calls.items()
    }
    calls.clear()
    unseen = [
        name
        for name, of_unit in runs.items()
        if all(gradient is None for run in of_unit for gradient in run.gradients)
    ]
    unseen += [
        name for name, sums in record.sums.items() if all(not each.of_views for each in sums)
    ]
    if unseen:
        raise RuntimeError(
            f"layer {unseen[0]!r} does not reach the loss: it would never be trained"
        )
    return runs


def _summed(unit: Unit, sums: list[ChannelSums], num_views: int, views: int) -> LayerGradients:
    """Of a layer that has summed its gradients on the way back, in the runs that the loss sees."""
    runs = [each.of_views for each in sums if each.of_views is not None]
    for scale_VC, _ in runs:
        _check_views(unit, scale_VC, num_views)
    assert isinstance(unit.layer, nn.GroupNorm)  # noqa: S101 no other layer does
    return of_channel_sums(unit.layer, runs, views)


def _may_be_another_alone(layer: nn.Module) -> bool:
    if isinstance(layer, _NEVER_ALONE) or is_changed(layer):
        return True
    # Of all that it inherits: torch makes the class of a parametrised layer, out of that of another's code.
    kinds = [kind for kind in type(layer).__mro__ if issubclass(kind, nn.Module)]
    return not all(kind.__module__.startswith(_KNOWN_CODE) for kind in kinds)


def _of_bias(unit: Unit, gradients: Sequence[Tensor], num_views: int, views: int) -> LayerGradients:
    """Of a layer of which the bias alone is trained, in the runs that the loss sees."""
    for g in gradients:
        _check_views(unit, g, num_views)
    return bias_alone(unit.layer, gradients, views)


def _check_views(unit: Unit, x: Tensor, num_views: int) -> None:
    if len(x) != num_views:
        raise RuntimeError(
            f"layer {unit.name!r} must have the {num_views} views as first dimension, "
            f"got {list(x.shape)}"
        )


def _folded(
    unit: Unit, runs: list[_Run], *, num_views: int, views: int
) -> tuple[Tensor, Tensor, int] | None:
    """What entered a plain layer, the gradient of what left it, and how many views that makes.

    R runs of a layer are R times the views. None where inputs differ in shape or come with others.
    """
    if not (unit.is_plain and all(run.call.is_simple for run in runs)):
        return None
    pairs = [(run.call.entered[0], run.gradients[0]) for run in runs]
    seen = [(entered, gradient) for entered, gradient in pairs if gradient is not None]
    shapes = {entered.shape for entered, _ in seen}
    for entered, gradient in seen:
        if not entered.shape[0] == gradient.shape[0] == num_views:
            raise RuntimeError(
                f"layer {unit.name!r} must have the {num_views} views as first dimension, "
                f"got {list(entered.shape)}"
            )
    if len(seen) == 1:
        return *seen[0], views
    if len(shapes) > 1:
        return None
    a, g = (
        torch.stack([x.unflatten(0, (-1, views)) for x in each], 1).flatten(0, 2)
        for each in zip(*seen, strict=True)
    )
    return a, g, len(seen) * views


def _rows(unit: Unit, runs: list[_Run], *, num_views: int, views: int) -> dict[str, Tensor]:
    """The gradients of each example, [B, ...], summed over the runs, by name in the model."""
    rows: dict[str, Tensor] = {}
    for run in runs:
        try:
            of_run = per_example_gradients(
                unit.layer,
                list(unit.parameters),
                run.call,
                run.gradients,
                num_views=num_views,
                views=views,
            )
        except RuntimeError as error:
            raise RuntimeError(f"layer {unit.name!r} {error}") from error
        _add(rows, {unit.parameters[own]: value for own, value in of_run.items()})
    return rows


def _add(total: dict[str, Tensor], rows: dict[str, Tensor]) -> None:
    for name, value in rows.items():
        total[name] = total[name] + value if name in total else value


def _can_be_channels_last(model: nn.Module) -> bool:
    """Pools and convolutions are faster so. Not with torch's own group norms: they lose digits, or lay them out anew."""
    norms = [layer for layer in model.modules() if isinstance(layer, nn.GroupNorm)]
    if not norms or native.accepts(*model.parameters()):
        return True
    devices = {p.device for p in model.parameters()}
    return all(map(gpu.is_available, devices)) and all(map(gpu.fits_norm, norms))


def _layers_of_rows(model: nn.Module, units: Sequence[Unit]) -> set[nn.Module]:
    """Layers that must run as they are: in units that run again for each example, or sharing with one."""
    again = [unit.layer for unit in units if not unit.is_plain]
    inside = {layer for unit in again for layer in unit.modules()}
    shared = {p for layer in again for p in layer.parameters(recurse=False)}
    owners = {
        layer for layer in model.modules() if shared.intersection(layer.parameters(recurse=False))
    }
    return inside | owners
