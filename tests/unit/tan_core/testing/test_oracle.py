import pytest
import torch
from torch import nn

from tan_core.testing.oracle import clipped, example_gradients


def test_a_gradient_that_is_known_in_closed_form() -> None:
    """Of cross-entropy over a linear layer that starts at zero: (softmax - onehot) x."""
    model = nn.Linear(2, 2, bias=False).double()
    nn.init.zeros_(model.weight)
    inputs = torch.tensor([[3.0, 4.0], [1.0, 0.0]], dtype=torch.float64)

    rows = example_gradients(model, inputs, torch.tensor([0, 1]))

    assert rows.tolist() == [[-1.5, -2.0, 1.5, 2.0], [0.5, 0.0, -0.5, 0.0]]
    assert float(clipped(rows[:1], 1.0).norm()) == pytest.approx(1.0)
    assert torch.equal(clipped(rows[1:], 1.0), rows[1])


def test_an_empty_batch_has_no_rows_of_the_model_s_own_type() -> None:
    model = nn.Linear(2, 3).double()

    rows = example_gradients(
        model, torch.zeros(0, 2).double(), torch.zeros(0, dtype=torch.long), views=4
    )

    assert (rows.shape, rows.dtype) == ((0, 9), torch.float64)
    assert torch.equal(clipped(rows, 1.0), torch.zeros(9, dtype=torch.float64))


def test_views_that_do_not_come_out_even_are_no_batch() -> None:
    with pytest.raises(RuntimeError, match="unflatten"):
        example_gradients(nn.Linear(2, 3), torch.zeros(5, 2), torch.tensor([0, 1]), views=2)
