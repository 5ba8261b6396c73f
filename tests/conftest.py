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


class _TellAtOnce:
    """Names what fails when it fails: an hour of tests that is cut off never comes to its summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = (crash.message if crash else str(report.longrepr)).strip().partition("\n")[0]
            terminal.ensure_newline()
            terminal.write_line(
                f"{report.nodeid}: {report.when} failed after {report.duration:.0f} s: {why}"
            )


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(_TellAtOnce(config))
