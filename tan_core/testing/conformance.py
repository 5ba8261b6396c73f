"""Tests of a model, to inherit: that it can be trained privately, and that each example's part is bounded.

.. code-block:: python

    from tan_core.testing.conformance import ModelConformance


    class TestSmall(ModelConformance):
        shape, num_classes = (3, 32, 32), 10

        def make_model(self):
            return small(shape=self.shape, num_classes=self.num_classes)

A trainer makes the first of these checks before it reads data, and audits a few examples as it goes
(:mod:`tan_core.engine.audit`). Here all of them are made, on noise, before anybody waits for a cluster.
"""

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from tan_core.engine import check_model, clipped_sum
from tan_core.engine.audit import tolerance
from tan_core.engine.coverage import check_coverage
from tan_core.engine.independence import check_independence
from tan_core.engine.probe import fed, fill_zeros
from tan_core.spec.train import Precision
from tan_core.testing.oracle import clipped, example_gradients

_EXACT = 1e-6
_LAYOUTS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}


class ModelConformance:
    """What every model must pass; pytest collects the tests of a subclass whose name begins with ``Test``.

    In float64, but for a model with parts in 16 bits, which is held to what an audit allows there.
    """

    shape: ClassVar[tuple[int, ...]] = (3, 32, 32)
    """Of one example."""
    num_classes: ClassVar[int] = 10
    num_examples: ClassVar[int] = 3
    """Of a batch: each has a backward pass of its own, in four settings."""
    views: ClassVar[tuple[int, ...]] = (1, 4)

    def make_model(self) -> nn.Module:
        """A new model, as a factory returns it: [B, *shape] floats in, [B, num_classes] logits out."""
        raise NotImplementedError("make_model of the subclass returns the model that is tested")

    def test_it_is_accepted_for_private_training(self) -> None:
        """No layer mixes examples, draws or keeps a state, and no parameter is used behind its layer's back."""
        model = self.make_model()
        check_model(model)
        check_independence(model, self.shape)
        check_coverage(model, self.shape)

    def test_each_example_is_clipped_by_the_norm_of_its_own_gradient(self) -> None:
        """Half of them are; with any number of views and in either order of memory."""
        model, allowed = self._model()
        for views, layout, inputs, labels in self._batches(model):
            rows = example_gradients(model, inputs, labels, views=views)
            norms = rows.norm(dim=1)
            clip_norm = float(norms.median())

            found = clipped_sum(model, inputs, labels, clip_norm=clip_norm, views=views)

            where = f"{views} views of each, {layout}"
            _require(torch.allclose(found.norms, norms, rtol=allowed), f"norms differ: {where}")
            off = float((found.sum - clipped(rows, clip_norm)).norm())
            _require(
                off <= allowed * clip_norm * len(labels), f"the sum is off by {off:.3g}: {where}"
            )

    def test_one_example_moves_the_sum_by_at_most_the_clipping_norm(self) -> None:
        """Were it not so, no epsilon would be true."""
        model, _ = self._model()
        for views, layout, inputs, labels in self._batches(model):
            norms = clipped_sum(model, inputs, labels, clip_norm=1.0, views=views).norms
            clip_norm = 0.5 * float(norms.min())
            whole = clipped_sum(model, inputs, labels, clip_norm=clip_norm, views=views).sum
            fewer = clipped_sum(
                model, inputs[views:], labels[1:], clip_norm=clip_norm, views=views
            ).sum
            moved = float((whole - fewer).norm()) / clip_norm
            _require(
                moved <= 1 + (_EXACT if whole.dtype is torch.float64 else 1e-3),
                f"an example moved the sum by {moved:.6g} clipping norms: {views} views, {layout}",
            )

    def test_microbatches_change_nothing(self) -> None:
        """How many views are in memory at once is nobody's business."""
        model, allowed = self._model()
        for views, layout, inputs, labels in self._batches(model):
            whole, one_by_one = (
                clipped_sum(
                    model, inputs, labels, clip_norm=1.0, views=views, microbatch_size=size
                ).sum
                for size in (len(inputs), views)
            )
            off = float((whole - one_by_one).norm())
            _require(
                off <= allowed * float(whole.norm()),
                f"microbatches of one example are off by {off:.3g}: {views} views, {layout}",
            )

    def test_an_empty_batch_adds_nothing(self) -> None:
        """Poisson sampling draws one now and then; the step is noise alone."""
        model, _ = self._model()
        nothing = torch.zeros(0, *self.shape, dtype=fed(model).dtype)
        found = clipped_sum(model, nothing, torch.zeros(0, dtype=torch.long), clip_norm=1.0)
        _require(bool((found.sum == 0).all()), "an empty batch adds something")

    def test_an_example_that_is_not_finite_adds_nothing(self) -> None:
        """And leaves what the others add as it is."""
        model, allowed = self._model()
        _, _, inputs, labels = next(self._batches(model))
        spoiled = inputs.clone()
        spoiled[0] = torch.nan
        found = clipped_sum(model, spoiled, labels, clip_norm=1.0).sum
        others = clipped_sum(model, inputs[1:], labels[1:], clip_norm=1.0).sum
        off = float((found - others).norm())
        _require(off <= allowed * float(others.norm()), f"it moved the sum by {off:.3g}")

    def _model(self) -> tuple[nn.Module, float]:
        """In float64 where that leaves it as it is, no parameter zero, and what it may be off by."""
        model = self.make_model()
        if tolerance(model, Precision.FLOAT32) > tolerance(nn.Linear(1, 1), Precision.FLOAT32):
            allowed = tolerance(model, Precision.FLOAT32)
        else:
            model, allowed = model.double(), _EXACT
        generator = torch.Generator().manual_seed(0)
        like = fed(model)
        fill_zeros(model, lambda size: torch.randn(size, generator=generator).to(like))
        return model, allowed

    def _batches(self, model: nn.Module) -> Iterator[tuple[int, str, Tensor, Tensor]]:
        """Views, order of memory, inputs and labels."""
        generator = torch.Generator().manual_seed(0)
        for views in self.views:
            size = (self.num_examples * views, *self.shape)
            inputs = torch.randn(size, generator=generator).to(fed(model))
            labels = torch.randint(0, self.num_classes, (self.num_examples,), generator=generator)
            for name, layout in _LAYOUTS.items():
                if layout is torch.contiguous_format or inputs.dim() == 4:
                    yield views, name, inputs.contiguous(memory_format=layout), labels


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
