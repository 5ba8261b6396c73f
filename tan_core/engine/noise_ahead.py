"""The noise of a step, made by the processor while a GPU computes what it is added to."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor


class NoiseAhead:
    """One vector at a time; a copy of it, or one from a pickle, has none begun."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="noise")
        self._begun: Future[Tensor] | None = None

    def __reduce__(self) -> tuple[type["NoiseAhead"], tuple[()]]:
        return NoiseAhead, ()

    def begin(self, add_noise: Callable[[Tensor], object], like: Tensor) -> None:
        """Begin to make what ``add_noise`` adds to a vector of zeros, on the CPU, as long as ``like``; in another thread."""
        zeros = torch.zeros(like.shape, dtype=like.dtype, pin_memory=like.is_cuda)
        self._begun = self._pool.submit(_added, add_noise, zeros)

    def add_to(self, total_P: Tensor) -> None:
        """Add what was begun, once; wait for it where it is not there yet."""
        begun, self._begun = self._begun, None
        if begun is None:
            raise RuntimeError("no noise was begun")
        total_P.add_(begun.result().to(total_P.device, non_blocking=True))


def _added(add_noise: Callable[[Tensor], object], zeros: Tensor) -> Tensor:
    with torch.no_grad():
        add_noise(zeros)
    return zeros
