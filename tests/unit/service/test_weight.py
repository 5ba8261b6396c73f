import subprocess
import sys

import pytest

NEVER = ("torch", "ray", "torchvision", "opacus")
LATER = ("dp_accounting", "pandas", "scipy.special", "scipy.stats")
"""Half a second and more: who asks for a price waits for them, who starts the API does not."""


@pytest.mark.parametrize(
    ("module", "heavy"),
    [("service.app", (*NEVER, *LATER)), ("service.orchestrator.__main__", NEVER)],
    ids=["service.app", "service.orchestrator"],
)
def test_the_control_plane_starts_without_what_is_heavy(module, heavy):
    script = f"import sys, {module}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"
