"""All checks, in the order in which a step happens."""

import logging
import tempfile
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path

import torch

from worker.selftest.attempts import fresh_draws
from worker.selftest.canaries import canary_shift, one_run_audit
from worker.selftest.finding import Finding, broken
from worker.selftest.mechanism import executed_as_priced
from worker.selftest.noise import digits_of_noise, noise_of_empty_draws
from worker.selftest.rig import Lab
from worker.selftest.sampler import capped_draws, poisson_draws
from worker.selftest.sensitivity import (
    frozen_features,
    mixing_models,
    non_finite_record,
    passes_in_bfloat16,
    registered_models,
    several_views,
    weighted_classes,
)

log = logging.getLogger(__name__)

Check = Callable[[Lab], Iterator[Finding]]


def checks(*, quick: bool) -> dict[str, Check]:
    """By name; quickly: without the models that take seconds each."""
    return {
        "sampler": poisson_draws,
        "sampler.cap": capped_draws,
        "sensitivity": partial(registered_models, quick=quick),
        "sensitivity.features": frozen_features,
        "sensitivity.views": several_views,
        "sensitivity.classes": weighted_classes,
        "sensitivity.bfloat16": passes_in_bfloat16,
        "sensitivity.non_finite": non_finite_record,
        "sensitivity.mixing": mixing_models,
        "noise": noise_of_empty_draws,
        "noise.low_bits": digits_of_noise,
        "mechanism": executed_as_priced,
        "attempts": fresh_draws,
        "canaries": canary_shift,
        "audit": one_run_audit,
    }


def run(
    *, seed: int | None = None, quick: bool = False, only: Collection[str] | None = None
) -> Iterator[Finding]:
    """Each finding as soon as it is made. A check that cannot be made is a finding that failed.

    Args:
        seed: of records and keys; None: fresh from the operating system, as private runs have them.
        quick: leave out the models that take seconds each.
        only: the names of the :func:`checks` to make; None: all.
    """
    chosen = checks(quick=quick)
    if only is not None:
        chosen = {name: chosen[name] for name in only}
    threads = torch.get_num_threads()
    # The checks are many tiny tensors: threads would only wait for each other.
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory(prefix="tan-selftest-") as folder:
            lab = Lab(Path(folder), seed)
            for name, check in chosen.items():
                try:
                    yield from check(lab)
                except Exception as error:
                    log.debug("%s", name, exc_info=True)
                    yield broken(name, error)
    finally:
        torch.set_num_threads(threads)
