"""Examples in docstrings are run, and what is exported for use has one."""

import doctest
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NEED_TORCH = ("engine", "models", "testing")
PACKAGES = ("accounting", "tan", "planner")

# Functions whose use is plain from a neighbour's Example, or that need a whole study to be shown.
WITHOUT_EXAMPLE = {
    "accounting": set(),
    "tan": set(),
    "planner": {
        "candidate",
        "choose_winner",
        "may_climb",
        "observed",
        "reservations",
        "rests_on",
        "simulation",
        "standings",
    },
}


def modules() -> Iterator[str]:
    """Every module of tan_core that starts without torch."""
    for path in sorted((ROOT / "tan_core").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[1] not in NEED_TORCH:
            yield ".".join(parts).removesuffix(".__init__")


def examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = (finder.find(import_module(name)) for name in modules())
    return [example for of_module in found for example in of_module if example.examples]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_each_example_gives_what_it_shows(example: doctest.DocTest) -> None:
    report: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(example, out=report.append)
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize("package", PACKAGES)
def test_each_exported_function_has_an_example_but_those_listed(package: str) -> None:
    module = import_module(f"tan_core.{package}")
    functions = [name for name in module.__all__ if inspect.isfunction(getattr(module, name))]
    lacking = {name for name in functions if ">>>" not in (getattr(module, name).__doc__ or "")}
    assert lacking == WITHOUT_EXAMPLE[package]
