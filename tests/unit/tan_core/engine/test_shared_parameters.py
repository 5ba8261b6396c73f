"""Models whose layers share a parameter: trained, audited, averaged, evaluated and released as one."""

import torch
from torch import nn

from tan_core.engine.flat import FlatParameters
from tan_core.testing.tiny import tiny_images
from tests.unit.tan_core.engine.support import make_run, make_trainer, run


class Tied(nn.Module):
    """The way down and the way up use one weight, and the first layer is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(64, 8).requires_grad_(False)
        self.down, self.up = nn.Linear(8, 8), nn.Linear(8, 8)
        self.up.weight = self.down.weight
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.frozen(x.flatten(1)).tanh()
        return self.head(self.up(self.down(hidden).tanh()).tanh())


class TestSharedParameters:
    def test_they_have_one_place_in_the_vector_and_stay_shared(self) -> None:
        model = Tied()

        flat = FlatParameters(model)
        flat.vector.fill_(0.5)

        names = [name for name, _ in flat.layout]
        assert names == ["down.weight", "down.bias", "up.bias", "head.weight", "head.bias"]
        assert model.up.weight is model.down.weight
        assert bool((model.up.weight == 0.5).all())

    def test_what_is_released_is_what_was_evaluated(self) -> None:
        """Under each of its names: a file that held two values would load as the wrong one."""
        trainer = make_trainer(
            make_run(sigma=0.3), model=Tied(), config={"ema_decay": 0.9, "learning_rate": 8.0}
        )
        inputs, labels = tiny_images()
        run(trainer, 20)

        released = trainer.released_weights()
        loaded = Tied()
        loaded.load_state_dict(released)

        pixels = torch.from_numpy(inputs).float() / 127.5 - 1
        accuracy = (loaded(pixels).argmax(1) == torch.from_numpy(labels)).double().mean()
        assert torch.equal(released["up.weight"], released["down.weight"])
        assert float(accuracy) == trainer.evaluate(inputs, labels)

    def test_what_is_frozen_is_released_as_it_was(self) -> None:
        model = Tied()
        before = model.frozen.weight.clone()

        trainer = run(make_trainer(model=model, config={"ema_decay": 0.9}), 3)

        assert torch.equal(trainer.released_weights()["frozen.weight"], before)
