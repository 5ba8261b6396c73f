"""What must hold for every batch, microbatch size, number of views and world size."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tan_core import models
from tan_core.engine import PrivateRandomness, SeededRandomness, clipped_sum
from tan_core.models.gain import Gain
from tan_core.spec.models import MODEL_TYPES
from tan_core.testing.strategies import gradient_batches

FAST = settings(max_examples=40, deadline=None, derandomize=True)
SHAPE = (1, 8, 8)
MODELS = {
    name: models.build(
        MODEL_TYPES[name](), shape=SHAPE, num_classes=3, generator=torch.Generator().manual_seed(0)
    ).double()
    for name in ("linear", "mlp", "tanh-cnn")
} | {
    "many-layers": nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.GroupNorm(2, 4),
        nn.Conv2d(4, 4, 2, padding="valid", groups=2, dilation=2),
        Gain(4),
        nn.LayerNorm((2, 2)),
        nn.Linear(2, 3),
        nn.Flatten(),
        nn.Linear(24, 3),
    ).double()
}


class TestClippedSum:
    @FAST
    @given(
        name=st.sampled_from(sorted(MODELS)),
        batch=gradient_batches(),
        microbatch_size=st.integers(1, 40),
        clip_norm=st.floats(1e-3, 1e3),
    )
    def test_any_microbatch_split_gives_the_same_sum(
        self, name, batch, microbatch_size, clip_norm
    ) -> None:
        inputs, labels, views = torch.from_numpy(batch[0]), torch.from_numpy(batch[1]), batch[2]

        def total(size: int) -> torch.Tensor:
            return clipped_sum(
                MODELS[name],
                inputs,
                labels,
                clip_norm=clip_norm,
                views=views,
                microbatch_size=size,
            ).sum

        whole, split = total(1000), total(microbatch_size)

        assert float((whole - split).norm()) <= 1e-6 * float(whole.norm())

    @FAST
    @given(
        name=st.sampled_from(sorted(MODELS)),
        batch=gradient_batches(),
        clip_norm=st.floats(1e-3, 1e3),
    )
    def test_one_example_moves_the_sum_by_at_most_the_clip_norm(
        self, name, batch, clip_norm
    ) -> None:
        inputs, labels, views = torch.from_numpy(batch[0]), torch.from_numpy(batch[1]), batch[2]
        at_most = clip_norm * (1 + 1e-6)

        whole = clipped_sum(MODELS[name], inputs, labels, clip_norm=clip_norm, views=views).sum
        fewer = clipped_sum(
            MODELS[name], inputs[views:], labels[1:], clip_norm=clip_norm, views=views
        ).sum

        assert float((whole - fewer).norm()) <= at_most


class TestMask:
    @FAST
    @given(
        num_examples=st.integers(1, 500),
        rate=st.floats(0, 1),
        more=st.floats(0, 1),
        world_size=st.integers(1, 7),
        step=st.integers(0, 2**40),
    )
    def test_the_shares_of_all_ranks_are_the_draw_and_more_rate_draws_more(
        self, num_examples, rate, more, world_size, step
    ) -> None:
        def mask(q: float) -> np.ndarray:
            return PrivateRandomness(bytes(32), 1).mask(
                step, num_examples=num_examples, sampling_rate=q
            )

        drawn = mask(rate)
        shares = [drawn[rank::world_size] for rank in range(world_size)]

        assert np.array_equal(np.sort(np.concatenate(shares)), drawn)
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert set(drawn) <= set(mask(max(rate, more)))

    @FAST
    @given(seed=st.integers(0, 2**62), stream=st.integers(0, 2**62), step=st.integers(0, 2**40))
    def test_any_seed_stream_and_step_is_accepted(self, seed: int, stream: int, step: int) -> None:
        randomness = SeededRandomness(seed, stream)

        assert len(randomness.mask(step, num_examples=5, sampling_rate=1.0)) == 5
        assert randomness.noise(step, 3).isfinite().all()
