"""What the ranks of a private run have in common."""

import numpy as np
import torch

from tan_core.mechanism import Mechanism
from tan_core.spec.models import LinearModel
from worker import train_loop
from worker.selftest.rig import Lab, Setup

SETUP = Setup(
    mechanism=Mechanism(sampling_rate=0.5, noise_multiplier=1.0, clip_norm=1.0, steps=4),
    model=LinearModel(),
    inputs=np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32),
    labels=np.arange(40) % 3,
    num_classes=3,
)


def test_ranks_begin_with_the_weights_of_the_first(tmp_path, monkeypatch) -> None:
    """Also where the model's own code draws them, frozen ones and buffers too, from what no seed of ours reaches."""
    random, made = np.random.default_rng(), list[torch.nn.Module]()

    def drawn_from_numpy(*_: object, **__: object) -> torch.nn.Module:
        model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
        model[0].weight.requires_grad_(False)
        model.register_buffer("mask", torch.zeros(3, dtype=torch.bool).expand(2, 3))
        model.register_buffer("middle", torch.tensor(0.5).expand(2, 3))
        model.register_buffer("turned", torch.ones(2, dtype=torch.complex64).conj())
        model.register_buffer("number", torch.zeros(()))
        for value in (*model.parameters(), model.number):
            value.data = torch.from_numpy(random.normal(size=tuple(value.shape))).to(value.dtype)
        made.append(model)
        return model

    monkeypatch.setattr(train_loop, "model_for", drawn_from_numpy)
    Lab(tmp_path, 0).run(SETUP, lambda _: None, workers=2)

    one, other = (model.state_dict() for model in made)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
