"""The table of models is held to the registry and to the planner's closed forms."""

import re
from pathlib import Path

import pytest

from tan_core.planner import model_cost
from tan_core.spec.models import ACCEPTED_NAMES, MODEL_SOURCES, MODEL_TYPES

TEXT = (Path(__file__).parents[3] / "docs" / "models.md").read_text()
ROWS = {
    row[0]: row[1:] for row in re.findall(r"^\| `([^`]+)` \| (.+) \| (.+) \| (.+) \| (.+) \|$", TEXT, re.MULTILINE)
}  # fmt: skip
SHAPES = [(1, 28, 28), (3, 32, 32)]
KINDS = MODEL_TYPES | {
    "timm:NAME": MODEL_SOURCES["timm"],
    "python:MODULE:FACTORY": MODEL_SOURCES["python"],
}


def test_it_lists_what_a_study_may_name_and_nothing_else() -> None:
    assert tuple(name for name in ROWS if name != "model.name") == ACCEPTED_NAMES


@pytest.mark.parametrize("name", KINDS)
def test_every_option_is_named(name: str) -> None:
    named = set(re.findall(r"`(\w+)`", ROWS[name][0]))

    assert named == KINDS[name].model_fields.keys() - {"name", "pretrained"}


@pytest.mark.parametrize("name", MODEL_TYPES)
def test_the_sizes_are_those_of_the_plan(name: str) -> None:
    spec = MODEL_TYPES[name].model_validate({"name": name})
    sizes = [model_cost(spec, shape=shape, num_classes=10) for shape in SHAPES]

    assert [size and f"{size.num_parameters:,}" for size in sizes] == list(ROWS[name][1:3])
