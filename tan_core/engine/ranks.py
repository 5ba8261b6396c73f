"""Whether the processes that share a run are its ranks: each another one, all on one draw and with one model."""

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray

from tan_core.engine.frozen import is_close
from tan_core.engine.noisy_sum import AllReduce
from tan_core.errors import ParameterError

AGREED = 64
"""Units in draws that were the same, or left out of them: of unlike keys each is so by chance in half of the cases at most."""

_DIGEST_BYTES = 16


def check_ranks(
    all_reduce: AllReduce,
    drawn: NDArray[np.int64],
    *,
    step: int,
    rank: int,
    world_size: int,
    weights: tuple[float, float],
    device: torch.device,
) -> None:
    """Refuse ranks that are two of one number, that draw by unlike keys or at unlike steps, or have unlike models.

    Of unlike draws each rank takes its share, so that a record may be in several shares: it would move the sum by a clipping norm
    in each. Of two ranks of one number both would add one share of the noise, and nobody another. And of unlike models the sum of all
    would be the gradient of none.

    Args:
        all_reduce: as the trainer has it.
        drawn: the step's draw, as this rank has it.
        step: steps taken before it.
        rank: of this process.
        world_size: of all.
        weights: in two numbers, as :func:`~tan_core.engine.frozen.numbers_of` has them.
        device: where sums are between ranks.

    Raises:
        ParameterError: on every rank; its field is rank, randomness or model.
    """
    digest = hashlib.blake2b(
        drawn.tobytes(), digest_size=_DIGEST_BYTES, salt=step.to_bytes(8, "little")
    )
    own = torch.tensor([*digest.digest(), *[0] * world_size, *weights], dtype=torch.float64)
    own[_DIGEST_BYTES + rank] = 1
    total = own.to(device, copy=True)
    pending = all_reduce(total)
    if pending is not None:
        pending.wait()
    of_draws, of_ranks, of_weights = total.cpu().split([_DIGEST_BYTES, world_size, len(weights)])
    if not torch.equal(of_ranks, torch.ones_like(of_ranks)):
        raise ParameterError(
            f"rank must be another one in each of {world_size} processes, from 0; so many say each: {of_ranks.int().tolist()}, "
            "by what all_reduce sums",
            field="rank",
        )
    if not torch.equal(of_draws, world_size * own[:_DIGEST_BYTES]):
        raise ParameterError(
            "randomness must be equal on all ranks, and all must be at one step: this rank has drawn another batch than another one, "
            "so that one record would count several times; give all of them one key (or seed) and one checkpoint",
            field="randomness",
        )
    length, along = (of_weights / world_size).tolist()
    if not is_close(weights, (length, along)):
        raise ParameterError(
            "the model must be equal on all ranks, and this one has other weights than another one: draw them from one seed, or load "
            "them from one file, before its trainer is made",
            field="model",
        )
