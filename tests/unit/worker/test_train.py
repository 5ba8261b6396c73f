"""How the end of the ranks becomes the outcome of an attempt."""

import traceback
from pathlib import Path

import pytest

from tan_core.data import inspect, verify
from tan_core.errors import AuditError, DatasetError, ParameterError, PretrainedError
from tan_core.wire import DatasetRef
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


def registered(path: Path) -> DatasetRef:
    path.write_text("a,label\n" + "".join(f"{row},{row % 2}\n" for row in range(100)))
    facts = inspect(str(path))
    return DatasetRef(
        name="table",
        source=facts.source,
        path=str(path),
        content_sha256=facts.content_sha256,
        num_classes=facts.num_classes,
        shape=facts.shape,
        num_train=facts.num_train,
        num_validation=facts.num_validation,
        num_test=facts.num_test,
    )


def of_changed_data(folder: Path) -> DatasetError:
    """What a worker meets where somebody wrote to the file."""
    ref = registered(folder / "changed.csv")
    with (folder / "changed.csv").open("a") as file:
        file.write("7,1\n")
    with pytest.raises(DatasetError) as error:
        verify(ref)
    return error.value


def of_no_data(folder: Path) -> DatasetError:
    """What a worker meets where the file is away."""
    ref = registered(folder / "away.csv")
    (folder / "away.csv").unlink()
    with pytest.raises(DatasetError) as error:
        verify(ref)
    return error.value


class TestIsFinal:
    @pytest.mark.parametrize("kind", [AuditError, PretrainedError])
    def test_what_would_fail_again_on_any_rank_ends_the_run(self, kind: type[Exception]) -> None:
        lost = RuntimeError("connection closed by peer")

        assert is_final(FailedError(one=lost, two=as_ray_hands_it_over(kind("no good"))))

    def test_data_that_were_changed_end_it_and_data_that_are_away_do_not(
        self, tmp_path: Path
    ) -> None:
        changed, away = (
            as_ray_hands_it_over(error)
            for error in (of_changed_data(tmp_path), of_no_data(tmp_path))
        )

        assert is_final(FailedError(one=changed))
        assert not is_final(FailedError(one=away))

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
