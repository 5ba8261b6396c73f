"""The process that runs Opacus' PRV accountant: a JSON request a line on stdin, an answer a line on stdout.

A process of its own, because the accountant may ask for gigabytes or run for minutes, and neither can
be stopped from inside. Each request has a fork of it, under limits of its own, so what takes most of an answer's
time, to import scipy, is done once. It ends when its stdin does, or when nobody has asked for a while.

Opacus' PRV files use numpy and scipy only, but its packages import torch; they are entered here through
empty parents, so this process starts without torch.
"""

import json
import os
import resource
import select
import sys
import time
import types
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

IDLE_SECONDS = 60.0


def main() -> None:
    """Answer ``{"answer": ...}``, ``{"error": ...}`` or ``{"signal": ...}``, with the processor time of the first two."""
    try:
        _enter_without_torch()
        import opacus.accountants.prv  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        broken = {"error": f"{type(error).__name__}: {error}"}
    else:
        broken = None
    while select.select([sys.stdin], [], [], IDLE_SECONDS)[0] and (line := sys.stdin.readline()):
        json.dump(broken or _of_a_fork(json.loads(line)), sys.stdout)
        sys.stdout.write("\n")
        sys.stdout.flush()


def _of_a_fork(request: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            with open(writing, "w") as file:
                json.dump(_limited(request), file)
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as file:
        told = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(told) if told else {"signal": -status}


def _limited(request: dict[str, Any]) -> dict[str, Any]:
    try:
        resource.setrlimit(resource.RLIMIT_AS, (request["memory_bytes"],) * 2)
        seconds = request["cpu_seconds"]
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        answer = {"answer": _answer(request)}
    except MemoryError:
        answer = {"error": "it ran out of the memory it was given"}
    except Exception as error:  # noqa: BLE001 - whatever it was, the parent is to know the reason
        answer = {"error": f"{type(error).__name__}: {error}"}
    return {**answer, "cpu_seconds": time.process_time()}


def _answer(request: dict[str, Any]) -> float:
    """The upper end of the accountant's interval: of epsilon at a delta, or of delta at an epsilon."""
    from opacus.accountants.prv import PRVAccountant

    warnings.simplefilter("ignore")
    accountant = PRVAccountant()
    accountant.history = [tuple(entry) for entry in request["history"]]
    errors = {"eps_error": request["eps_error"], "delta_error": request["delta_error"]}
    if "delta" in request:
        return float(accountant.get_epsilon(request["delta"], **errors))
    # The accountant has no such question; its distribution has (Gopi, Lee and Wutschitz 2021, theorem 6).
    distribution = accountant._get_dprv(**errors)  # pyright: ignore[reportPrivateUsage]
    shifted = request["epsilon"] - errors["eps_error"]
    return float(distribution.compute_delta_estimate(shifted)) + errors["delta_error"]


def _enter_without_torch() -> None:
    """Register parent packages that hold a path and nothing else."""
    spec = find_spec("opacus")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("opacus is not installed")
    root = Path(spec.submodule_search_locations[0])
    _register("opacus", root)
    _register("opacus.accountants", root / "accountants")
    optimizers = _register("opacus.optimizers", root / "nowhere")
    optimizers.__dict__["DPOptimizer"] = object  # the accountants name it in an annotation


def _register(name: str, path: Path) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__path__ = [str(path)]
    sys.modules[name] = module
    return module


if __name__ == "__main__":
    main()
