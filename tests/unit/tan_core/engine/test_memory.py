"""Large blocks come back from where they were freed to, and a GPU is given what it holds."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tan_core.engine import memory
from tan_core.engine.memory import views_at_once

SCRIPT = """
import resource
import torch
from tan_core.engine.memory import keep_freed_memory
kept = keep_freed_memory() if {keeps} else None
for _ in range(20):
    torch.ones(16_000_000)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_pages_of_freed_tensors_are_used_again() -> None:
    def faults(*, keeps: bool) -> tuple[str, int]:
        script = SCRIPT.format(keeps=keeps)
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        kept, count = done.stdout.split()
        return kept, int(count)

    kept, few = faults(keeps=True)
    _, many = faults(keeps=False)

    assert kept == "True"
    # 20 tensors of 64 MB are 312,500 pages.
    assert few < many - 200_000


class Large(nn.Module):
    """Of whose views a GPU holds some at once, and is told how many were asked of it."""

    def __init__(self, *, holds: int) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.holds, self.asked = holds, []

    def forward(self, x: Tensor) -> Tensor:
        self.asked.append(len(x))
        if len(x) > self.holds:
            raise torch.OutOfMemoryError
        return self.layer(x)

    def __deepcopy__(self, _: dict) -> "Large":
        return self  # the probe's questions are looked at


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[Large, float], None]:
    """What torch says of a GPU's memory; none is here."""

    def of(model: Large, bytes_of_a_view: float) -> None:
        peak = lambda _: int(bytes_of_a_view * model.asked[-1])  # noqa: E731
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", peak)

    for name in ("reset_peak_memory_stats", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
    monkeypatch.setattr(memory, "_taken", {})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2**34, 2**35))
    return of


@pytest.mark.parametrize(
    ("holds", "bytes_of_a_view", "share", "expected"),
    [
        (10_000, 1e6, 1.0, 8192),
        (10_000, 1e7, 1.0, 512),
        (10_000, 1e7, 0.25, 256),
        (10_000, 5e7, 1.0, 256),
        (50, 3e8, 1.0, 16),
        (20, 8e8, 1.0, 8),
        (4, 4e9, 1.0, 2),
    ],
)
def test_a_gpu_is_given_as_many_views_as_it_holds(
    holds: int,
    bytes_of_a_view: float,
    share: float,
    expected: int,
    gpu: Callable[[Large, float], None],
) -> None:
    model = Large(holds=holds)
    gpu(model, bytes_of_a_view)
    assert views_at_once(model, (3,), share=share, device="cpu") == expected
    assert model.asked[0] == 64
    assert model.asked[-1] <= holds


def test_all_views_of_one_example_have_to_fit(gpu: Callable[[Large, float], None]) -> None:
    model = Large(holds=10)
    gpu(model, 1e9)
    with pytest.raises(torch.OutOfMemoryError):
        views_at_once(model, (3,), views=16, device="cpu")
    assert model.asked == [64, 32, 16]
