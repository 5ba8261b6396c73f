"""The one line of a failure that a user is shown."""

import traceback
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from worker.reasons import reason_of

ENDED_BY_RAY = """A worker health check failed.
Worker info: (rank 0)
1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 192.0.2.2, ID: e307) was 9.33GB used / 23.54GB limit (0.396305)
OOM kill reason: Memory usage 9651400704B exceeded threshold of 1263825152B (5.0% of 25276502016B limit)
Ray killed 1 worker(s) based on the killing policy
Refer to the documentation on how to address the out of memory issue. Set max_restarts and max_task_retries to enable retry when the task crashes due to OOM."""
"""As Ray 2.60 says it, shortened."""

OF_A_GPU = torch.OutOfMemoryError(
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 7.44 GiB "
    "is free. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True"
)


def raised(work: Callable[[], object]) -> Exception:
    with pytest.raises((MemoryError, RuntimeError)) as error:
        work()
    return error.value


def too_many_numbers_for_torch() -> torch.Tensor:
    return torch.empty(2**52, dtype=torch.uint8)


def too_many_numbers_for_numpy() -> object:
    return np.empty(2**52, dtype=np.uint8)


class TestOutOfMemory:
    @pytest.mark.parametrize(
        ("error", "where", "amount"),
        [
            (RuntimeError(ENDED_BY_RAY), "node", "9.33GB of 23.54GB"),
            (OF_A_GPU, "GPU", "20.00 GiB"),
            (raised(too_many_numbers_for_torch), "node", f"{2**52} bytes"),
            (raised(too_many_numbers_for_numpy), "node", "4.00 PiB"),
        ],
        ids=["ray", "gpu", "torch", "numpy"],
    )
    @pytest.mark.parametrize("is_traceback", [False, True])
    def test_says_where_how_much_and_what_to_do(
        self, error: Exception, where: str, amount: str, *, is_traceback: bool
    ) -> None:
        told = error if not is_traceback else "".join(traceback.format_exception(error))

        reason = reason_of(told)

        assert where in reason
        assert amount in reason
        assert "a smaller train.microbatch_size" in reason
        assert "\n" not in reason
        assert "PYTORCH_ALLOC_CONF" not in reason
        assert "max_restarts" not in reason


class TestAnyOther:
    def test_is_its_kind_and_its_words(self) -> None:
        assert reason_of(KeyError("width")) == "KeyError: 'width'"

    def test_is_the_last_line_of_a_traceback(self) -> None:
        told = "Traceback (most recent call last):\n  File 'x'\nValueError: no such shape\n\n"

        assert reason_of(told) == "ValueError: no such shape"

    def test_an_array_that_does_not_fit_its_place_is_no_matter_of_memory(self) -> None:
        error = ValueError("could not broadcast: memory layout of 3 bytes")

        assert "microbatch_size" not in reason_of(error)

    @given(st.text())
    def test_is_one_line_of_500_characters_at_most(self, text: str) -> None:
        reason = reason_of(RuntimeError(text))

        assert 0 < len(reason) <= 500
        assert len(reason.splitlines()) == 1

    def test_is_what_can_be_stored_and_sent(self) -> None:
        """Of a file whose name is no UTF-8, say."""
        error = ValueError("b\udce9.png\x00: no image\n\x07")

        assert reason_of(error) == "ValueError: b.png: no image"
