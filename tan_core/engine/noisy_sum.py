"""The clipped sum and its noise, over the ranks, a piece at a time: what is final is on its way while the rest is made.

Layer after layer the last microbatch of a step makes the clipped sum final. So the sum is cut into pieces of
whole parameters, in the model's own order, and each is added to its noise and sent as soon as all of it is there. All
ranks send the same pieces in the same order, those that drew nothing too.

Noise comes last and in more digits than it is told in: the noisy sum is rounded once, when it is whole. A sum
that goes on after its noise was rounded would tell by its last bits which numbers it was made of.
"""

# Shape legend: P = parameters, flattened.
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

PIECE = 2**18
"""Numbers, at least; 2 MB in float64. Less would be latency, more would end after the work that it could run beside."""


class Pending(Protocol):
    """A sum on its way, as ``torch.distributed`` returns it."""

    def wait(self) -> Any:
        """Until it is there, or what is queued on the device follows it; raises where a rank was lost."""
        ...


AllReduce = Callable[[Tensor], Pending | None]
"""Sums a tensor over all ranks in place: when it returns, or else when what it returns has been waited for."""


class Pieces:
    """How a vector of parameters is cut.

    Args:
        sizes: of the parameters in their order, by name.
        at_least: numbers of a piece; the last one may have fewer.
    """

    def __init__(self, sizes: Sequence[tuple[str, int]], at_least: int = PIECE) -> None:
        self.of: dict[str, int] = {}
        """Which piece a parameter is in; one without numbers is in none."""
        self.counts: list[int] = []
        self.bounds: list[slice] = []
        start = end = 0
        for name, size in sizes:
            if size == 0:
                continue
            if start == end:
                self.counts.append(0)
            self.of[name] = len(self.counts) - 1
            self.counts[-1] += 1
            end += size
            if end - start >= at_least:
                self.bounds.append(slice(start, end))
                start = end
        if start < end:
            self.bounds.append(slice(start, end))


class NoisySum:
    """One clipped sum with its noise, over the ranks where there are more.

    Args:
        total_P: this rank's part; when all is finished the noisy sum. What is sent must no longer change.
        noise: this rank's part of the noise, [P], asked for once, when a piece is complete: where it is made ahead, it is waited for
            no sooner. It is written to, and its type is the one that sums are made in.
        pieces: of both; the same on all ranks.
        all_reduce: how a piece is summed; None: this rank is alone.
        rounded_to: what the noisy sum is rounded to, once.
    """

    def __init__(
        self,
        total_P: Tensor,
        noise: Callable[[], Tensor],
        pieces: Pieces,
        all_reduce: AllReduce | None,
        *,
        rounded_to: torch.dtype,
    ) -> None:
        self._total_P, self._noise, self._pieces = total_P, noise, pieces
        self._all_reduce, self._rounded_to = all_reduce, rounded_to
        self._missing = list(pieces.counts)
        self._pending: list[Pending] = []
        self._num_sent = 0

    @cached_property
    def _noisy_P(self) -> Tensor:  # noqa: N802 - a vector
        return self._noise()

    def ready(self, name: str) -> None:
        """A parameter has its part; what is complete is sent, in order.

        Raises:
            RuntimeError: its piece was complete without it, and may be on its way.
        """
        piece = self._pieces.of.get(name)
        if piece is None:
            return
        if self._missing[piece] == 0:
            raise RuntimeError(f"parameter {name!r} was final before")
        self._missing[piece] -= 1
        while self._num_sent < len(self._missing) and self._missing[self._num_sent] == 0:
            self._send()

    def finish(self) -> None:
        """Send what is left, wait for all and round it."""
        while self._num_sent < len(self._missing):
            self._send()
        for pending in self._pending:
            pending.wait()
        whole = self._total_P.dtype == self._rounded_to
        self._total_P.copy_(self._noisy_P if whole else self._noisy_P.to(self._rounded_to))

    def _send(self) -> None:
        bound = self._pieces.bounds[self._num_sent]
        self._num_sent += 1
        piece = self._noisy_P[bound].add_(self._total_P[bound])
        found = None if self._all_reduce is None else self._all_reduce(piece)
        if found is not None:
            self._pending.append(found)
