"""Epsilon by privacy random variables (Opacus): the third voice. The safe end of its interval.

It runs in a child process under limits on time and memory, because at large epsilon it needs either
without bound (LEDGER A1: 12 of 182 settings).
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tan_core
from tan_core.errors import AccountantError
from tan_core.mechanism import Mechanism

CONVERSION = "prv upper"
TIME_LIMIT_SECONDS = 30.0
MEMORY_LIMIT_BYTES = 4 * 2**30

_MAX_EPSILON_ERROR = 0.01
_MIN_EPSILON_ERROR = 0.001
_RELATIVE_ERROR = 0.002


def prv_epsilon(mechanisms: Sequence[Mechanism], delta: float, *, rough_epsilon: float) -> float:
    """An upper bound on the epsilon of the composition.

    Args:
        mechanisms: what is composed.
        delta: in (0, 1).
        rough_epsilon: about what is expected: it sets the width of the interval.
    """
    error = min(max(_RELATIVE_ERROR * rough_epsilon, _MIN_EPSILON_ERROR), _MAX_EPSILON_ERROR)
    answer = _ask(
        {
            "history": [(m.noise_multiplier, m.sampling_rate, m.steps) for m in mechanisms],
            "delta": delta,
            "eps_error": error,
            "memory_bytes": MEMORY_LIMIT_BYTES,
        }
    )
    if "error" in answer:
        raise AccountantError(f"prv failed: {answer['error']}")
    return float(answer["epsilon"])


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    """The child's answer."""
    try:
        child = subprocess.run(
            [sys.executable, "-m", "tan_core.accounting._prv_process"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_SECONDS,
            cwd=Path(tan_core.__file__).parents[1],
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise AccountantError(f"prv failed: no answer within {TIME_LIMIT_SECONDS:g} s") from error
    try:
        return dict(json.loads(child.stdout))
    except ValueError as error:
        reason = child.stderr.strip().splitlines()[-1:] or [f"exit status {child.returncode}"]
        raise AccountantError(f"prv failed: {reason[0]}") from error
