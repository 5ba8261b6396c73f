"""The noisy sum over the ranks by pieces: the same ones in the same order, each once it is final and not before, noise last."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tan_core.engine import PrivateRandomness
from tan_core.engine import trainer as trainer_module
from tan_core.engine.bookkeeping import Books
from tan_core.engine.noise_ahead import NoiseAhead
from tan_core.engine.noisy_sum import AllReduce, NoisySum, Pieces
from tan_core.engine.ranks import AGREED
from tan_core.testing.tiny import tiny_images
from tests.unit.tan_core.engine.support import (
    KEY,
    NUM_EXAMPLES,
    Noiseless,
    linear_from_zero,
    make_run,
    make_trainer,
    run,
    run_ranks,
    told_by_ranks,
    vector,
)

SIZES = st.lists(st.integers(0, 50), min_size=1, max_size=12).filter(any)
"""Some layers have a parameter without numbers."""


def named(sizes: list[int]) -> list[tuple[str, int]]:
    return [(f"p{at}", size) for at, size in enumerate(sizes)]


def noisy_sum(
    total: torch.Tensor, pieces: Pieces, link: AllReduce | None, noise: torch.Tensor | None = None
) -> NoisySum:
    noise = torch.zeros(len(total), dtype=torch.float64) if noise is None else noise
    return NoisySum(total, lambda: noise, pieces, link, rounded_to=torch.float32)


class Link:
    """Takes pieces, and doubles each when it is waited for: the sum over two ranks of equal parts."""

    def __init__(self) -> None:
        self.sent: list[torch.Tensor] = []
        self.waited = 0

    def __call__(self, piece: torch.Tensor):
        self.sent.append(piece.clone())
        link = self

        class Pending:
            def wait(self) -> None:
                link.waited += 1
                piece.mul_(2)

        return Pending()


class TestPieces:
    @given(sizes=SIZES, at_least=st.integers(1, 100))
    def test_they_are_the_whole_vector_cut_between_parameters(
        self, sizes: list[int], at_least: int
    ) -> None:
        pieces = Pieces(named(sizes), at_least)

        ends = [bound.stop for bound in pieces.bounds]
        assert [bound.start for bound in pieces.bounds] == [0, *ends[:-1]]
        assert ends[-1] == sum(sizes)
        assert sum(pieces.counts) == sum(size > 0 for size in sizes)
        lengths = [bound.stop - bound.start for bound in pieces.bounds]
        for number, length in enumerate(lengths):
            own = [size for name, size in named(sizes) if pieces.of.get(name) == number]
            assert (len(own), sum(own)) == (pieces.counts[number], length)
            # None is longer than it must be, and only the last one is shorter.
            assert length - own[-1] < at_least
            assert length >= at_least or number == len(lengths) - 1


class TestNoisySum:
    @given(data=st.data(), sizes=SIZES, at_least=st.integers(1, 60))
    def test_pieces_leave_in_order_and_only_when_all_of_them_is_there(
        self, data: st.DataObject, sizes: list[int], at_least: int
    ) -> None:
        """In whatever order parameters become final, on a rank where not all of them do."""
        pieces, link, total = Pieces(named(sizes), at_least), Link(), torch.zeros(sum(sizes))
        views = dict(zip(dict(named(sizes)), total.split(sizes), strict=True))
        order = data.draw(st.permutations(sorted(views)))
        told = order[: data.draw(st.integers(0, len(order)))]
        noisy = noisy_sum(total, pieces, link)

        for name in told:
            views[name].fill_(1.0)
            noisy.ready(name)
            assert all(piece.all() for piece in link.sent)
        early = len(link.sent)
        complete = [all(name in told for name in pieces.of if pieces.of[name] == at) for at in range(len(pieces.bounds))]  # fmt: skip
        assert early == (complete.index(False) if False in complete else len(complete))
        assert link.waited == 0
        noisy.finish()

        assert [len(piece) for piece in link.sent] == [b.stop - b.start for b in pieces.bounds]
        assert link.waited == len(pieces.bounds)
        assert torch.cat(link.sent).mul(2).equal(total)

    def test_what_is_final_twice_was_sent_too_early(self) -> None:
        noisy = noisy_sum(torch.ones(3), Pieces(named([3])), Link())
        noisy.ready("p0")

        with pytest.raises(RuntimeError, match="'p0' was final before"):
            noisy.ready("p0")

    def test_a_sum_that_is_there_at_once_need_not_be_waited_for(self) -> None:
        total = torch.ones(3)

        def doubled(piece: torch.Tensor) -> None:
            piece.mul_(2)

        noisy = noisy_sum(total, Pieces(named([3])), doubled)

        noisy.finish()

        assert total.equal(torch.full((3,), 2.0))

    @given(sizes=SIZES, at_least=st.integers(1, 60), is_alone=st.booleans())
    def test_noise_is_added_with_all_its_digits_and_the_whole_is_rounded_once(
        self, sizes: list[int], at_least: int, is_alone: bool
    ) -> None:
        """Of a bit that float32 does not hold the noise has a third, and other ranks' parts the rest."""
        size, third = sum(sizes), 2.0**-24 / 3 * 1.01
        total, noise = torch.ones(size), torch.full((size,), third, dtype=torch.float64)

        def with_others(piece: torch.Tensor) -> None:
            piece.add_(2 * third)

        link = None if is_alone else with_others

        noisy_sum(total, Pieces(named(sizes), at_least), link, noise).finish()

        assert total.equal(torch.full((size,), 1.0 if is_alone else 1 + 2.0**-23))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("is_ahead", [False, True], ids=["", "ahead"])
@pytest.mark.parametrize("is_audited", [False, True], ids=["", "audited"])
@pytest.mark.parametrize("microbatch_size", [2, 256])
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("q", [0.2, 1e-12], ids=["", "empty"])
def test_a_private_step_tells_the_sum_and_its_noise_in_float64_rounded_once(
    q: float,
    world_size: int,
    microbatch_size: int,
    is_audited: bool,
    is_ahead: bool,
    dtype: torch.dtype,
) -> None:
    """To the last bit: whatever is rounded twice, or before the last gradient, gives records away."""
    size, sigma = 1000, 8.1
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(NUM_EXAMPLES, size // 2)))

    def told(randomness: type[PrivateRandomness], told: torch.dtype | None = None):
        return told_by_ranks(
            lambda: randomness(KEY, 1),
            world_size,
            lambda: linear_from_zero(size // 2, dtype),
            is_audited=is_audited,
            is_ahead=is_ahead,
            told=told,
            execution=make_run(q=q, sigma=sigma),
            inputs=inputs.to(dtype),
            labels=torch.arange(NUM_EXAMPLES) % 2,
            microbatch_size=microbatch_size,
        )

    noise = torch.zeros(size, dtype=torch.float64)
    PrivateRandomness(KEY, 1).add_noise(0, noise, sigma)
    _, clean = told(Noiseless, told=dtype)

    assert told(PrivateRandomness)[0].double().equal((clean + noise).float().double())


@pytest.fixture
def _one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each parameter is a piece."""
    monkeypatch.setattr(trainer_module, "Pieces", partial(Pieces, at_least=1))


@pytest.mark.usefixtures("_one_by_one")
class TestRanks:
    @pytest.mark.parametrize("microbatch_size", [1, 3, 256])
    @pytest.mark.parametrize("world_size", [2, 4])
    def test_they_make_the_steps_of_one_whatever_they_drew(
        self, world_size: int, microbatch_size: int
    ) -> None:
        """Three examples on average: in most steps a rank has drawn nothing, in some all have."""
        changes = {"execution": make_run(q=0.05), "microbatch_size": microbatch_size}
        alone = run(make_trainer(**changes), 12)

        ranks = run_ranks(world_size, 12, **changes)

        for trainer in ranks:
            assert torch.allclose(vector(trainer), vector(alone), rtol=1e-6, atol=1e-6)

    def test_an_example_that_is_not_finite_holds_nothing_up(self) -> None:
        """It is the whole last chunk of a rank, which has nothing to add then."""
        inputs, labels = tiny_images()
        inputs = inputs.astype(np.float32)
        inputs[-2:] = np.nan
        changes = {"execution": make_run(q=1.0), "inputs": inputs, "labels": labels}
        alone = run(make_trainer(**changes, microbatch_size=1), 3)

        ranks = run_ranks(2, 3, **changes, microbatch_size=1)

        assert torch.allclose(vector(ranks[1]), vector(alone), rtol=1e-6, atol=1e-6)

    def test_what_is_final_leaves_before_the_rest_is_made(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        events: list[str] = []
        add = Books.add

        def watched(self, total, sums, added=lambda _: None, **options):
            def made():
                for name, value in sums:
                    events.append(name)
                    yield name, value

            return add(self, total, made(), added, **options)

        monkeypatch.setattr(Books, "add", watched)
        trainer = make_trainer(
            make_run(q=0.9), rank=0, world_size=2, all_reduce=lambda _: events.append("sent")
        )
        trainer._agreed = AGREED
        names = list(trainer.released_weights())

        run(trainer, 1)
        # The first step is audited before anything of it leaves.
        assert events == ["sent"] * len(names)
        events.clear()
        run(trainer, 1)

        assert events == [event for name in names for event in (name, "sent")]

    def test_noise_that_is_made_ahead_is_waited_for_when_a_sum_is_there_and_no_sooner(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A GPU would wait for it with the only microbatch of a step."""
        events: list[str] = []
        gradients, take = Books.batch_gradients, NoiseAhead.take

        def made(self, *arguments, **options):
            events.append("gradients")
            return gradients(self, *arguments, **options)

        def taken(self):
            events.append("noise")
            return take(self)

        monkeypatch.setattr(Books, "batch_gradients", made)
        monkeypatch.setattr(NoiseAhead, "take", taken)
        trainer = make_trainer(
            make_run(q=0.9),
            rank=0,
            world_size=2,
            all_reduce=lambda _: events.append("sent"),
            microbatch_size=256,
        )
        trainer._agreed, trainer._next_audit, trainer._noise_ahead = AGREED, 9, NoiseAhead()
        number = len(trainer.released_weights())
        events.clear()  # of what the model was tried with

        run(trainer, 2)

        assert events == 2 * ["gradients", "noise", *["sent"] * number]
