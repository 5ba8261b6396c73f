"""How the end of the ranks becomes the outcome of an attempt."""

import traceback

import pytest

from tan_core.errors import AuditError, ParameterError, PretrainedError
from worker.train import is_final


class FailedError(Exception):
    """Stands for Ray Train's own error, which needs Ray."""

    def __init__(self, **failures: Exception) -> None:
        super().__init__("Training failed due to worker errors")
        self.worker_failures = dict(enumerate(failures.values()))


def as_ray_hands_it_over(error: Exception) -> Exception:
    """An exception whose text is the traceback of the one that a rank raised."""
    try:
        raise error
    except Exception:
        return RuntimeError(traceback.format_exc())


class TestIsFinal:
    @pytest.mark.parametrize("kind", [AuditError, PretrainedError])
    def test_what_would_fail_again_on_any_rank_ends_the_run(self, kind: type[Exception]) -> None:
        lost = RuntimeError("connection closed by peer")

        assert is_final(FailedError(one=lost, two=as_ray_hands_it_over(kind("no good"))))

    @pytest.mark.parametrize(
        "error",
        [
            FailedError(one=RuntimeError("connection closed by peer")),
            FailedError(one=as_ray_hands_it_over(ParameterError("inputs hold 3 examples"))),
            RuntimeError("the cluster is gone"),
        ],
        ids=["lost", "refused", "no-rank"],
    )
    def test_anything_else_may_be_tried_again(self, error: Exception) -> None:
        assert not is_final(error)
