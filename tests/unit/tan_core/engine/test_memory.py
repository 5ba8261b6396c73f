"""Large blocks come back from where they were freed to."""

import subprocess
import sys

import pytest

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
