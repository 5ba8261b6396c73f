"""What the trainer reads of a split: its records, or what a frozen extractor makes of them."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from numpy.typing import NDArray

from tan_core.data import Progressed, Records, Split, Storage, load_features, load_split
from tan_core.data.part import Role
from tan_core.data.storage import LOCAL
from tan_core.engine.inputs import as_floats, as_tensor
from tan_core.errors import ModelError
from tan_core.models.extractor import Extractor
from tan_core.wire import DatasetRef

_LARGEST: Final = torch.finfo(torch.float16).max
"""A feature beyond it would be infinite, and its record never be learnt from."""

Compute = Callable[[Extractor, NDArray[Any] | Records, range], Iterable[NDArray[Any]]]
"""As :func:`features_of`, in blocks of any number of records."""


def features_of(
    extractor: Extractor,
    records: NDArray[Any] | Records,
    rows: range,
    *,
    device: str | torch.device = "cpu",
) -> Iterator[NDArray[Any]]:
    """What an extractor makes of records, in blocks of as many as it should get at once.

    Features are float16: half the storage and half the memory to read at each step. Rounding moves a
    feature by one part in 2,000, and nothing that is trained on them by more than chance does. What is
    beyond 65,504 becomes that.

    Args:
        extractor: on ``device``.
        records: [N, ...], as a split has them.
        rows: of which, one after the other.
        device: where to compute.

    Raises:
        ModelError: an extractor makes features of more or fewer records than it gets.
    """
    for start in rows[:: extractor.records_at_once]:
        block = records[start : min(start + extractor.records_at_once, rows.stop)]
        with torch.inference_mode():
            features = extractor(as_floats(as_tensor(block).to(device), torch.float32))
        # Else labels would stand beside the features of other records.
        if len(features) != len(block):
            raise ModelError(f"features of {len(features)} records were made of {len(block)}")
        yield features.clamp(-_LARGEST, _LARGEST).to("cpu", torch.float16).numpy()


def load_inputs(
    ref: DatasetRef,
    split: Role,
    extractor: Extractor | None,
    *,
    cache_dir: Path | None = None,
    storage: Storage = LOCAL,
    device: str | torch.device = "cpu",
    compute: Compute | None = None,
    progressed: Progressed | None = None,
    waiting: Callable[[], None] = lambda: None,
) -> Split:
    """One split of a registered dataset, as the head behind ``extractor`` reads it.

    Args:
        ref: the dataset as it was registered.
        split: train, validation or test.
        extractor: :func:`tan_core.models.extractor_of` the model; None: the records themselves.
        cache_dir: where features are kept for the next reader, as private as the dataset. None:
            compute them every time.
        storage: where the dataset may lie, and where images that would not fit into memory are kept.
        device: where to compute; the extractor is there.
        compute: who computes; None: this process, by :func:`features_of`.
        progressed: told how many features are made of how many; what it raises ends the work.
        waiting: called now and then while another process computes them; what it raises ends the wait.

    Raises:
        DatasetError: the data cannot be read or the features cannot be kept.
    """
    if extractor is None:
        return load_split(ref, split, storage=storage)
    return load_features(
        ref,
        split,
        fingerprint=extractor.fingerprint,
        extract=partial(compute or partial(features_of, device=device), extractor),
        cache_dir=cache_dir,
        storage=storage,
        progressed=progressed,
        waiting=waiting,
    )
