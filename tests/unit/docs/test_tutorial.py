"""The tutorial runs, and prints what it says it prints."""

import io
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
TUTORIAL = ROOT / "docs" / "tutorial.md"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:\n\n```text\n(?P<shown>.*?)^```$)?", re.DOTALL | re.MULTILINE
)
HELD_ELSEWHERE = {
    "1.02",  # the least Rényi order: test_notation.py
    "8.57",  # where the noise's tail ended: test_sharp_edges.py
    "9.42",  # and where it ends
}


@dataclass(frozen=True)
class Block:
    """A piece of code, where it begins, and the output shown below it."""

    code: str
    line: int
    shown: str


def blocks(document: str) -> list[Block]:
    return [
        Block(found["code"], document.count("\n", 0, found.start()) + 1, found["shown"] or "")
        for found in BLOCK.finditer(document)
    ]


def outputs(document: str, *, name: str) -> list[str]:
    """What each block prints, all of them run in order in one namespace."""
    namespace: dict[str, Any] = {}
    printed: list[str] = []
    for block in blocks(document):
        code = compile("\n" * block.line + block.code, name, "exec")  # lines as in the document
        with redirect_stdout(io.StringIO()) as out:
            exec(code, namespace)
        printed.append(out.getvalue())
    return printed


@pytest.fixture(scope="module")
def printed() -> list[str]:
    return outputs(TUTORIAL.read_text(), name=str(TUTORIAL))


BLOCKS = blocks(TUTORIAL.read_text())


@pytest.mark.parametrize(
    "index", range(len(BLOCKS)), ids=[f"line {block.line}" for block in BLOCKS]
)
def test_each_block_prints_what_is_shown_below_it(index: int, printed: list[str]) -> None:
    assert printed[index] == BLOCKS[index].shown


def test_a_changed_digit_would_be_noticed() -> None:
    document = "```python\nx = 6.59\n```\n\n```python\nprint(x)\n```\n\n```text\n6.58\n```\n"
    assert outputs(document, name="a document") == ["", "6.59\n"]
    assert [block.shown for block in blocks(document)] == ["", "6.58\n"]


def test_every_fenced_text_is_code_that_runs_or_its_output() -> None:
    kinds = [kind for kind, _ in FENCED.findall(TUTORIAL.read_text())]
    shown = [block for block in BLOCKS if block.shown]
    assert kinds.count("python") == len(BLOCKS) > 0
    assert kinds.count("text") == len(shown) == len(kinds) - len(BLOCKS)


@pytest.mark.parametrize("name", ["tutorial.md", "notation.md", "sharp_edges.md"])
def test_decimals_in_the_prose_are_in_the_tutorials_blocks(name: str) -> None:
    known = " ".join(body for _, body in FENCED.findall(TUTORIAL.read_text()))
    prose = FENCED.sub("", (ROOT / "docs" / name).read_text())
    quoted = set(re.findall(r"(?<![\w./])\d+\.\d+(?!\w|\.\d|/)", prose)) - HELD_ELSEWHERE
    assert {
        number for number in quoted if not re.search(rf"\b{re.escape(number)}0*\b", known)
    } == set()
