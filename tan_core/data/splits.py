"""Which records are train, validation and test. A function of the counts and a seed, nothing else."""

import numpy as np
from numpy.typing import NDArray

from tan_core.data.part import Members, Parts, Role
from tan_core.data.users import bounded, cut_users
from tan_core.errors import DatasetError

TEST_FRACTION = 0.2
VALIDATION_FRACTION = 0.1

Indices = NDArray[np.intp]
SplitIndices = dict[Role, tuple[Role, Indices]]
"""For every split, the stored part it is read from and the records in it, in stored order."""


def split_indices(parts: Parts, *, split_seed: int, records_per_unit: int = 1) -> SplitIndices:
    """Where each split is.

    A split that is stored is taken whole. Where none is stored, 20 % of the train part is cut for
    test, and then 10 % of the rest for validation: of the records, or of the users, each with all of its
    records. Of each user at most ``records_per_unit`` records stay in train.
    """
    users = parts["train"].users
    rest: Indices = np.arange(len(parts["train"].labels))
    splits: SplitIndices = {}
    # Test is cut first, so that it stays the same whether or not a validation part is stored.
    cuts: list[tuple[Role, float]] = [("test", TEST_FRACTION), ("validation", VALIDATION_FRACTION)]
    for stream, (role, fraction) in enumerate(cuts):
        if role in parts:
            splits[role] = (role, np.arange(len(parts[role].labels)))
        else:
            rest, cut = _cut(users, rest, role, fraction, seed=split_seed, stream=stream)
            splits[role] = ("train", cut)
    if users is not None:
        rest = bounded(users, rest, most=records_per_unit, seed=split_seed)
    splits["train"] = ("train", rest)
    for role, (_, indices) in splits.items():
        if len(indices) == 0:
            found = len(parts["train"].labels) if users is None else len(users.names)
            raise DatasetError(
                f"{found} train {'records' if users is None else 'users'} are too few to cut a "
                f"{role} split",
                field="path",
            )
    return splits


def _cut(
    users: Members | None, indices: Indices, role: Role, fraction: float, *, seed: int, stream: int
) -> tuple[Indices, Indices]:
    if users is not None:
        return cut_users(users, indices, fraction, seed=seed, purpose=role)
    # Philox's raw stream is fixed for ever; numpy's permutation may change between versions.
    draws = np.random.Philox(key=[seed, stream]).random_raw(len(indices))
    num_cut = int(len(indices) * fraction)
    is_cut = np.zeros(len(indices), dtype=bool)
    is_cut[np.argsort(draws, kind="stable")[:num_cut]] = True
    return indices[~is_cut], indices[is_cut]
