"""Which records are train, validation and test. A function of the counts and a seed, nothing else."""

import numpy as np
from numpy.typing import NDArray

from tan_core.data.part import Parts, Role
from tan_core.errors import DatasetError

TEST_FRACTION = 0.2
VALIDATION_FRACTION = 0.1

Indices = NDArray[np.intp]


def split_indices(parts: Parts, *, split_seed: int) -> dict[Role, tuple[Role, Indices]]:
    """For every split, the stored part it is read from and the records in it, in stored order.

    A split that is stored is taken whole. Where none is stored, 20 % of the train part is cut for
    test, and then 10 % of the rest for validation.
    """
    rest: Indices = np.arange(len(parts["train"].labels))
    splits: dict[Role, tuple[Role, Indices]] = {}
    # Test is cut first, so that it stays the same whether or not a validation part is stored.
    cuts: list[tuple[Role, float]] = [("test", TEST_FRACTION), ("validation", VALIDATION_FRACTION)]
    for stream, (role, fraction) in enumerate(cuts):
        if role in parts:
            splits[role] = (role, np.arange(len(parts[role].labels)))
        else:
            rest, cut = _cut(rest, fraction, seed=split_seed, stream=stream)
            splits[role] = ("train", cut)
    splits["train"] = ("train", rest)
    for role, (_, indices) in splits.items():
        if len(indices) == 0:
            raise DatasetError(
                f"{len(parts['train'].labels)} train records are too few to cut a {role} split",
                field="path",
            )
    return splits


def _cut(indices: Indices, fraction: float, *, seed: int, stream: int) -> tuple[Indices, Indices]:
    # Philox's raw stream is fixed for ever; numpy's permutation may change between versions.
    draws = np.random.Philox(key=[seed, stream]).random_raw(len(indices))
    num_cut = int(len(indices) * fraction)
    is_cut = np.zeros(len(indices), dtype=bool)
    is_cut[np.argsort(draws, kind="stable")[:num_cut]] = True
    return indices[~is_cut], indices[is_cut]
