"""The kernels by themselves; tests of the layers hold them against plain autograd."""

import ctypes
import hashlib
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tan_core.engine import native
from tan_core.kernels_version import KERNELS_VERSION

KERNELS = Path(native.__file__).with_name("kernels.c")

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the kernels are not compiled")


def make_batch(*, views: int, dtype=torch.float32, outputs: int = 10):
    """Inputs, output gradients and the layer: 5 examples, an odd kernel, everything uneven."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Conv2d(
        3, outputs, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), bias=False
    )
    a = torch.randn(5 * views, 3, 9, 8, generator=generator, dtype=dtype)
    g = torch.randn(layer.to(dtype)(a).shape, generator=generator, dtype=dtype)
    kernel = native.Kernel((3, 2), (2, 1), (1, 0), (1, 2))
    return a, g, kernel, layer


def truth(a, g, layer, views: int):
    """[B, O, C, H, W] in float64."""
    return torch.stack(
        [
            nn.grad.conv2d_weight(
                own_a.double(),
                layer.weight.shape,
                own_g.double(),
                layer.stride,
                layer.padding,
                layer.dilation,
            )
            for own_a, own_g in zip(a.split(views), g.split(views), strict=True)
        ]
    )


class TestWeightRows:
    @pytest.mark.parametrize("outputs", [1, 10, 16, 40, 64, 130])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_each_row_is_the_gradient_of_its_example(self, outputs: int, dtype) -> None:
        a, g, kernel, layer = make_batch(views=3, dtype=dtype, outputs=outputs)
        expected = truth(a, g, layer, 3)

        rows = native.weight_rows(a, g, kernel, 3, has_bias=True)

        weight, bias = rows.gradients.split([18, 1], dim=1)
        got = weight.view(5, 3, 2, 3, native.padded(outputs))
        assert not got[..., outputs:].any()
        got = got[..., :outputs].permute(0, 4, 3, 1, 2).double()
        tolerance = 1e-6 if dtype == torch.float32 else 1e-14
        assert float((got - expected).norm() / expected.norm()) < tolerance
        of_bias = g.double().unflatten(0, (5, 3)).sum((1, 3, 4))
        bias = bias[:, 0, :outputs].double()
        assert torch.allclose(bias, of_bias, rtol=tolerance, atol=10 * tolerance)
        squared = expected.flatten(1).square().sum(1) + of_bias.square().sum(1)
        assert torch.allclose(rows.squared_norms, squared, rtol=tolerance)

    def test_without_a_bias_its_gradient_is_neither_kept_nor_counted(self) -> None:
        a, g, kernel, layer = make_batch(views=1)

        rows = native.weight_rows(a, g, kernel, 1, has_bias=False)

        assert rows.gradients.shape == (5, 18, 16)
        squared = truth(a, g, layer, 1).flatten(1).square().sum(1)
        assert torch.allclose(rows.squared_norms, squared, rtol=1e-6)

    def test_threads_change_nothing(self) -> None:
        a, g, kernel, _ = make_batch(views=2)
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            alone = native.weight_rows(a, g, kernel, 2, has_bias=True)
            torch.set_num_threads(3)
            together = native.weight_rows(a, g, kernel, 2, has_bias=True)
        finally:
            torch.set_num_threads(before)

        assert torch.equal(alone.gradients, together.gradients)
        assert torch.equal(alone.squared_norms, together.squared_norms)

    def test_an_empty_batch_has_no_rows(self) -> None:
        a, g, kernel, _ = make_batch(views=1)

        rows = native.weight_rows(a[:0], g[:0], kernel, 1, has_bias=True)

        assert (len(rows.gradients), len(rows.squared_norms)) == (0, 0)


class TestOuterNorms:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("ones", [0, 1])
    def test_they_are_those_of_the_products_themselves(self, dtype, ones: int) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(5, 37, generator=generator, dtype=dtype)
        g = torch.randn(5, 11, generator=generator, dtype=dtype)
        beside = torch.cat([x, torch.ones(5, ones, dtype=dtype)], 1).double()

        got = native.outer_norms(x, g, ones=ones)

        products = torch.einsum("bi,bo->bio", beside, g.double())
        assert torch.allclose(got, products.square().sum((1, 2)), rtol=1e-14)


class TestWeightNorms:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("views", [1, 4])
    def test_norms_are_exact_in_double_whatever_comes_in(self, dtype, views: int) -> None:
        a, g, kernel, layer = make_batch(views=views, dtype=dtype)

        got = native.weight_norms(a, g, kernel, views)

        expected = truth(a, g, layer, views).flatten(1).square().sum(1)
        assert torch.allclose(got, expected, rtol=1e-12)


class TestSquaredNorms:
    @pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
    def test_neither_tiny_nor_huge_numbers_lose_the_norm(self, scale: float) -> None:
        """Squares of float32 numbers like these are 0 or infinite in float32."""
        x = scale * torch.randn(3, 1000, generator=torch.Generator().manual_seed(0))

        got = native.squared_norms(x)

        assert torch.allclose(got, x.double().square().sum(1), rtol=1e-12, atol=0)


def normal(seed: int, size: int) -> torch.Tensor:
    """Standard normal numbers."""
    out = torch.zeros(size)
    native.add_normal(out, seed, 1.0)
    return out


class TestNormal:
    def test_is_a_function_of_the_seed(self) -> None:
        assert torch.equal(normal(1, 100), normal(1, 100))
        assert not torch.equal(normal(1, 100), normal(2, 100))

    def test_a_shorter_draw_is_the_beginning_of_a_longer_one(self) -> None:
        assert torch.equal(normal(3, 5000)[:1030], normal(3, 1030))

    def test_moments_are_those_of_a_standard_normal(self) -> None:
        """A million draws: each bound is more than four of its standard deviations."""
        z = normal(0, 1_000_000).double()

        assert abs(float(z.mean())) < 4e-3
        assert abs(float(z.square().mean()) - 1) < 6e-3
        assert abs(float(z.pow(3).mean())) < 16e-3
        assert abs(float(z.pow(4).mean()) - 3) < 40e-3
        assert 4.5 < float(z.abs().max()) < 7

    def test_lanes_and_halves_are_not_correlated(self) -> None:
        z = normal(0, 1 << 20).double()

        for lag in (1, 2, 16, 32, 512, 1024):
            assert abs(float((z[lag:] * z[:-lag]).mean())) < 5e-3

    def test_they_are_scaled_and_added(self) -> None:
        total = torch.full((1500,), 3.0)

        native.add_normal(total, 1, 0.5)

        assert torch.equal(total, 3 + 0.5 * normal(1, 1500))


class TestPoissonSample:
    @pytest.mark.parametrize("probability", [1e-3, 0.3, 0.999])
    def test_size_and_places_have_the_law_of_independent_draws(self, probability: float) -> None:
        """Each bound is more than four of its standard deviations."""
        size, times = 500, 2000
        counts = np.zeros(size)
        drawn = []
        for seed in range(times):
            indices = native.poisson_sample(seed, size, probability)
            counts[indices] += 1
            drawn.append(len(indices))

        variance = size * probability * (1 - probability)
        assert abs(np.mean(drawn) - size * probability) < 4 * (variance / times) ** 0.5
        assert abs(np.var(drawn) / variance - 1) < 4 * ((2 + 1 / variance) / times) ** 0.5
        z = (counts - times * probability) / (times * probability * (1 - probability)) ** 0.5
        assert abs(np.mean(z**2) - 1) < 4 * (3 / size) ** 0.5

    def test_neighbours_are_drawn_independently(self) -> None:
        both = [
            np.count_nonzero(np.diff(native.poisson_sample(seed, 1000, 0.2)) == 1)
            for seed in range(500)
        ]

        assert abs(np.mean(both) / (999 * 0.04) - 1) < 0.02

    def test_nothing_or_all_is_drawn_at_the_ends(self) -> None:
        assert native.poisson_sample(0, 5, 1.0).tolist() == [0, 1, 2, 3, 4]
        assert native.poisson_sample(0, 5, 0.0).tolist() == []
        assert native.poisson_sample(0, 5, 1e-300).tolist() == []

    def test_a_draw_larger_than_its_room_is_whole(self) -> None:
        seed = next(s for s in range(1000) if len(native.poisson_sample(s, 40, 1e-3)) > 0)
        library = native._library()
        room = torch.full((1,), -1)

        count = library.poisson_sample(
            *(ctypes.c_uint64(seed), ctypes.c_int64(40), ctypes.c_double(0.5)),
            *(ctypes.c_int64(1), ctypes.c_void_p(room.data_ptr())),
        )

        drawn = native.poisson_sample(seed, 40, 0.5)
        assert len(drawn) == count > 1
        assert int(room) == drawn[0]


class TestWithoutKernels:
    @pytest.mark.slow
    def test_the_engine_works_where_nothing_was_compiled(self) -> None:
        """A fresh process that finds no library: torch does all the work, to the same sums."""
        script = """
import torch
from tan_core.engine import clipped_sum, native
if %r:
    native.is_available = lambda: False
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.GroupNorm(2, 8), torch.nn.ReLU(),
                            torch.nn.Flatten(), torch.nn.Linear(8 * 36, 5)).double()
x, y = torch.randn(6, 3, 8, 8).double(), torch.arange(6) %% 5
print(clipped_sum(model, x, y, clip_norm=1.0).sum.norm().item().hex())
"""
        sums = [
            float.fromhex(
                subprocess.run(
                    [sys.executable, "-c", script % is_without],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
            )
            for is_without in (False, True)
        ]

        assert sums[0] == pytest.approx(sums[1], rel=1e-10)


class TestCrossEntropies:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("scale", [1.0, 100.0])
    def test_losses_and_gradients_are_those_of_torch(self, dtype, scale: float) -> None:
        generator = torch.Generator().manual_seed(0)
        logits = (scale * torch.randn(33, 7, generator=generator, dtype=torch.float64)).to(dtype)
        labels = torch.randint(0, 7, (33,), generator=generator)
        exact = logits.double().requires_grad_()
        truth = torch.nn.functional.cross_entropy(exact, labels, reduction="none")
        (gradient,) = torch.autograd.grad(truth.sum(), exact)

        found = native.cross_entropies(logits, labels)

        assert found is not None
        tolerance = 1e-6 if dtype == torch.float32 else 1e-13
        assert torch.allclose(found[0].double(), truth, rtol=tolerance, atol=tolerance)
        assert torch.allclose(found[1].double(), gradient, atol=tolerance)

    def test_what_is_not_finite_stays_with_its_example(self) -> None:
        logits = torch.zeros(4, 3)
        logits[0, 1], logits[1, 0], logits[2] = torch.nan, torch.inf, -torch.inf

        losses, g = native.cross_entropies(logits, torch.zeros(4, dtype=torch.int64)) or ()

        assert losses.isfinite().tolist() == [False, False, False, True]
        assert g[3].isfinite().all()

    @pytest.mark.parametrize("label", [-1, 3])
    def test_a_label_out_of_range_is_not_read(self, label: int) -> None:
        assert native.cross_entropies(torch.zeros(2, 3), torch.tensor([0, label])) is None


class TestEnsembles:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("threads", [1, 3])
    @pytest.mark.parametrize("are_picked", [False, True])
    @pytest.mark.parametrize(
        ("rows", "inputs", "trials", "classes"),
        [
            (7, 65, 1, 17),
            (128, 513, 8, 10),
            (1, 64, 7, 10),
            (200, 1100, 16, 10),
            (65, 130, 2, 2),
            (90, 300, 5, 7),
        ],
    )
    def test_both_products_are_those_of_torch(
        self, rows, inputs, trials, classes, are_picked, threads, dtype
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        records, outputs = (2 * rows if are_picked else rows), trials * (classes - 1)
        x, w, g, total = (
            torch.randn(shape, generator=generator, dtype=dtype)
            for shape in (
                (records, inputs), (trials, classes, inputs), (rows, outputs), (trials, classes, inputs)
            )
        )  # fmt: skip
        picked = torch.randperm(records, generator=generator)[:rows] if are_picked else None
        own = x.double() if picked is None else x.double()[picked]
        of_all = g.double().view(rows, trials, classes - 1)
        of_all = torch.cat([of_all, -of_all.sum(2, keepdim=True)], 2)
        added = torch.einsum("bto,bf->tof", of_all, own)
        differences = (w.double()[:, :-1] - w.double()[:, -1:]).flatten(0, 1)
        nothing = own.new_zeros(rows, native.padded(outputs) - outputs)
        truth = torch.cat([own @ differences.t(), nothing], 1), total.double() + added
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            scores = native.ensemble_scores(x, native.ensemble_weights(w), picked)
            native.add_ensemble_sums(x, g, total, picked)
        finally:
            torch.set_num_threads(before)

        for got, expected in zip((scores, total), truth, strict=True):
            tolerance = 1e-6 if dtype == torch.float32 else 1e-14
            assert (got.double() - expected).norm() <= tolerance * expected.norm()

    def test_an_example_that_is_not_finite_spoils_no_other_score(self) -> None:
        x = torch.ones(6, 20)
        x[5] = torch.nan

        weights = torch.stack([torch.ones(17, 20), torch.zeros(17, 20)], 1)  # of 17 trials

        scores = native.ensemble_scores(x, native.ensemble_weights(weights))

        assert scores[:5, :17].eq(20).all()
        assert scores[5, :17].isnan().all()

    @settings(max_examples=30)
    @given(
        rows=st.integers(1, 9),
        trials=st.integers(1, 5),
        classes=st.integers(1, 20),
        beside=st.integers(0, 3),
        size=st.sampled_from([0.1, 10.0, 500.0]),
        dtype=st.sampled_from([torch.float32, torch.float64]),
    )
    def test_gradients_are_those_of_autograd(
        self, rows, trials, classes, beside, size, dtype
    ) -> None:
        generator = torch.Generator().manual_seed(rows)
        scores, biases = (
            size * torch.randn(shape, generator=generator, dtype=dtype)
            for shape in ((rows, trials * (classes - 1) + beside), (trials, classes - 1))
        )
        labels = torch.randint(0, classes, (rows,), generator=generator)

        losses, g, squared = native.ensemble_gradients(scores, biases, labels)

        scores = scores[:, : trials * (classes - 1)].view(rows, trials, classes - 1)
        logits = functional.pad((scores + biases).double(), (0, 1)).requires_grad_()
        expected = functional.cross_entropy(
            logits.flatten(0, 1), labels.repeat_interleave(trials), reduction="none"
        )
        (truth,) = torch.autograd.grad(expected.sum(), logits)
        tolerance = {"rtol": 2e-6, "atol": 2e-6} if dtype == torch.float32 else {}
        expected = expected.detach().view(rows, trials)
        torch.testing.assert_close(losses.double(), expected, **tolerance)
        g = g.view(rows, trials, classes - 1).double()
        torch.testing.assert_close(g, truth[..., :-1], **tolerance)
        torch.testing.assert_close(squared, truth.square().sum(2), **tolerance)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
    def test_a_logit_that_is_not_finite_is_told_by_that_trial_alone(self, poison, dtype) -> None:
        scores = torch.zeros(2, 8, dtype=dtype)
        scores[1, 5] = poison

        losses, g, squared = native.ensemble_gradients(
            scores, torch.zeros(2, 4, dtype=dtype), torch.tensor([0, 1])
        )

        is_told = ~(losses.isfinite() & squared.isfinite())
        assert is_told.tolist() == [[False, False], [False, True]]
        assert g[:, :4].isfinite().all()
        assert g[0].isfinite().all()

    def test_what_is_all_but_impossible_is_nothing(self) -> None:
        """A subnormal number times a weight takes some processors a hundred times as long."""
        scores = torch.tensor([[0.0, -200.0, -88.0, -3e38, -torch.inf, -80.0]])

        _, g, _ = native.ensemble_gradients(scores, torch.zeros(1, 6), torch.tensor([6]))

        assert g[0, 1:5].tolist() == [0, 0, 0, 0]
        assert g[0, 5] == pytest.approx(math.exp(-80), rel=1e-6)


class TestVersion:
    INTERFACES: ClassVar = {10: "0767ac0010f2132c"}
    """By version: what the structures and prototypes of kernels.c hash to."""

    def test_it_is_another_one_whenever_the_interface_is(self) -> None:
        """A new row here, and KERNELS_VERSION and kernels_version() with it: else a stale library is believed."""
        source = re.sub(r"/\*.*?\*/|\\\n", " ", KERNELS.read_text(), flags=re.DOTALL)
        parts = re.findall(r"typedef struct \{.*?\} \w+;|enum \{.*?\};", source, re.DOTALL)
        parts += re.findall(r"\b(?:int|void|int64_t) \w+(?:_##real)?\([^;{]*?\) \{", source)
        assert any("ensemble_scores_##real" in part for part in parts)
        digest = hashlib.sha256(" ".join(" ".join(parts).split()).encode()).hexdigest()[:16]

        assert self.INTERFACES.get(KERNELS_VERSION) == digest

    def test_a_library_of_another_version_is_not_used(self, monkeypatch) -> None:
        native._library.cache_clear()
        monkeypatch.setattr(native, "KERNELS_VERSION", KERNELS_VERSION + 1)
        try:
            assert not native.is_available()
        finally:
            native._library.cache_clear()
