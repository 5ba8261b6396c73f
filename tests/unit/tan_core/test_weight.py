import subprocess
import sys

import pytest

HEAVY = "torch", "ray", "opacus", "dp_accounting", "matplotlib"


@pytest.mark.parametrize(
    "module", ["tan_core", "tan_core.accounting", "tan_core.tan", "tan_core.planner"]
)
def test_the_mathematics_are_imported_without_what_takes_long(module: str) -> None:
    script = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )

    assert done.stdout.strip() == "[]"
