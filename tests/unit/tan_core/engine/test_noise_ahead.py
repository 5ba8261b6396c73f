import pickle
import threading

import pytest
import torch

from tan_core.engine.noise_ahead import NoiseAhead


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
