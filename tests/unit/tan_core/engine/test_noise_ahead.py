import pickle
import threading

import pytest
import torch

from tan_core.engine import Trainer
from tan_core.engine.noise_ahead import NoiseAhead
from tests.unit.tan_core.engine.support import make_trainer, run, run_ranks


def test_what_is_taken_is_what_was_begun() -> None:
    ahead = NoiseAhead()
    ahead.begin(lambda: torch.arange(5))
    assert ahead.take().tolist() == [0, 1, 2, 3, 4]


def test_it_is_made_beside_the_caller_and_waited_for() -> None:
    may_go, threads = threading.Event(), []

    def make() -> torch.Tensor:
        may_go.wait(10)
        threads.append(threading.current_thread())
        return torch.full((3,), 2)

    ahead = NoiseAhead()
    ahead.begin(make)
    may_go.set()
    assert ahead.take().tolist() == [2, 2, 2]
    assert threads[0] is not threading.current_thread()


def test_it_needs_no_gradients() -> None:
    ahead = NoiseAhead()
    ahead.begin(lambda: torch.ones(3, requires_grad=True) * 2)
    assert not ahead.take().requires_grad


def test_no_noise_is_taken_twice() -> None:
    ahead = NoiseAhead()
    ahead.begin(lambda: torch.ones(3))
    ahead.take()
    with pytest.raises(RuntimeError, match="no noise was begun"):
        ahead.take()


def test_what_fails_fails_where_it_is_taken() -> None:
    def make() -> torch.Tensor:
        raise ValueError("drawn already")

    ahead = NoiseAhead()
    ahead.begin(make)
    with pytest.raises(ValueError, match="drawn already"):
        ahead.take()


def test_a_copy_has_begun_nothing() -> None:
    ahead = NoiseAhead()
    ahead.begin(lambda: torch.ones(3))
    with pytest.raises(RuntimeError, match="no noise was begun"):
        pickle.loads(pickle.dumps(ahead)).take()


class TestTrainer:
    """Where the noise is made ahead it is the noise that a processor adds, in every step and once."""

    @pytest.fixture
    def _ahead(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = Trainer.__init__

        def make(trainer: Trainer, **arguments) -> None:
            made(trainer, **arguments)
            assert trainer._noise_ahead is None
            trainer._noise_ahead = NoiseAhead()

        monkeypatch.setattr(Trainer, "__init__", make)

    def test_steps_of_a_private_run_are_the_same_to_the_last_bit(
        self, request: pytest.FixtureRequest
    ) -> None:
        before = run(make_trainer(), 5).released
        request.getfixturevalue("_ahead")
        assert torch.equal(run(make_trainer(), 5).released, before)

    def test_each_rank_adds_its_own_share(self, request: pytest.FixtureRequest) -> None:
        before = [each.released for each in run_ranks(2, 4)]
        request.getfixturevalue("_ahead")
        after = [each.released for each in run_ranks(2, 4)]
        assert all(torch.equal(*both) for both in zip(before, after, strict=True))

    @pytest.mark.usefixtures("_ahead")
    def test_a_step_that_failed_leaves_no_noise_for_the_next(self) -> None:
        trainer = make_trainer()
        run(trainer, 1)
        state, audit = trainer.state(), trainer._next_audit
        trainer._reader.labels[:] = 99  # no class
        with pytest.raises((IndexError, RuntimeError)):
            trainer.step()
        other = make_trainer(attempt=2)
        other.load_state(state)
        other._next_audit = audit
        assert run(other, 1).steps_done == 2
