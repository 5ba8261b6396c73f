"""Memory: what a process has freed stays with it, and how many views a GPU holds at once."""

import copy
import ctypes
import sys
from collections.abc import Hashable, Sequence
from typing import Final

import torch
from torch import nn

from tan_core.engine.bookkeeping import Books
from tan_core.engine.gradients import clipped_sum
from tan_core.engine.probe import fed
from tan_core.engine.verdicts import architecture
from tan_core.spec.train import Precision

_MMAP_MAX: Final = -4
_TRIM_THRESHOLD: Final = -1
_NEVER: Final = 2**31 - 1

_PROBED: Final = 64
"""Views whose memory is measured, where as many fit."""
_ENOUGH_VIEWS: Final = 256
"""Of fewer a GPU is idle for some of the time: the memory that is kept free is given up for as many."""
_MOST_VIEWS: Final = 8192
"""Of more a GPU computes no faster."""
_MOST_REMEMBERED: Final = 256
"""Architectures."""
_FILLED: Final = 0.8
"""Of what is free, at most, whatever a GPU would do without."""
_KEPT_FREE: Final = 0.5
"""Of what is free: for an optimiser's state, an audit, pieces that no allocation fits into, and another trial's probe."""


def keep_freed_memory() -> bool:
    """Stop the C library from giving large blocks back to the system; whether it could be asked.

    Every step asks for the same large tensors again. glibc maps each above 32 MiB anew and unmaps it
    when it is freed, and the system clears all its pages in between: a few percent to a third of a step.
    For processes that do nothing but train: what they once needed they hold until they end.

    Example:
        >>> keep_freed_memory() in (True, False)
        True
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return mallopt is not None and all(
        mallopt(name, value) == 1 for name, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER))
    )


def views_at_once(
    model: nn.Module,
    shape: Sequence[int],
    *,
    views: int = 1,
    precision: Precision = Precision.FLOAT32,
    share: float = 1.0,
    device: str | torch.device = "cuda",
) -> int:
    """How many views a GPU holds at once: a power of two up to 8,192; of few it is idle most of the time.

    A copy of the model makes a clipped sum of random inputs there, so this reads no data; half of the memory
    that is free now is kept free, or less where it would not hold 256 otherwise. What a view takes is measured
    once in a process for an :func:`~tan_core.engine.verdicts.architecture`.

    Args:
        model: passes :func:`~tan_core.engine.gradients.check_model`.
        shape: of one view.
        views: K of each example.
        precision: of the passes.
        share: of the memory that is free now, where others are about to use it too.
        device: a GPU.

    Raises:
        RuntimeError: the model does not run on such views, or one example's do not fit.
    """
    place = torch.device(device)
    described = architecture(model)
    key = (described, tuple(shape), views, precision, place)
    taken = _taken.get(key)
    if taken is None:
        taken = _bytes_of_a_view(model, shape, views, precision, place)
        if described is not None:
            if len(_taken) >= _MOST_REMEMBERED:
                _taken.clear()
            _taken[key] = taken
    free, _ = torch.cuda.mem_get_info(place)
    return fitting_views(share * free, taken)


def fitting_views(free: float, taken: float) -> int:
    """How many views to have at once in so much free memory of a GPU, of which each takes so much.

    Example:
        >>> [fitting_views(2.0**34, taken) for taken in (1e6, 1e7, 4e7, 2e8, 1e11)]
        [8192, 512, 256, 32, 1]
    """
    most = (1 - _KEPT_FREE) * free / taken
    if most < _ENOUGH_VIEWS <= free / taken * _FILLED:
        return _ENOUGH_VIEWS
    return min(_MOST_VIEWS, 1 << max(0, int(most).bit_length() - 1))


_taken: dict[Hashable, float] = {}


@torch.no_grad()
def _bytes_of_a_view(
    model: nn.Module, shape: Sequence[int], views: int, precision: Precision, device: torch.device
) -> float:
    probe = copy.deepcopy(model).to(device)
    books = Books(probe, precision)
    examples = max(1, _PROBED // views)
    while (taken := _peak(books, shape, views, examples, device)) is None:
        torch.cuda.empty_cache()
        examples //= 2
    # What the probe held would count as taken by others.
    torch.cuda.empty_cache()
    return max(1, taken) / (examples * views)


def _peak(
    books: Books, shape: Sequence[int], views: int, examples: int, device: torch.device
) -> int | None:
    """Bytes that so many examples take; None where they do not fit, and fewer might."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    try:
        inputs = torch.randn(examples * views, *shape, device=device).to(fed(books.model))
        labels = torch.zeros(examples, dtype=torch.int64, device=device)
        clipped_sum(books, inputs, labels, clip_norm=1.0, views=views, microbatch_size=len(inputs))
    except torch.OutOfMemoryError:
        if examples == 1:
            raise
        return None
    return torch.cuda.max_memory_allocated(device) - before
