"""Kernels in C for what torch has no fast way to do for each example by itself; optional.

They are compiled when the package is installed, where a compiler is at hand. :func:`is_available` says
whether they are there; whoever calls the rest has asked. Tensors are on the CPU, float32 or float64;
inputs and output gradients of convolutions are made channels-last if they are not.
"""

# Shape legend: B = examples, K = views of each, V = B * K, C and O = channels in and out, I = what a
# kernel sees at one position: its size times C; O' = O rounded up to whole vectors.
import ctypes
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tan_core.kernels_version import KERNELS_VERSION

_OUTPUTS_MULTIPLE: Final = 16
_TYPES: Final = {torch.float32: "float", torch.float64: "double"}
_DIMENSIONS: Final = [
    "views",
    "height",
    "width",
    "channels",
    "rows",
    "columns",
    "outputs",
    "kernel_rows",
    "kernel_columns",
    "stride_rows",
    "stride_columns",
    "pad_rows",
    "pad_columns",
    "dilation_rows",
    "dilation_columns",
]


class _Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in _DIMENSIONS]


class _Standardised(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("unit", "factor", "is_free")]


class _Examples(ctypes.Structure):
    _fields_ = [
        ("values", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("kind", ctypes.c_int64),
        ("groups", ctypes.c_int64),
        ("epsilon", ctypes.c_double),
    ]


_KINDS: Final = {torch.float16: 1, torch.uint8: 2}
"""Of examples; 0: of the kernel's own type."""
_ARGUMENTS: Final = {"p": ctypes.c_void_p, "n": ctypes.c_int64, "d": ctypes.c_double}
_SIGNATURES: Final = {
    "weight_rows": "pnpppnnpp",
    "weight_norms": "pnppp",
    "squared_norms": "nnpp",
    "outer_norms": "nnnnppp",
    "convolution": "pnpppp",
    "convolution_backward": "pnppp",
    "group_norm": "nnnndpppppp",
    "group_norm_backward": "nnnnpppppppp",
    "linear": "nnnppppp",
    "linear_classifier": "nnndpppppppp",
    "cross_entropies": "nnpppp",
    "ensemble_weights": "nnnnnnpp",
    "ensemble_scores": "nnnpppp",
    "ensemble_gradients": "nnnnpppppp",
    "ensemble_sums": "nnnnnpppp",
    "max_pool": "pnppp",
    "max_pool_backward": "pnppp",
    "add_normals_of_words": "nppdpnp",
}
"""As in kernels.c: pointers, numbers, doubles."""
_OF_FLOATS: Final = ["hyperbolic_tangent_float", "add_normal_float"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """The window of a convolution: rows and columns each."""

    size: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    def places(self, x: Tensor) -> tuple[int, int]:
        """Rows and columns of positions on images [V, C, H, W]; not above 0 where the window does not fit."""
        rows, columns = (
            (side + 2 * padding - dilation * (size - 1) - 1) // stride + 1
            for side, size, stride, padding, dilation in zip(
                x.shape[-2:], self.size, self.stride, self.padding, self.dilation, strict=True
            )
        )
        return rows, columns


@dataclass(frozen=True, slots=True)
class Standardised:
    """A weight that is standardised before use, its axes in the order of the rows."""

    unit: Tensor
    """[I, O']: mean 0 and sum of squares 1 for each output."""
    factor: Tensor
    """[O']: the rate of the standardisation times the gain."""
    is_free: Tensor
    """[O']: 1 where the rate follows the weight, else 0."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The gradients of each example of a convolution, those of all its parameters together."""

    gradients: Tensor
    """[B, I + 1 + 1, O']: of the weight, C last within I; then of the bias and of the gain, if asked."""
    squared_norms: Tensor
    """[B], float64: of all of them."""

    def weighted_sum(self, weights_B: Tensor) -> Tensor:
        """[I + 1 + 1, O']: what the gradients weigh together."""
        return (weights_B @ self.gradients.flatten(1)).view(self.gradients.shape[1:])


@cache
def _library() -> ctypes.CDLL | None:
    for path in sorted(Path(__file__).parent.glob("_kernels*.so")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:  # of another machine or another Python
            continue
        names = [f"{name}_{real}" for name in _SIGNATURES for real in _TYPES.values()]
        names += [*_OF_FLOATS, "poisson_sample", "kernels_version"]
        # One of another day, as after an update without installing again, would compute something else.
        if (
            all(hasattr(library, name) for name in names)
            and library.kernels_version() == KERNELS_VERSION
        ):
            library.poisson_sample.restype = ctypes.c_int64
            return library
    return None


def is_available() -> bool:
    """Whether the kernels have been compiled on this machine."""
    return _library() is not None


def accepts(first: Tensor, *others: Tensor) -> bool:
    """Whether the kernels are there and can read these tensors."""
    if not (first.is_cpu and first.dtype in _TYPES and is_available()):
        return False
    return all(x.is_cpu and x.dtype == first.dtype for x in others)


def is_whole(numbers: int) -> bool:
    """Whether they are a whole number of vectors, on every processor."""
    return numbers % _OUTPUTS_MULTIPLE == 0


def padded(outputs: int) -> int:
    """O': the outputs of a row, rounded up."""
    return -(-outputs // _OUTPUTS_MULTIPLE) * _OUTPUTS_MULTIPLE


def weight_rows(
    a: Tensor,
    g: Tensor,
    kernel: Kernel,
    views: int,
    *,
    has_bias: bool,
    standardised: Standardised | None = None,
    has_gain: bool = False,
) -> Rows:
    """The gradients of each example.

    Args:
        a: [V, C, H, W], inputs.
        g: [V, O, H', W'], gradients of the outputs.
        kernel: of the convolution.
        views: K.
        has_bias: whether there is a bias.
        standardised: the weight, if it is one that is standardised before use.
        has_gain: whether a standardised weight has a gain.
    """
    a, g = _channels_last(a), _channels_last(g)
    examples, outputs = a.shape[0] // views, padded(g.shape[1])
    inputs = kernel.size[0] * kernel.size[1] * a.shape[1]
    size = examples, inputs + has_bias + has_gain, outputs
    if g.shape[1:].numel() == 0:
        # The kernel divides by the outputs, and writes where there are positions.
        return Rows(g.new_zeros(size), torch.zeros(examples, dtype=torch.float64))
    rows = g.new_empty(size)
    squared = torch.empty(examples, dtype=torch.float64)
    shape, parts, own = _shape(a, g, kernel, views), (), None
    if standardised is not None:
        # Named, so that they live as long as the kernel reads them.
        parts = (standardised.unit, standardised.factor, standardised.is_free)
        parts = tuple(part.to(g.dtype).contiguous() for part in parts)
        own = _Standardised(*(part.data_ptr() for part in parts))
    function = _function("weight_rows", g)

    def compute(first: int, count: int) -> int:
        return function(
            ctypes.byref(shape),
            count,
            _at(a, first * views),
            _at(g, first * views),
            None if own is None else ctypes.byref(own),
            has_bias,
            has_gain,
            _at(rows, first),
            _at(squared, first),
        )

    _over_examples(compute, examples)
    return Rows(rows, squared)


def weight_norms(a: Tensor, g: Tensor, kernel: Kernel, views: int) -> Tensor:
    """Squared norms of the weight gradients of :func:`weight_rows`, without them; [B] in float64."""
    a, g = _channels_last(a), _channels_last(g)
    examples = a.shape[0] // views
    squared = torch.empty(examples, dtype=torch.float64)
    shape, function = _shape(a, g, kernel, views), _function("weight_norms", g)

    def compute(first: int, count: int) -> int:
        return function(
            ctypes.byref(shape),
            count,
            _at(a, first * views),
            _at(g, first * views),
            _at(squared, first),
        )

    _over_examples(compute, examples)
    return squared


def squared_norms(x: Tensor) -> Tensor:
    """Squared norm of each row of [N, P], [N] in float64; every square is summed in float64."""
    x = x.contiguous()
    squared = torch.empty(x.shape[0], dtype=torch.float64)
    function, size = _function("squared_norms", x), x[0].numel() if len(x) else 0

    def compute(first: int, count: int) -> int:
        return function(count, size, _at(x, first), _at(squared, first))

    _over_examples(compute, x.shape[0])
    return squared


def outer_norms(x: Tensor, g: Tensor, *, ones: int) -> Tensor:
    """Squared norms of the products g x', [B] in float64: of [B, I] beside ``ones``, and [B, O]."""
    x, g = x.contiguous(), g.contiguous()
    squared = torch.empty(x.shape[0], dtype=torch.float64)
    function, inputs, outputs = _function("outer_norms", x), x.shape[1], g.shape[1]

    def compute(first: int, count: int) -> int:
        return function(
            count, inputs, outputs, ones, _at(x, first), _at(g, first), _at(squared, first)
        )

    _over_examples(compute, x.shape[0])
    return squared


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples that a kernel reads where they lie."""

    values: Tensor
    """[N, ...], dense, on the CPU: of the weight's type, float16, or uint8 pixels."""
    rows: Tensor | None = None
    """[B], int64 in [0, N): which of them; None: all."""
    groups: int = 0
    """Into how many pieces an example falls, each normalised by itself; 0: not normalised."""
    epsilon: float = 0.0
    """Added to the variance of a piece."""

    def __len__(self) -> int:
        return len(self.values) if self.rows is None else len(self.rows)

    def is_readable(self, weight: Tensor) -> bool:
        """Whether a kernel of the weight's type can."""
        is_known = self.values.dtype in (weight.dtype, *_KINDS)
        return is_known and self.values.is_cpu and self.values.is_contiguous()

    def at(self, first: int) -> _Examples:
        """From example ``first`` on, for a kernel."""
        return _Examples(
            _at(self.values, first if self.rows is None else 0),
            None if self.rows is None else _at(self.rows, first),
            _KINDS.get(self.values.dtype, 0),
            self.groups,
            self.epsilon,
        )


def linear(x: Examples, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """[B, O] of what is readable, and the squared norms of the inputs, [B] in float64; for few outputs."""
    weight, bias = weight.contiguous(), None if bias is None else bias.contiguous()
    y = weight.new_empty(len(x), len(weight))
    squared = torch.empty(len(x), dtype=torch.float64)
    function = _function("linear", weight)

    def compute(first: int, count: int) -> int:
        return function(
            count,
            *reversed(weight.shape),
            ctypes.byref(x.at(first)),
            _at(weight),
            _at(bias),
            _at(y, first),
            _at(squared, first),
        )

    _over_examples(compute, len(x))
    return y, squared


def linear_classifier(
    x: Examples, labels: Tensor, weight: Tensor, bias: Tensor | None, clip_norm: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The clipped sum of the gradients of a linear classifier's cross-entropy.

    Args:
        x: B inputs, readable.
        labels: [B], int64 in [0, O).
        weight: [O, I].
        bias: [O], if there is one.
        clip_norm: what longer gradients are scaled down to.

    Returns:
        The sum, [O * I + O], the weight's part first; norms before clipping, [B] in float64; losses, [B].
        What is not finite in either of them adds nothing.
    """
    labels, weight = labels.contiguous(), weight.contiguous()
    bias = None if bias is None else bias.contiguous()
    norms, losses = torch.empty(len(x), dtype=torch.float64), weight.new_empty(len(x))
    size = weight.numel() + (0 if bias is None else len(bias))
    sums: dict[int, Tensor] = {}
    function = _function("linear_classifier", weight)

    def compute(first: int, count: int) -> int:
        own = sums.setdefault(first, weight.new_zeros(size))
        return function(
            count,
            *reversed(weight.shape),
            clip_norm,
            ctypes.byref(x.at(first)),
            _at(labels, first),
            _at(weight),
            _at(bias),
            _at(own),
            None if bias is None else _at(own[weight.numel() :]),
            _at(norms, first),
            _at(losses, first),
        )

    _over_examples(compute, len(x))
    return reduce(Tensor.add_, (sums[first] for first in sorted(sums))), norms, losses


def cross_entropies(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor] | None:
    """Losses [B] and their gradients by the logits, [B, O]; None where a label is not in [0, O).

    Args:
        logits: [B, O].
        labels: [B], int64.
    """
    logits, labels = logits.contiguous(), labels.contiguous()
    losses, g = logits.new_empty(logits.shape[0]), torch.empty_like(logits)
    failed = _function("cross_entropies", logits)(
        *logits.shape, _at(logits), _at(labels), _at(losses), _at(g)
    )
    return None if failed else (losses, g)


@dataclass(frozen=True, slots=True)
class EnsembleWeights:
    """As :func:`ensemble_scores` reads them: as many outputs as are scored at once lie together."""

    values: Tensor
    """[F * N]."""
    outputs: int
    """N: T * D rounded up; the rest is 0."""


def ensemble_weights(weight_TOF: Tensor) -> EnsembleWeights:
    """The weights of each trial's first D = O - 1 classes less those of its last.

    Args:
        weight_TOF: [T, O, F], dense.
    """
    trials, classes, inputs = weight_TOF.shape
    outputs = padded(trials * (classes - 1))
    values, function = (
        weight_TOF.new_empty(inputs * outputs),
        _function("ensemble_weights", weight_TOF),
    )

    def compute(first: int, count: int) -> int:
        sizes = (first, count, inputs, trials, classes - 1, outputs)
        return function(*sizes, _at(weight_TOF), _at(values))

    _over_examples(compute, inputs)
    return EnsembleWeights(values, outputs)


def ensemble_scores(x: Tensor, weights: EnsembleWeights, rows: Tensor | None = None) -> Tensor:
    """[B, N]: of some hundred examples at once.

    Args:
        x: [B, F], dense; or all records, [., F].
        weights: of as many inputs and as precise.
        rows: [B], int64: which records, read where they lie; None: all of ``x``.
    """
    examples = len(x) if rows is None else len(rows)
    outputs = weights.outputs
    y, function = x.new_zeros(examples, outputs), _function("ensemble_scores", x)

    def compute(first: int, count: int) -> int:
        at_x = _at(x, first if rows is None else 0)
        return function(
            count, x.shape[1], outputs, at_x, _at(rows, first), _at(weights.values), _at(y, first)
        )

    _over_examples(compute, examples)
    return y


def ensemble_gradients(
    scores: Tensor, biases_TD: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses [B, T], gradients by the logits [B, T * D], and the squared norms of the gradients by all of them, [B, T] in float64.

    D = O - 1: logits are those of every class but the last, less that of the last. Only those change a
    softmax, and the gradient by the last one is minus the sum of the others.

    Args:
        scores: [B, N], dense, of which the first T * D count.
        biases_TD: [T, D], dense, added to the scores.
        labels: [B], int64 in [0, O).
    """
    (examples, step), (trials, differences) = scores.shape, biases_TD.shape
    g = scores.new_empty(examples, trials * differences)
    losses, function = scores.new_empty(examples, trials), _function("ensemble_gradients", scores)
    squared = torch.empty(examples, trials, dtype=torch.float64)

    def compute(first: int, count: int) -> int:
        outputs = (_at(each, first) for each in (g, losses, squared))
        inputs = (_at(scores, first), _at(biases_TD), _at(labels, first))
        return function(count, trials, differences, step, *inputs, *outputs)

    _over_examples(compute, examples)
    return losses, g, squared


def add_ensemble_sums(x: Tensor, g: Tensor, total_TOF: Tensor, rows: Tensor | None = None) -> None:
    """Add g' x, and minus the sum of each trial's own to its last row, of some hundred examples at once; all are dense.

    Args:
        x: as in :func:`ensemble_scores`.
        g: [B, T * D], D = O - 1.
        total_TOF: [T, O, F].
        rows: as in :func:`ensemble_scores`.
    """
    function, (trials, classes, inputs) = _function("ensemble_sums", x), total_TOF.shape
    size = x.element_size()

    # Columns are split among threads: their sums do not meet.
    def compute(first: int, count: int) -> int:
        at_x, at_total = (own.data_ptr() + first * size for own in (x, total_TOF))
        sizes = (count, len(g), inputs, trials, classes - 1)
        return function(*sizes, at_x, _at(rows), _at(g), at_total)

    _over_examples(compute, inputs)


def convolution(x: Tensor, weight_IO: Tensor, bias: Tensor | None, kernel: Kernel) -> Tensor:
    """[V, O, H', W'], channels-last.

    Args:
        x: [V, C, H, W].
        weight_IO: [I, O], dense, channels last within I; O :func:`is_whole`.
        bias: [O], if there is one.
        kernel: of the convolution.
    """
    x, bias = _channels_last(x), None if bias is None else bias.contiguous()
    y = _images(x, weight_IO.shape[1], *kernel.places(x))
    shape, function = _shape(x, y, kernel, 1), _function("convolution", x)

    def compute(first: int, count: int) -> int:
        return function(
            ctypes.byref(shape), count, _at(x, first), _at(weight_IO), _at(bias), _at(y, first)
        )

    _over_examples(compute, x.shape[0])
    return y


def convolution_backward(g: Tensor, weight_OI: Tensor, kernel: Kernel, size: torch.Size) -> Tensor:
    """The gradient of the input of :func:`convolution`, channels-last.

    Args:
        g: [V, O, H', W'].
        weight_OI: [O, I], dense, channels last within I.
        kernel: C times its columns, or C where these are dilated, :func:`is_whole`.
        size: [V, C, H, W], of the input.
    """
    g = _channels_last(g)
    dx = _images(g, *size[1:])
    shape, function = _shape(dx, g, kernel, 1), _function("convolution_backward", g)

    def compute(first: int, count: int) -> int:
        return function(ctypes.byref(shape), count, _at(g, first), _at(weight_OI), _at(dx, first))

    _over_examples(compute, dx.shape[0])
    return dx


def group_norm(
    x: Tensor, groups: int, scale: Tensor | None, shift: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised [V, C, H, W], channels-last, and the mean and inverse deviation, [V, G]."""
    x = _channels_last(x)
    scale, shift = (None if own is None else own.contiguous() for own in (scale, shift))
    y = torch.empty_like(x)
    mean, deviation = x.new_empty(2, x.shape[0], groups).unbind()
    positions, channels = x.shape[2] * x.shape[3], x.shape[1]
    function = _function("group_norm", x)

    def compute(first: int, count: int) -> int:
        return function(
            count,
            positions,
            channels,
            groups,
            epsilon,
            _at(x, first),
            _at(scale),
            _at(shift),
            _at(y, first),
            _at(mean, first),
            _at(deviation, first),
        )

    _over_examples(compute, x.shape[0])
    return y, mean, deviation


def group_norm_backward(
    x: Tensor,
    g: Tensor,
    mean: Tensor,
    deviation: Tensor,
    scale: Tensor | None,
    *,
    needs_input: bool,
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Gradients of the input, [V, C, H, W] if needed, and of the scale and the shift of each, [V, C]."""
    x, g = _channels_last(x), _channels_last(g)
    scale = None if scale is None else scale.contiguous()
    dx = torch.empty_like(x) if needs_input else None
    dscale, dshift = x.new_empty(2, *x.shape[:2]).unbind()
    positions, channels = x.shape[2] * x.shape[3], x.shape[1]
    function, groups = _function("group_norm_backward", x), mean.shape[1]

    def compute(first: int, count: int) -> int:
        return function(
            count,
            positions,
            channels,
            groups,
            _at(x, first),
            _at(g, first),
            _at(mean, first),
            _at(deviation, first),
            _at(scale),
            _at(dx, first),
            _at(dscale, first),
            _at(dshift, first),
        )

    _over_examples(compute, x.shape[0])
    return dx, dscale, dshift


def max_pool(x: Tensor, kernel: Kernel) -> tuple[Tensor, Tensor]:
    """[V, C, H', W'], channels-last, and which pixel of its window each of them is, uint8."""
    x = _channels_last(x)
    y = _images(x, x.shape[1], *kernel.places(x))
    place = torch.empty_like(y, dtype=torch.uint8)
    shape, function = _shape(x, y, kernel, 1), _function("max_pool", x)

    def compute(first: int, count: int) -> int:
        return function(ctypes.byref(shape), count, _at(x, first), _at(y, first), _at(place, first))

    _over_examples(compute, x.shape[0])
    return y, place


def max_pool_backward(x: Tensor, g: Tensor, place: Tensor, kernel: Kernel) -> Tensor:
    """Gradient of the input of :func:`max_pool`, [V, C, H, W], channels-last."""
    x, g = _channels_last(x), _channels_last(g)
    dx = torch.empty_like(x)
    shape, function = _shape(x, g, kernel, 1), _function("max_pool_backward", x)

    def compute(first: int, count: int) -> int:
        return function(
            ctypes.byref(shape), count, _at(g, first), _at(place, first), _at(dx, first)
        )

    _over_examples(compute, x.shape[0])
    return dx


def hyperbolic_tangent(x: Tensor) -> Tensor:
    """Of each number of a dense float32 tensor, within 1.4 units in the last place, laid out as it is."""
    y = torch.empty_like(x)
    library = _library()
    assert library is not None  # noqa: S101 the caller has asked

    def compute(first: int, count: int) -> int:
        return library.hyperbolic_tangent_float(
            ctypes.c_int64(count),
            ctypes.c_void_p(x.data_ptr() + first * x.element_size()),
            ctypes.c_void_p(y.data_ptr() + first * y.element_size()),
        )

    _over_examples(compute, x.numel())
    return y


def add_normal(total: Tensor, seed: int, deviation: float) -> None:
    """Add normal numbers to a dense float32 tensor: the same on every processor. Not for secrets."""
    library = _library()
    assert library is not None  # noqa: S101 the caller has asked
    library.add_normal_float(
        ctypes.c_uint64(seed),
        ctypes.c_int64(total.numel()),
        ctypes.c_float(deviation),
        ctypes.c_void_p(total.data_ptr()),
    )


def add_normals_of_words(
    radii: NDArray[np.uint64],
    angles: NDArray[np.uint64],
    deviation: float,
    first: Tensor,
    second: Tensor,
) -> None:
    """Add standard normal numbers by Box and Muller, times ``deviation``, rounded once; each pair is made of two words.

    They are within four units in the last place of a float64, the same on every processor, and made in a time that does not
    depend on the words.

    Args:
        radii: [N] dense.
        angles: [N] dense.
        deviation: what each number is multiplied with.
        first: [N] dense; one number of each pair is added.
        second: [N] or [N - 1] dense; the other one.
    """
    compute = _function("add_normals_of_words", first)

    def part(start: int, count: int) -> int:
        left = min(count, len(second) - start)
        of_words = (words.ctypes.data + start * words.itemsize for words in (radii, angles))
        return compute(count, *of_words, deviation, _at(first, start), left, _at(second, start))

    _over_examples(part, len(first))


def poisson_sample(seed: int, size: int, probability: float) -> NDArray[np.int64]:
    """Rising indices below ``size``, each with ``probability`` by itself. Not for secrets."""
    mean = size * probability
    room = int(mean + 6 * mean**0.5) + 16
    library = _library()
    assert library is not None  # noqa: S101 the caller has asked
    while True:
        out = torch.empty(room, dtype=torch.int64)
        count = library.poisson_sample(
            ctypes.c_uint64(seed),
            ctypes.c_int64(size),
            ctypes.c_double(probability),
            ctypes.c_int64(room),
            ctypes.c_void_p(out.data_ptr()),
        )
        if count <= room:
            return out.numpy()[:count]
        room = count  # one draw in a billion is so large


def _images(like: Tensor, *shape: int) -> Tensor:
    """As many as there are, [V, *shape], channels-last: no view, so that a model may write to it."""
    size, layout = (like.shape[0], *shape), torch.channels_last
    return torch.empty(size, dtype=like.dtype, device=like.device, memory_format=layout)


def _channels_last(x: Tensor) -> Tensor:
    """The same numbers, [V, H, W, C] in memory."""
    return x if _is_channels_last(x) else x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def _is_channels_last(x: Tensor) -> bool:
    # is_contiguous(memory_format=...) is true for sizes of one whatever their strides are, and so is
    # the memory then.
    return x.is_contiguous(memory_format=torch.channels_last)


def _shape(a: Tensor, g: Tensor, kernel: Kernel, views: int) -> _Shape:
    return _shape_of(a.shape[1:], g.shape[1:], kernel, views)


@lru_cache(maxsize=256)
def _shape_of(of_a: torch.Size, of_g: torch.Size, kernel: Kernel, views: int) -> _Shape:
    return _Shape(
        views,
        *of_a[1:],
        of_a[0],
        *of_g[1:],
        of_g[0],
        *kernel.size,
        *kernel.stride,
        *kernel.padding,
        *kernel.dilation,
    )


def _function(name: str, like: Tensor) -> Callable[..., int]:
    return _typed(name, like.dtype)


@cache
def _typed(name: str, dtype: torch.dtype) -> Callable[..., int]:
    function = getattr(_library(), f"{name}_{_TYPES[dtype]}")
    function.argtypes = [_ARGUMENTS[letter] for letter in _SIGNATURES[name]]
    return function


def _at(x: Tensor | None, first: int = 0) -> int | None:
    """Where row ``first`` of a dense tensor begins."""
    if x is None:
        return None
    return x.data_ptr() + (first * x.stride(0) * x.element_size() if first else 0)


def _over_examples(compute: Callable[[int, int], int], examples: int) -> None:
    """Examples in as many pieces as torch has threads; the kernels hold no lock."""
    pieces = min(torch.get_num_threads(), examples)
    if pieces <= 1:
        failed = compute(0, examples)
    else:
        bounds = [examples * piece // pieces for piece in range(pieces + 1)]
        counts = [b - a for a, b in itertools.pairwise(bounds)]
        failed = any([*_pool().map(compute, bounds[:-1], counts)])
    if failed:
        raise MemoryError("no memory for the scratch space of a kernel")


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="tan-kernels")


# Threads do not outlive a fork.
os.register_at_fork(after_in_child=_pool.cache_clear)
