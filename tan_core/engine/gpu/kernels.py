"""The kernels themselves and how they are launched. Imported where Triton is, and never without being asked for.

Images are channels-last in memory: [V, T, C]. A reader of Triton: ``tl.constexpr`` arguments are built into a
kernel, which is built anew for each of their values.
"""

# Arguments of a kernel are pointers and constants of its own language, and Triton is not everywhere.
# pyright: reportMissingImports=false, reportMissingParameterType=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

_POSITIONS = 64
"""Positions that a step of a sum takes."""

_LEAST_TILE = 16
"""Of a product on the matrix units."""

_MUCH_SHARED_MEMORY = 128 * 1024
"""Bytes: GPUs of data centres have more for each program, those of desks 99 KB."""


@triton.jit
def _weight_rows(
    a,
    g,
    rows,
    views,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    OH: tl.constexpr,
    OW: tl.constexpr,
    O: tl.constexpr,
    KH: tl.constexpr,
    KW: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    TILE_O: tl.constexpr,
    TILE_C: tl.constexpr,
    TILE_T: tl.constexpr,
):
    # Tiles of one example run side by side: they read the same images, which the cache then holds.
    tiles_c: tl.constexpr = (C + TILE_C - 1) // TILE_C
    tiles: tl.constexpr = (O + TILE_O - 1) // TILE_O * tiles_c * KH * KW
    tile = tl.program_id(0) % tiles
    example = (tl.program_id(0) // tiles).to(tl.int64)
    place = tile // tiles_c % (KH * KW)
    o = tile // (tiles_c * KH * KW) * TILE_O + tl.arange(0, TILE_O)
    c = tile % tiles_c * TILE_C + tl.arange(0, TILE_C)
    down = place // KW * DILATION_H - PAD_H
    right = place % KW * DILATION_W - PAD_W
    positions = views * OH * OW
    g += example * positions * O
    a += example * views * H * W * C
    total = tl.zeros((TILE_O, TILE_C), dtype=tl.float32)
    for first in range(0, positions, TILE_T):
        t = first + tl.arange(0, TILE_T)
        view = t // (OH * OW)
        row = t % (OH * OW) // OW * STRIDE_H + down
        column = t % OW * STRIDE_W + right
        is_one = t < positions
        is_inside = is_one & (row >= 0) & (row < H) & (column >= 0) & (column < W)
        of_g = tl.load(
            g + t[:, None] * O + o[None, :], mask=is_one[:, None] & (o < O)[None, :], other=0.0
        )
        of_a = tl.load(
            a + ((view * H + row) * W + column)[:, None] * C + c[None, :],
            mask=is_inside[:, None] & (c < C)[None, :],
            other=0.0,
        )
        total += tl.dot(tl.trans(of_g), of_a, input_precision="ieee")
    at = ((example * O + o)[:, None] * (KH * KW) + place) * C + c[None, :]
    tl.store(rows + at, total, mask=(o < O)[:, None] & (c < C)[None, :])


def weight_rows(
    a: Tensor,
    g: Tensor,
    rows: Tensor,
    views: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> None:
    """Fill ``rows``, [B, O, I]."""
    channels, height, width = a.shape[1:]
    outputs, out_height, out_width = g.shape[1:]
    tile_o, tile_c = (
        min(128, max(_LEAST_TILE, triton.next_power_of_2(count))) for count in (outputs, channels)
    )
    tiles = triton.cdiv(outputs, tile_o) * triton.cdiv(channels, tile_c) * size[0] * size[1]
    is_large = tile_o * tile_c > 64 * 64
    _weight_rows[(tiles * len(rows),)](
        a,
        g,
        rows,
        views,
        height,
        width,
        channels,
        out_height,
        out_width,
        outputs,
        *size,
        *stride,
        *padding,
        *dilation,
        tile_o,
        tile_c,
        _POSITIONS,
        num_warps=8 if is_large else 4,
        num_stages=3 if _has_much_shared_memory(a) else 2,
    )


def _has_much_shared_memory(x: Tensor) -> bool:
    """Whether three stages of the largest tiles fit beside what a program needs else."""
    if not x.is_cuda:
        return False
    of_block = torch.cuda.get_device_properties(x.device).shared_memory_per_block_optin
    return of_block > _MUCH_SHARED_MEMORY


@triton.jit
def _standardise(
    rows,
    unit,
    factor,
    is_free,
    gain,
    squared,
    outputs,
    I: tl.constexpr,
    ROOM: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    output = row % outputs
    i = tl.arange(0, ROOM)
    is_one = i < I
    value = tl.load(rows + row * I + i, mask=is_one, other=0.0)
    of_unit = tl.load(unit + output * I + i, mask=is_one, other=0.0)
    centred = tl.where(is_one, value - tl.sum(value, 0) / I, 0.0)
    # The unit has mean 0: its product with what is centred is that with the gradient itself.
    along = tl.sum(centred * of_unit, 0)
    taken = along * tl.load(is_free + output)
    left = (centred - taken * of_unit) * tl.load(factor + output)
    tl.store(rows + row * I + i, left, mask=is_one)
    tl.store(gain + row, along)
    tl.store(squared + row, tl.sum(left * left, 0))


def standardise(
    rows: Tensor, unit: Tensor, factor: Tensor, is_free: Tensor, gain: Tensor, squared: Tensor
) -> None:
    """Change ``rows`` [B, O, I] and fill ``gain`` and ``squared``, [B, O]."""
    examples, outputs, inputs = rows.shape
    room = triton.next_power_of_2(inputs)
    _standardise[(examples * outputs,)](
        rows,
        unit,
        factor,
        is_free,
        gain,
        squared,
        outputs,
        inputs,
        room,
        num_warps=8 if room > 1024 else 4,
    )


@triton.jit
def _of_channels(of_groups, G: tl.constexpr, EACH: tl.constexpr):
    """[G] -> [C]."""
    return tl.reshape(tl.broadcast_to(of_groups[:, None], (G, EACH)), (G * EACH,))


@triton.jit
def _tile_of(image, t, c, T: tl.constexpr, C: tl.constexpr, RECTIFIES: tl.constexpr):
    """[t, c] in float32, or its ReLU; zeros after the last position."""
    at = t[:, None] * C + c[None, :]
    tile = tl.load(image + at, mask=(t < T)[:, None], other=0.0).to(tl.float32)
    if RECTIFIES:
        tile = tl.where(tile < 0, 0.0, tile)  # what is no number stays none
    return tile


@triton.jit
def _group_norm(
    x,
    scale,
    shift,
    y,
    mean,
    rate,
    epsilon,
    T: tl.constexpr,
    C: tl.constexpr,
    G: tl.constexpr,
    TILE_T: tl.constexpr,
    HAS_SCALE: tl.constexpr,
    HAS_SHIFT: tl.constexpr,
    RECTIFIES: tl.constexpr,
):
    # One program for a view: its second and third reading find the image in the cache.
    view = tl.program_id(0).to(tl.int64)
    EACH: tl.constexpr = C // G
    c = tl.arange(0, C)
    x += view * T * C
    y += view * T * C
    total = tl.zeros((C,), dtype=tl.float32)
    for first in range(0, T, TILE_T):
        t = first + tl.arange(0, TILE_T)
        total += tl.sum(_tile_of(x, t, c, T, C, RECTIFIES), 0)
    mean_G = tl.sum(tl.reshape(total, (G, EACH)), 1) / (T * EACH)
    mean_C = _of_channels(mean_G, G, EACH)
    # Around the mean: squares of what is far from 0 would lose the digits that differ.
    total = tl.zeros((C,), dtype=tl.float32)
    for first in range(0, T, TILE_T):
        t = first + tl.arange(0, TILE_T)
        tile = _tile_of(x, t, c, T, C, RECTIFIES)
        apart = tl.where((t < T)[:, None], tile - mean_C[None, :], 0.0)
        total += tl.sum(apart * apart, 0)
    variance_G = tl.sum(tl.reshape(total, (G, EACH)), 1) / (T * EACH)
    rate_G = 1 / tl.sqrt(variance_G + epsilon)
    rate_C = _of_channels(rate_G, G, EACH)
    times = rate_C
    if HAS_SCALE:
        times = rate_C * tl.load(scale + c)
    plus = tl.zeros((C,), dtype=tl.float32)
    if HAS_SHIFT:
        plus = tl.load(shift + c)
    for first in range(0, T, TILE_T):
        t = first + tl.arange(0, TILE_T)
        at = t[:, None] * C + c[None, :]
        tile = _tile_of(x, t, c, T, C, RECTIFIES)
        out = (tile - mean_C[None, :]) * times[None, :] + plus[None, :]
        tl.store(y + at, out.to(y.dtype.element_ty), mask=(t < T)[:, None])
    groups = tl.arange(0, G)
    tl.store(mean + view * G + groups, mean_G)
    tl.store(rate + view * G + groups, rate_G)


def group_norm(
    x: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    y: Tensor,
    mean: Tensor,
    rate: Tensor,
    epsilon: float,
    *,
    rectifies: bool,
) -> None:
    """Fill ``y``, like ``x``, and ``mean`` and ``rate``, [V, G]."""
    channels, groups = x.shape[1], mean.shape[1]
    positions = x.shape[2] * x.shape[3]
    tile = _tile(positions, channels)
    _group_norm[(len(x),)](
        x,
        mean if scale is None else scale,
        mean if shift is None else shift,
        y,
        mean,
        rate,
        epsilon,
        positions,
        channels,
        groups,
        tile,
        scale is not None,
        shift is not None,
        rectifies,
        num_warps=_warps(tile * channels),
    )


@triton.jit
def _group_norm_backward(
    g,
    x,
    mean,
    rate,
    scale,
    dx,
    of_scale,
    of_shift,
    T: tl.constexpr,
    C: tl.constexpr,
    G: tl.constexpr,
    TILE_T: tl.constexpr,
    HAS_SCALE: tl.constexpr,
    RECTIFIES: tl.constexpr,
):
    view = tl.program_id(0).to(tl.int64)
    EACH: tl.constexpr = C // G
    c = tl.arange(0, C)
    groups = tl.arange(0, G)
    x += view * T * C
    g += view * T * C
    dx += view * T * C
    mean_C = _of_channels(tl.load(mean + view * G + groups), G, EACH)
    rate_C = _of_channels(tl.load(rate + view * G + groups), G, EACH)
    along = tl.zeros((C,), dtype=tl.float32)
    total = tl.zeros((C,), dtype=tl.float32)
    for first in range(0, T, TILE_T):
        t = first + tl.arange(0, TILE_T)
        of_x, of_g = _tile_of(x, t, c, T, C, RECTIFIES), _tile_of(g, t, c, T, C, False)
        along += tl.sum(of_g * (of_x - mean_C[None, :]), 0)
        total += tl.sum(of_g, 0)
    along *= rate_C
    tl.store(of_scale + view * C + c, along)
    tl.store(of_shift + view * C + c, total)
    times = tl.full((C,), 1.0, dtype=tl.float32)
    if HAS_SCALE:
        times = tl.load(scale + c)
    num: tl.constexpr = T * EACH
    along_C = _of_channels(tl.sum(tl.reshape(along * times, (G, EACH)), 1) / num, G, EACH)
    total_C = _of_channels(tl.sum(tl.reshape(total * times, (G, EACH)), 1) / num, G, EACH)
    for first in range(0, T, TILE_T):
        t = first + tl.arange(0, TILE_T)
        at = t[:, None] * C + c[None, :]
        of_x, of_g = _tile_of(x, t, c, T, C, RECTIFIES), _tile_of(g, t, c, T, C, False)
        scaled = (of_x - mean_C[None, :]) * rate_C[None, :]
        back = of_g * times[None, :] - total_C[None, :] - scaled * along_C[None, :]
        if RECTIFIES:
            back = tl.where(of_x == 0, 0.0, back)  # what the ReLU has stopped is 0
        tl.store(dx + at, (back * rate_C[None, :]).to(dx.dtype.element_ty), mask=(t < T)[:, None])


def group_norm_backward(
    g: Tensor,
    x: Tensor,
    mean: Tensor,
    rate: Tensor,
    scale: Tensor | None,
    dx: Tensor,
    of_scale: Tensor,
    of_shift: Tensor,
    *,
    rectifies: bool,
) -> None:
    """Fill ``dx``, like ``x``, and ``of_scale`` and ``of_shift``, [V, C]."""
    channels, positions = x.shape[1], x.shape[2] * x.shape[3]
    tile = _tile(positions, channels)
    _group_norm_backward[(len(x),)](
        g,
        x,
        mean,
        rate,
        mean if scale is None else scale,
        dx,
        of_scale,
        of_shift,
        positions,
        channels,
        mean.shape[1],
        tile,
        scale is not None,
        rectifies,
        num_warps=_warps(tile * channels),
    )


def _tile(positions: int, channels: int) -> int:
    """Positions of a tile of at most 8192 numbers."""
    return min(triton.next_power_of_2(positions), max(1, 8192 // channels))


def _warps(numbers: int) -> int:
    return 8 if numbers > 2048 else 4
