"""Records that are read by index: every step is the one that is taken with all of them in memory."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tan_core.data import Records
from tan_core.data.records import write
from tan_core.engine.inputs import ByIndex, as_inputs
from tests.support.image_files import png
from tests.unit.tan_core.engine.support import SHAPE, make_data, make_trainer


@pytest.fixture
def records(tmp_path: Path) -> Records:
    inputs, labels = make_data()
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
    inputs, labels = make_data()
    assert there.evaluate(records, labels) == here.evaluate(inputs, labels)


def test_what_was_expected_is_what_comes_and_so_is_what_was_not(records: Records) -> None:
    inputs = as_inputs(records)
    assert isinstance(inputs, ByIndex)
    expected = torch.from_numpy(make_data()[0])

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


def test_no_rows_are_none(records: Records) -> None:
    assert records.take(np.array([], dtype=np.intp)).shape == (0, *SHAPE)
