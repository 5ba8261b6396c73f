"""What once slipped through: each of these moved a sum too far, lost a gradient or ended the process."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn

from tan_core.engine import check_model, clipped_sum
from tan_core.engine.bookkeeping import Books
from tan_core.engine.coverage import check_coverage
from tan_core.errors import ParameterError
from tests.unit.tan_core.engine.oracle import assert_exact


def brute(model, inputs, labels, *, views: int = 1):
    """Norms of each example alone, float64."""
    norms = []
    for example, label in enumerate(labels):
        own = inputs[example * views : (example + 1) * views].contiguous()
        loss = nn.functional.cross_entropy(model(own), label.expand(views))
        trained = [p for p in model.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True)
        norms.append(torch.cat([g.flatten() for g in gradients]).norm())
    return torch.stack(norms)


class Averaged(nn.Module):
    """A linear layer on positions that may cancel."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        return self.layer(x).mean(1)


class Shared(nn.Module):
    """A layer, and an outer one that uses the same scale without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)
        self.weight, self.bias = self.norm.weight, self.norm.bias

    def forward(self, x):
        return self.norm(x) * self.weight.view(-1, 1, 1) + self.bias.view(-1, 1, 1)


class Turned(nn.Module):
    """Sees positions as examples and examples as positions."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x.transpose(0, 1)).mean(0)


class TestClippedSum:
    def test_float64_positions_that_cancel_do_not_lose_the_norm(self) -> None:
        model = Averaged().double()
        generator = torch.Generator().manual_seed(0)
        v, w = torch.randn(2, 64, generator=generator, dtype=torch.float64)
        x = torch.stack([1e12 * v, -1e12 * v + 1e3 * w])[None]

        got = clipped_sum(model, x, torch.tensor([0]), clip_norm=1e-2)

        assert float(got.norms) == pytest.approx(
            float(brute(model, x, torch.tensor([0]))), rel=1e-6
        )
        assert float(got.sum.norm()) <= 1e-2 * (1 + 1e-6)

    @pytest.mark.parametrize("kind", ["frozen", "shared"])
    def test_a_group_norm_outside_of_the_books_runs_on_several_views(self, kind: str) -> None:
        first, second = nn.GroupNorm(2, 4), nn.GroupNorm(2, 4)
        if kind == "frozen":
            first.weight.requires_grad_(False)
        else:
            second.weight = first.weight
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3), first, nn.Tanh(), second, nn.Flatten(), nn.Linear(64, 3)
        ).double()
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(6, 1, 6, 6, generator=generator, dtype=torch.float64)
        labels = torch.tensor([0, 1])

        got = clipped_sum(model, x, labels, clip_norm=1.0, views=3).norms

        assert torch.allclose(got, brute(model, x, labels, views=3), rtol=1e-6)

    def test_parameters_shared_with_an_outer_layer_keep_their_gradient(self) -> None:
        model = nn.Sequential(Shared(), nn.Flatten(), nn.Linear(36, 3)).double()
        x = torch.randn(3, 4, 3, 3, generator=torch.Generator().manual_seed(0)).double()
        labels = torch.tensor([0, 1, 2])

        got = clipped_sum(model, x, labels, clip_norm=1.0).norms

        assert torch.allclose(got, brute(model, x, labels), rtol=1e-6)

    def test_a_scale_that_is_not_dense_is_read_rightly(self) -> None:
        norm = nn.GroupNorm(2, 4).double()
        norm.weight = nn.Parameter(torch.arange(8.0).double()[::2])
        model = nn.Sequential(norm, nn.Flatten(), nn.Linear(36, 3).double())
        x = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0)).double()
        labels = torch.tensor([0, 1])

        got = clipped_sum(model, x, labels, clip_norm=1.0).norms

        assert torch.allclose(got, brute(model, x, labels), rtol=1e-6)


class TestSmallClipNorm:
    @pytest.mark.parametrize("clip_norm", [1e-1, 1e-3, 1e-6, 1e-12])
    @pytest.mark.parametrize("hidden", [0, 64], ids=["linear", "mlp"])
    def test_a_record_of_huge_numbers_moves_the_sum_no_further(
        self, hidden: int, clip_norm: float
    ) -> None:
        """What is clipped of it are products of tiny gradients and huge inputs: the first once lost their digits."""
        for seed in range(20):
            generator = torch.Generator().manual_seed(seed)
            layers = [nn.Linear(40, 10)]
            if hidden:
                layers = [nn.Linear(40, hidden), nn.Tanh(), nn.Linear(hidden, 10)]
            model = nn.Sequential(*layers)
            with torch.no_grad():
                for p in model.parameters():
                    p.copy_(torch.randn(p.shape, generator=generator) * 1e-38)
            record = torch.randn(1, 40, generator=generator) * (3e37 if hidden else 1e34)
            found = clipped_sum(model, record, torch.tensor([seed % 10]), clip_norm=clip_norm)

            assert float(found.sum.double().norm()) < clip_norm * (1 + 2e-6)

    @pytest.mark.parametrize("clip_norm", [1e-1, 1e-2, 2.0**-10])
    @pytest.mark.parametrize("hidden", [0, 64], ids=["linear", "mlp"])
    def test_nor_does_one_that_hardly_moves_the_outputs(
        self, hidden: int, clip_norm: float
    ) -> None:
        """Gradients of outputs are tiny by themselves there, and inputs may be as huge as numbers are."""
        generator = torch.Generator().manual_seed(0)
        layers = [nn.Linear(3072, hidden or 10)]
        if hidden:
            layers = [*layers, nn.Tanh(), nn.Linear(hidden, 10)]
        model = nn.Sequential(*layers)
        for tiny, scale in 5 * [*itertools.product((1e-3, 1e-5, 1e-7), (1e37, 1e38, 3e38))]:
            with torch.no_grad():
                for p in model.parameters():
                    p.copy_(torch.randn(p.shape, generator=generator) * tiny)
                model[0].weight.zero_()
                model[-1].bias += torch.randn(10, generator=generator)
                model[-1].bias[0] = -math.log(tiny)
            record = (0.1 + 0.9 * torch.rand(1, 3072, generator=generator)) * scale
            found = clipped_sum(model, record, torch.tensor([0]), clip_norm=clip_norm)

            assert float(found.sum.double().norm()) < clip_norm * (1 + 5e-5)

    @pytest.mark.parametrize("times", [2.0**-20, 2.0**-60])
    def test_it_makes_the_sum_smaller_and_nothing_else(self, times: float) -> None:
        generator = torch.Generator().manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
        inputs = torch.randn(12, 5, generator=generator)
        labels = torch.arange(12) % 3
        own, small = (
            clipped_sum(model, inputs, labels, clip_norm=c, microbatch_size=5).sum
            for c in (2.0**-4, 2.0**-4 * times)
        )

        assert torch.equal(small, own * times)


class TestPrecision:
    def test_autocast_is_refused(self) -> None:
        with (
            torch.autocast("cpu", torch.bfloat16),
            pytest.raises(RuntimeError, match="autocast"),
        ):
            clipped_sum(nn.Linear(3, 2), torch.ones(2, 3), torch.tensor([0, 1]), clip_norm=1.0)

    def test_inference_mode_is_refused(self) -> None:
        with torch.inference_mode(), pytest.raises(RuntimeError, match="inference_mode is on"):
            clipped_sum(nn.Linear(3, 2), torch.ones(2, 3), torch.tensor([0, 1]), clip_norm=1.0)

    def test_a_lower_precision_of_products_is_refused(self) -> None:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("medium")
        try:
            with pytest.raises(RuntimeError, match=r"mkldnn\.matmul\.fp32_precision is 'bf16'"):
                clipped_sum(nn.Linear(3, 2), torch.ones(2, 3), torch.tensor([0, 1]), clip_norm=1.0)
        finally:
            torch.set_float32_matmul_precision(before)

    @pytest.mark.parametrize("name", ["conv", "rnn", None])
    def test_so_is_one_of_convolutions_alone_or_of_all(self, name: str | None) -> None:
        kind = torch.backends if name is None else getattr(torch.backends.mkldnn, name)
        before = kind.fp32_precision
        kind.fp32_precision = "bf16"
        try:
            with pytest.raises(RuntimeError, match=r"fp32_precision is 'bf16'.* \"ieee\""):
                clipped_sum(nn.Linear(3, 2), torch.ones(2, 3), torch.tensor([0, 1]), clip_norm=1.0)
        finally:
            kind.fp32_precision = before

    def test_parameters_of_lower_precision_are_refused_by_name(self) -> None:
        with pytest.raises(ParameterError, match=r"'weight' is torch\.bfloat16"):
            check_model(nn.Linear(3, 2).bfloat16())


class TestCoverage:
    @pytest.mark.parametrize("positions", [3, 4, 5])
    def test_positions_that_are_taken_for_examples_are_refused(self, positions: int) -> None:
        with pytest.raises(ParameterError, match="first dimension"):
            check_coverage(Turned(), (positions, 3))


class TestBooks:
    def test_a_layer_that_was_told_not_to_work_in_place_keeps_to_it(self) -> None:
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 2))
        books = Books(model)
        model[1].inplace = False

        clipped_sum(books, torch.ones(2, 3), torch.tensor([0, 1]), clip_norm=1.0)

        assert model[1].inplace is False


class Normed(nn.Module):
    """Convolutions with one group norm that runs where the wiring says."""

    def __init__(self, wiring) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
        self.norm, self.head = nn.GroupNorm(2, 4), nn.Linear(36, 3)
        self.wiring = wiring

    def forward(self, x):
        return self.head(self.wiring(self, x).flatten(1))


def twice(m: Normed, x):
    return m.norm(m.second(m.norm(m.first(x)).tanh()))


def written_to(m: Normed, x):
    y = m.norm(m.first(x))
    y += m.second(x)
    return y.tanh()


def half_seen(m: Normed, x):
    y = m.first(x)
    return m.norm(y) + m.second(m.norm(x.detach() + 0 * y)) * 0 + m.second(y)


def at_both_ends(m: Normed, x):
    return m.norm(m.second(m.first(m.norm(x))))


def unseen(m: Normed, x):
    m.norm(m.first(x))
    return m.first(m.second(x))


class TestGroupNorm:
    """It sums its gradients on the way back, and keeps nothing for later."""

    @pytest.mark.parametrize("views", [1, 3])
    @pytest.mark.parametrize("wiring", [twice, written_to, half_seen])
    def test_every_run_that_the_loss_sees_counts(self, wiring, views: int) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(2 * views, 4, 3, 3, generator=generator, dtype=torch.float64)

        assert_exact(Normed(wiring).double(), x, torch.tensor([0, 2]), views=views)

    @pytest.mark.parametrize(
        ("wiring", "message"), [(at_both_ends, "make it two layers"), (unseen, "reach the loss")]
    )
    def test_what_would_be_missed_is_refused(self, wiring, message: str) -> None:
        x = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0))

        with pytest.raises(RuntimeError, match=message):
            clipped_sum(Normed(wiring), x, torch.tensor([0, 2]), clip_norm=1.0)

    def test_one_of_no_known_kind_reads_images_of_one_pixel(self) -> None:
        """Channels-last in memory they ended the process, in torch's way back through the norm."""
        model = nn.Sequential(
            nn.Conv2d(3, 144, 3),
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(144, 144, 1),
            NormThenRelu(24, 144),
            nn.Flatten(),
            nn.Linear(144, 3),
        ).double()
        x = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0)).double()

        assert_exact(model, x, torch.tensor([0, 2, 1, 0]))


class NormThenRelu(nn.GroupNorm):
    """Writes in place, which sends the engine from vmap to one example at a time."""

    def forward(self, input):
        return super().forward(input).relu_()


def refitted(layer: nn.Module, **replaced) -> nn.Module:
    """What code does to a layer without telling it: a part of its weights is taken, or a fixed tensor."""
    for name, value in replaced.items():
        delattr(layer, name)
        setattr(layer, name, value)
    return layer


def drawn(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(0)))


REFITTED = {
    "convolution of fewer outputs": (
        refitted(nn.Conv2d(3, 16, 3), weight=drawn(5, 3, 3, 3), bias=drawn(5)),
        (3, 6, 6),
    ),
    "convolution of another kernel": (
        refitted(nn.Conv1d(3, 16, 2), weight=drawn(16, 3, 3)),
        (3, 6),
    ),
    "convolution of fewer inputs": (
        refitted(nn.Conv2d(3, 16, 3), weight=drawn(16, 1, 3, 3)),
        (1, 6, 6),
    ),
    "larger kernel": (refitted(nn.Conv2d(3, 16, 1), weight=drawn(16, 3, 3, 3)), (3, 6, 6)),
    "fewer inputs": (refitted(nn.Linear(9, 3), weight=drawn(3, 6)), (6,)),
    "fewer outputs": (refitted(nn.Linear(6, 5), weight=drawn(3, 6), bias=drawn(3)), (6,)),
    "one bias for all": (refitted(nn.Linear(6, 5), bias=drawn(1)), (6,)),
    "bias before weight": (refitted(nn.Linear(6, 3), weight=drawn(3, 6)), (6,)),
    "fixed weight": (refitted(nn.Linear(6, 3), weight=drawn(3, 6).detach().double()), (6,)),
    "fixed bias": (refitted(nn.Linear(6, 3), bias=drawn(3).detach().double()), (6,)),
}


class Read(nn.Module):
    """Positive numbers as words."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.abs().long().clamp_max(9)).sum(1)


class TestRefitted:
    """Kernels went by attributes that were true no longer, and read and wrote beside what was there."""

    @pytest.mark.parametrize("behind", [False, True], ids=["alone", "in a chain"])
    @pytest.mark.parametrize("name", REFITTED)
    def test_a_layer_is_what_its_tensors_are(self, name: str, behind: bool) -> None:
        layer, shape = copy.deepcopy(REFITTED[name])
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(4, *shape, generator=generator, dtype=torch.float64)
        model = nn.Sequential(layer.double(), *([nn.Tanh()] if behind else []), nn.Flatten())

        assert_exact(model, x, torch.tensor([0, 2, 1, 0]), views=1)

    def test_an_embedding_of_more_words_keeps_those_of_examples_apart(self) -> None:
        model = Read(refitted(nn.Embedding(4, 3), weight=drawn(10, 3))).double()
        x = 10 * torch.rand(4, 5, generator=torch.Generator().manual_seed(0)).double()

        assert_exact(model, x, torch.tensor([0, 2, 1, 0]))
