import subprocess
import sys

import pytest

HEAVY = "torch", "ray", "torchvision", "opacus"


@pytest.mark.parametrize("module", ["service.app", "service.orchestrator.__main__"])
def test_the_control_plane_starts_without_torch_and_ray(module):
    script = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"
