"""Records that are read by index: every step is the one that is taken with all of them in memory."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from tan_core.data import Records
from tan_core.data.records import write
from tan_core.engine.inputs import ByIndex, as_indices, as_inputs, as_tensor
from tan_core.errors import ParameterError
from tan_core.testing.tiny import tiny_images
from tests.support.image_files import png
from tests.unit.tan_core.engine.support import SHAPE, make_trainer, run, vector


@pytest.fixture
def records(tmp_path: Path) -> Records:
    inputs, labels = tiny_images()
    write(tmp_path, lambda _: None, [png(image[0]) for image in inputs], labels)
    return Records(tmp_path, SHAPE, "made", (Records, ()))


@pytest.mark.parametrize("microbatch_size", [1, 4, 256])
@pytest.mark.parametrize("config", [{}, {"augmentation_multiplicity": 2, "crop_padding": 1}])
def test_a_run_is_the_same_wherever_its_records_are(
    records: Records, microbatch_size: int, config: dict
) -> None:
    settings = {"microbatch_size": microbatch_size, "config": config}
    here, there = make_trainer(**settings), make_trainer(inputs=records, **settings)

    for _ in range(3):
        here.step()
        there.step()

    for name, weight in here.released_weights().items():
        assert torch.equal(weight, there.released_weights()[name])
    inputs, labels = tiny_images()
    assert there.evaluate(records, labels) == here.evaluate(inputs, labels)


def test_what_was_expected_is_what_comes_and_so_is_what_was_not(records: Records) -> None:
    inputs = as_inputs(records)
    assert isinstance(inputs, ByIndex)
    expected = torch.from_numpy(tiny_images()[0])

    for foretold in (torch.tensor([3, 1]), torch.tensor([4]), None):
        if foretold is not None:
            inputs.expect(foretold)
        assert torch.equal(inputs.index_select(0, torch.tensor([3, 1])), expected[[3, 1]])
    assert torch.equal(inputs[2:5], expected[2:5])
    with pytest.raises(IndexError, match="dimension 0"):
        inputs.index_select(1, torch.tensor([0]))


def test_a_record_that_cannot_be_read_ends_the_step(records: Records, tmp_path: Path) -> None:
    content = (tmp_path / "images").read_bytes()
    with (tmp_path / "images").open("r+b") as stream:
        stream.write(bytes(len(content)))

    with pytest.raises(ValueError, match=r"made, record \d+: not a readable image"):
        make_trainer(inputs=records).step()


ARRAYS = {
    "lists": lambda x: x.tolist(),
    "rows": list,
    "tuples": lambda x: tuple(map(tuple, x.tolist())) if x.ndim > 1 else tuple(x.tolist()),
    "backwards": lambda x: x[::-1].copy()[::-1],
    "columns-backwards": lambda x: x[..., ::-1].copy()[..., ::-1],
    "other-byte-order": lambda x: x.astype(x.dtype.newbyteorder()),
    "fields": lambda x: np.rec.fromarrays([x, x.astype(np.int8)])["f0"],
    "strided": lambda x: np.repeat(x, 2, axis=0)[::2],
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "tensor": lambda x: torch.from_numpy(x.copy()),
}


@pytest.mark.parametrize("change", ARRAYS.values(), ids=ARRAYS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8], ids=str)
def test_numbers_are_read_however_they_lie(change, dtype: type) -> None:
    values = (10 * np.random.default_rng(0).normal(size=(6, 4))).astype(np.int8).astype(dtype)

    for given in (values, values[:, 0]):
        found = as_tensor(change(given))
        assert torch.equal(found, torch.from_numpy(given.copy()).to(found.dtype))
        if dtype != np.float32:  # a list of floats is one of Python's, of 64 bits
            assert found.is_floating_point() == (dtype == np.float64)


def test_memory_is_shared_where_torch_can() -> None:
    values = np.zeros((3, 2), np.float32)

    as_tensor(values)[1, 1] = 7

    assert values[1, 1] == 7


def test_a_run_is_the_same_whatever_its_data_are_written_in() -> None:
    features = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    labels = tiny_images()[1]
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 3)

    def end(inputs, labels) -> torch.Tensor:
        trainer = make_trainer(model=copy.deepcopy(model), inputs=inputs, labels=labels)
        accuracy = run(trainer, 3).evaluate(inputs, labels)
        return torch.cat([vector(trainer), torch.tensor([accuracy])])

    expected = end(features, labels)
    for name in ("lists", "backwards", "other-byte-order"):
        found = end(ARRAYS[name](features), ARRAYS[name](labels))
        assert torch.allclose(found, expected, atol=1e-5)


NO_NUMBERS = {
    "ragged": [[1.0, 2.0], [3.0]],
    "words": [["a", "b"], ["c", "d"]],
    "word": "abcd",
    "objects": np.array([[1.0, None]], dtype=object),
    "nothing": None,
    "complex": np.ones((2, 2), complex),
    "complex-tensor": torch.ones(2, 2, dtype=torch.complex64),
    "wide": np.ones((2, 2), np.longdouble),
    "dates": np.array(["2026-01-01"], dtype="datetime64[D]"),
    "sparse": torch.ones(2, 2).to_sparse(),
    "number": np.float32(3),
    "no-dimension": torch.tensor(3.0),
}


@pytest.mark.parametrize("values", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_what_is_no_block_of_real_numbers_is_refused_by_field(values) -> None:
    if np.dtype(np.longdouble).itemsize == 8 and getattr(values, "dtype", None) == np.longdouble:
        pytest.skip("this platform has no wider float")

    for field, read in (
        ("inputs", as_tensor),
        ("labels", lambda x: as_indices(x, field="labels")),
    ):
        with pytest.raises(ParameterError, match=f"^{field} must be") as refused:
            read(values)
        assert refused.value.field == field


def test_numbers_under_a_mask_are_refused_and_whole_masked_arrays_are_not() -> None:
    values = np.ma.masked_array(np.arange(4.0), mask=[False, True, False, False])

    with pytest.raises(ParameterError, match="inputs must hold a number everywhere") as error:
        as_tensor(values)

    assert error.value.field == "inputs"
    assert as_tensor(np.ma.masked_array(np.arange(4.0))).tolist() == [0, 1, 2, 3]
    assert as_tensor(values.filled(7)).tolist() == [0, 7, 2, 3]


def test_values_of_the_data_are_not_told() -> None:
    """A message may be read by others than the data."""
    for values in ([[48151.0], [48151.0, 1.0]], [["48151"]], np.array([[48151.0, None]])):
        with pytest.raises(ParameterError) as refused:
            as_tensor(values)
        assert "48151" not in str(refused.value)


def test_a_split_of_lists_that_is_empty_is_called_so() -> None:
    with pytest.raises(ParameterError, match="empty split"):
        make_trainer().evaluate([], [])


def test_no_rows_are_none(records: Records) -> None:
    assert records.take(np.array([], dtype=np.intp)).shape == (0, *SHAPE)
