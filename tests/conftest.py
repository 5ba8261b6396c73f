"""Fixtures that every test may use."""

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import settings

# Beside other workers one thread each: more would only wait for each other's core. Before torch loads.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_variable, "1")

pytest_plugins = ["tests.fixtures.postgres", "tests.fixtures.api"]

# A busy machine is no bug of ours, and a test that passed passes again: examples are fixed.
# `pytest --hypothesis-profile explore` draws others.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
if settings.get_current_profile_name() == "default":
    settings.load_profile("fixed")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is collected becomes garbage: looking for some is a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
