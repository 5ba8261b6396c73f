import pickle
import threading

import pytest
import torch

from tan_core.engine import Trainer
from tan_core.engine.noise_ahead import NoiseAhead
from tests.unit.tan_core.engine.support import make_trainer, run, run_ranks


def test_what_is_added_is_what_was_begun() -> None:
    ahead, total = NoiseAhead(), torch.ones(5)
    ahead.begin(lambda zeros: zeros.add_(torch.arange(5)), total)
    ahead.add_to(total)
    assert total.tolist() == [1, 2, 3, 4, 5]


def test_it_is_made_beside_the_caller_and_waited_for() -> None:
    may_go, threads = threading.Event(), []

    def add_noise(zeros: torch.Tensor) -> None:
        may_go.wait(10)
        threads.append(threading.current_thread())
        zeros.add_(2)

    ahead, total = NoiseAhead(), torch.zeros(3)
    ahead.begin(add_noise, total)
    may_go.set()
    ahead.add_to(total)
    assert total.tolist() == [2, 2, 2]
    assert threads[0] is not threading.current_thread()


def test_no_noise_is_added_twice() -> None:
    ahead, total = NoiseAhead(), torch.zeros(3)
    ahead.begin(lambda zeros: zeros.add_(1), total)
    ahead.add_to(total)
    with pytest.raises(RuntimeError, match="no noise was begun"):
        ahead.add_to(total)


def test_what_fails_fails_where_it_is_added() -> None:
    def add_noise(_: torch.Tensor) -> None:
        raise ValueError("drawn already")

    ahead = NoiseAhead()
    ahead.begin(add_noise, torch.zeros(3))
    with pytest.raises(ValueError, match="drawn already"):
        ahead.add_to(torch.zeros(3))


def test_a_copy_has_begun_nothing() -> None:
    ahead = NoiseAhead()
    ahead.begin(lambda zeros: zeros.add_(1), torch.zeros(3))
    with pytest.raises(RuntimeError, match="no noise was begun"):
        pickle.loads(pickle.dumps(ahead)).add_to(torch.zeros(3))


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
        assert all(torch.allclose(*both, atol=1e-6) for both in zip(before, after, strict=True))

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
