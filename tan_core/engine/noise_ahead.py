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

    def begin(self, make: Callable[[], Tensor]) -> None:
        """Begin to make it, in another thread, without gradients."""
        self._begun = self._pool.submit(torch.no_grad()(make))

    def take(self) -> Tensor:
        """What was begun, once; wait for it where it is not there yet."""
        begun, self._begun = self._begun, None
        if begun is None:
            raise RuntimeError("no noise was begun")
        return begun.result()
