"""Checkpoints: going on is the same as never having stopped, and nothing else is accepted."""

import hashlib
import math
from pathlib import Path

import pytest
import torch

from tan_core.engine import checkpoint
from tan_core.engine.trainer import TrainerState
from tan_core.errors import ParameterError
from tan_core.execution import Simulation
from tan_core.testing.tiny import SHAPE
from tests.unit.tan_core.engine.support import KEY, make_run, make_trainer, run, vector

CONFIGS = {
    "sgd": {},
    "momentum-average": {"momentum": 0.9, "ema_decay": 0.9},
    "adam": {"optimizer": "adam", "learning_rate": 0.01},
}


class Scaled(torch.nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        # -inf, as in a mask, is no number that JSON has.
        self.register_buffer("scale", torch.tensor([scale, -torch.inf]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale[0]


def half_frozen(seed: int, *, scale: float = 1.0) -> torch.nn.Sequential:
    """The first layer is drawn and never trained."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        drawn = torch.nn.Linear(math.prod(SHAPE), 4).requires_grad_(False)
    head = torch.nn.Linear(4, 3)
    return torch.nn.Sequential(torch.nn.Flatten(), drawn, Scaled(scale), torch.nn.ReLU(), head)


class TestSaveAndLoad:
    @pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
    def test_five_steps_and_five_more_are_ten(self, tmp_path: Path, config) -> None:
        straight = run(make_trainer(config=config), 10)
        sha256 = checkpoint.save(tmp_path / "c", run(make_trainer(config=config), 5))

        resumed = make_trainer(config=config)
        resumed.load_state(checkpoint.load(tmp_path / "c", sha256).state)
        run(resumed, 5)

        assert resumed.steps_done == 10
        for name, tensor in straight.state().tensors.items():
            assert torch.equal(tensor, resumed.state().tensors[name])

    def test_extra_and_step_come_back(self, tmp_path: Path) -> None:
        sha256 = checkpoint.save(tmp_path / "c", run(make_trainer(), 3), {"segment": 7})

        loaded = checkpoint.load(tmp_path / "c", sha256)

        assert (loaded.step, loaded.extra) == (3, {"segment": 7})

    def test_a_place_may_be_a_string(self, tmp_path: Path) -> None:
        place, trainer = str(tmp_path / "new" / "c"), run(make_trainer(), 1)

        kept = checkpoint.load(place, checkpoint.save(place, trainer))
        drafted = checkpoint.load(place, checkpoint.draft(place, trainer).keep())
        checkpoint.save_weights(f"{place}.weights", trainer.released_weights())

        assert kept.step == drafted.step == 1
        assert sorted(file.name for file in (tmp_path / "new").iterdir()) == ["c", "c.weights"]
        with pytest.raises(ParameterError, match="gone: No such file"):
            checkpoint.load(f"{place}.gone", "0" * 64)

    def test_the_run_key_is_not_in_the_file(self, tmp_path: Path) -> None:
        checkpoint.save(tmp_path / "c", run(make_trainer(), 1))

        content = (tmp_path / "c").read_bytes()

        assert KEY not in content
        assert KEY.hex().encode() not in content

    @pytest.mark.parametrize("at", [4, 40, -1])
    def test_a_flipped_bit_anywhere_is_found(self, tmp_path: Path, at: int) -> None:
        sha256 = checkpoint.save(tmp_path / "c", make_trainer())
        content = bytearray((tmp_path / "c").read_bytes())
        content[at] ^= 1
        (tmp_path / "c").write_bytes(content)

        with pytest.raises(ParameterError, match="reported was") as error:
            checkpoint.load(tmp_path / "c", sha256)

        assert error.value.field == "checkpoint"

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ParameterError, match="gone: No such file"):
            checkpoint.load(tmp_path / "gone", "0" * 64)

    def test_a_file_that_is_no_checkpoint_is_refused(self, tmp_path: Path) -> None:
        sha256 = checkpoint.save_weights(tmp_path / "w", make_trainer().released_weights())

        with pytest.raises(ParameterError, match="not a checkpoint"):
            checkpoint.load(tmp_path / "w", sha256)

    def test_a_draft_has_no_name_until_it_is_kept_and_is_what_it_was(self, tmp_path: Path) -> None:
        trainer = run(make_trainer(), 1)
        at_one = trainer.state()

        draft = checkpoint.draft(tmp_path / "c", trainer)
        assert not (tmp_path / "c").exists()
        run(trainer, 1)
        sha256 = draft.keep()

        found = checkpoint.load(tmp_path / "c", sha256)
        assert found.step == 1
        assert torch.equal(found.state.tensors["parameters"], at_one.tensors["parameters"])
        assert [file.name for file in tmp_path.iterdir()] == ["c"]

    def test_a_failed_write_leaves_the_old_checkpoint(self, tmp_path: Path, monkeypatch) -> None:
        trainer = run(make_trainer(), 1)
        sha256 = checkpoint.save(tmp_path / "c", trainer)

        def fail(_descriptor: int) -> None:
            raise OSError("no space left on device")

        monkeypatch.setattr("tan_core.engine.checkpoint.os.fsync", fail)
        with pytest.raises(OSError, match="no space"):
            checkpoint.save(tmp_path / "c", run(trainer, 1))

        assert checkpoint.load(tmp_path / "c", sha256).step == 1
        assert [file.name for file in tmp_path.iterdir()] == ["c"]


class TestLoadState:
    def test_what_is_no_state_is_refused(self, tmp_path: Path) -> None:
        trainer = make_trainer()
        loaded = checkpoint.load(tmp_path / "c", checkpoint.save(tmp_path / "c", trainer))

        for other in (loaded, {}, None):
            with pytest.raises(ParameterError, match="state must be a TrainerState, got"):
                trainer.load_state(other)

    @pytest.mark.parametrize(
        ("other", "field"),
        [
            (lambda: make_trainer(make_run(sigma=1.5)), "fingerprint"),
            (lambda: make_trainer(config={"learning_rate": 2.0}), "config"),
            (
                lambda: make_trainer(Simulation.of(make_run(), expected_batch_size=12)),
                "execution",
            ),
        ],
        ids=["mechanism", "config", "simulation"],
    )
    def test_a_checkpoint_of_another_run_is_refused_by_what_differs(self, other, field) -> None:
        with pytest.raises(ParameterError, match="checkpoint is of another run") as error:
            make_trainer().load_state(other().state())

        assert error.value.field == field

    @pytest.mark.parametrize("field", ["version", "num_examples", "layout"])
    def test_so_is_one_of_other_data_or_another_model(self, field: str) -> None:
        """The draws of a step depend on how many examples there are, which the mechanism does not say."""
        state = make_trainer().state()
        other = TrainerState(tensors=state.tensors, meta=state.meta | {field: "another"})

        with pytest.raises(ParameterError, match="checkpoint is of another run") as error:
            make_trainer().load_state(other)

        assert error.value.field == field

    def test_so_is_one_whose_frozen_weights_or_buffers_were_others(self) -> None:
        """What was trained beside them makes no sense without them, and no checkpoint holds them."""
        state = run(make_trainer(model=half_frozen(0)), 3).state()

        for other, name in ((half_frozen(1), "1.bias"), (half_frozen(0, scale=2.0), "2.scale")):
            trainer = make_trainer(model=other)
            with pytest.raises(ParameterError, match=f"another run: '{name}'") as error:
                trainer.load_state(state)
            assert error.value.field == "frozen"
            assert trainer.steps_done == 0

    def test_frozen_weights_may_differ_in_their_last_digits(self, tmp_path: Path) -> None:
        """As those that another processor has drawn or computed."""
        trainer = run(make_trainer(model=half_frozen(0)), 3)
        sha256 = checkpoint.save(tmp_path / "c", trainer)
        rounded = half_frozen(0)
        rounded[1].weight.data.mul_(1 + 1e-6)

        resumed = make_trainer(model=rounded, attempt=2)
        resumed.load_state(checkpoint.load(tmp_path / "c", sha256).state)

        assert resumed.steps_done == 3

    def test_a_state_that_is_older_than_what_is_noted_of_frozen_weights_is_taken(self) -> None:
        state = run(make_trainer(model=half_frozen(0)), 3).state()
        meta = {key: value for key, value in state.meta.items() if key != "frozen"}
        resumed = make_trainer(model=half_frozen(0), attempt=2)

        resumed.load_state(TrainerState(tensors=state.tensors, meta=meta))
        with pytest.raises(ParameterError, match="frozen weights are none"):
            resumed.load_state(TrainerState(tensors=state.tensors, meta=meta | {"frozen": 5}))

        assert resumed.steps_done == 3

    def test_missing_tensors_are_refused(self) -> None:
        state = make_trainer().state()

        with pytest.raises(ParameterError, match=r"holds \[\], expected \['parameters'\]"):
            make_trainer().load_state(TrainerState(tensors={}, meta=state.meta))

    @pytest.mark.parametrize(
        ("parameters", "got"),
        [
            (torch.zeros(1), r"torch\.float32 of shape \[1\]"),
            (torch.zeros(2), r"torch\.float32 of shape \[2\]"),
            (None, r"torch\.float64 of shape \[\d+\]"),
            ([0.0], "list"),
        ],
        ids=["one number", "too short", "another type", "no tensor"],
    )
    def test_so_are_tensors_of_another_kind_and_nothing_is_taken_over(
        self, parameters, got: str
    ) -> None:
        """One number would have been stretched to all of the parameters."""
        trainer = make_trainer()
        before, state = vector(trainer).clone(), trainer.state()
        if parameters is None:
            parameters = state.tensors["parameters"].double()
        other = TrainerState(tensors={"parameters": parameters}, meta=state.meta)

        with pytest.raises(ParameterError, match=f"the checkpoint's parameters is {got}") as error:
            trainer.load_state(other)

        assert error.value.field == "parameters"
        assert torch.equal(vector(trainer), before)

    @pytest.mark.parametrize("step", [None, -1, 1.5, "2", 10**6])
    def test_so_is_a_step_that_the_run_does_not_have(self, step) -> None:
        state = make_trainer().state()
        other = TrainerState(tensors=state.tensors, meta=state.meta | {"step": step})

        with pytest.raises(ParameterError, match="step must be") as error:
            make_trainer().load_state(other)

        assert error.value.field == "step"

    @pytest.mark.parametrize("updates", [[{"step": "x"}], 3, [None]])
    def test_so_are_updates_that_are_none_and_nothing_is_taken_over(self, updates) -> None:
        trainer = make_trainer()
        before, state = vector(trainer).clone(), run(make_trainer(), 1).state()
        other = TrainerState(tensors=state.tensors, meta=state.meta | {"updates": updates})

        with pytest.raises(ParameterError, match="the checkpoint's updates are none") as error:
            trainer.load_state(other)

        assert (error.value.field, trainer.steps_done) == ("updates", 0)
        assert torch.equal(vector(trainer), before)

    def test_a_state_is_a_copy(self) -> None:
        trainer = make_trainer()
        before = vector(trainer).clone()
        state = trainer.state()

        run(trainer, 1)

        assert torch.equal(state.tensors["parameters"], before)


class TestKeptWeights:
    def test_come_back_by_their_digest_and_as_no_other_file(self, tmp_path: Path) -> None:
        weights = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(1)}
        sha256 = checkpoint.keep_weights(weights, lambda digest: tmp_path / digest)

        (file,) = tmp_path.iterdir()
        assert file.name == sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
        found = checkpoint.load_weights(file, sha256)
        assert found.keys() == weights.keys()
        assert all(torch.equal(found[name], weight) for name, weight in weights.items())
        file.write_bytes(file.read_bytes() + b" ")
        with pytest.raises(ParameterError, match="sha256 is") as refused:
            checkpoint.load_weights(file, sha256)
        assert refused.value.field == "checkpoint"

    def test_what_is_no_weights_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"no weights")
        digest = hashlib.sha256(b"no weights").hexdigest()

        with pytest.raises(ParameterError, match="holds no weights"):
            checkpoint.load_weights(tmp_path / "x", digest)
