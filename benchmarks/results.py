"""docs/results.md from the stored results, with its pictures.

    python benchmarks/results.py [--check]

Everything on the page comes from ``benchmarks/results``: nothing is run, nothing is written by hand but the
remarks in ``benchmarks/results/remarks.md``. ``--check`` writes nothing and ends with 1 where the page or a
picture is not what the results make.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from _results_figures import ablation, implicit_bias, ladder, order, wall
from _results_studies import lines, shortfalls
from _stored import FOLDER, runs, studies

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
PICTURES = "images"
REMARKS = FOLDER / "remarks.md"

_HEAD = """# Results

What papers report, reproduced on two CPU cores by the product itself, and what that did not reach. Made by `make results`
from what is stored in [benchmarks/results](../benchmarks/results); a test holds this page to it. What runs how fast is
measured elsewhere: [benchmarks/README.md](../benchmarks/README.md).

Every accuracy is of the test split, which is scored once, at the end. δ = 1e-5 throughout; neighbours add or remove one
record; ± is the standard deviation over seeds."""

_STUDIES = """## Studies: published accuracies

Each row is a study as a user submits it: the search chose the hyper-parameters from the space in
`benchmarks/_published_studies.py`, no value in it was chosen by hand, and the private run followed by itself.
What a space leaves fixed was, and is what a hand chose: the batch; momentum 0.9 for scatter-linear; for tanh-cnn crops padded
by 2 on MNIST and random flips on CIFAR-10; and where a model's name has an addition, that ("what did not work" says how), but for
`any-features`, of which the search chose what it is trained on, and `any-width`.
The searches read the private data and are **not accounted**, as in the papers beside them; every statement says so.
ε is by PLD, the product's default, of the mechanism that ran; the second table has what other accountants say, and what
the classical conversion of RDP says, by which most papers report. At equal ε by *that* conversion our noise would have to be
larger: compare the rows with this in mind. Published CIFAR-10 figures are on the lossless images, ours on JPEG copies.
A tenth of the training data is the validation split of the search, which no private run sees.

Any row is run again by `python benchmarks/published.py --only STUDY --seed SEED --again` (`TAN_DATA_DIR` names the folder
of the data); a private run draws from the operating system, so digits will differ."""

_WALL = """## The wall

Sander et al. (2023), Figure 2: at constant TAN (η = q √S / (√2 σ)), equal steps, ε is flat above σ of about 2 and surges
below. Exact, by PLD: `python benchmarks/figures.py --only wall`."""

_LADDER = """## The ladder of batches

Their Figure 4: accuracy over the batch at constant TAN, equal steps and learning rate. The law of the product, fitted to small
batches alone, is held against the private batch: `python benchmarks/figures.py --only ladder`."""

_ORDER = """## Order of layers, and views

Their Figure 5: a wide ResNet (depth 10, width 1) on CIFAR-10 (JPEG) shrunk to 16 pixels a side, ε = 8 at B = 4096 and
S = 1,000, simulated at B = 64, learning rate 2: `python benchmarks/figures.py --only order`. Test accuracy in percent. The
published runs (WRN-16-4, B = 4096, and simulated at 512) go over their records 205 and 26 times; here the same steps go 26
times over the first 2,500 records, 6.4 times over 10,000 and 1.4 times over all."""

_ABLATION = """## De et al.'s ablation

GroupNorm, a larger batch at equal ε = 8 and steps, standardised weights, K = 4 views, averaged weights, one after the other,
on the same small network, simulated at B = 64 over 10,000 records: `python benchmarks/figures.py --only ablation`. Learning
rates are chosen by the validation split."""

_BIAS = """## The implicit bias

Sander, Sylvestre and Durmus (2024) found that accuracy falls with the batch at constant σ/B without any clipping too. Here
with the engine's clipping and without it, on MNIST, σ/B of ε = 3 at B = 2048, S = 1,500:
`python benchmarks/implicit_bias.py`. The law of the product is fitted to all batches of a row."""


def page(pictures: Path) -> Iterator[str]:
    """The lines of the page; the pictures are drawn into the folder."""
    found = studies()
    sections = {
        _STUDIES: lambda: lines(found, pictures, PICTURES),
        _LADDER: lambda: ladder(runs("ladder"), pictures, PICTURES),
        _WALL: lambda: wall(runs("wall"), pictures, PICTURES),
        _ORDER: lambda: order(runs("order")),
        _ABLATION: lambda: ablation(runs("ablation")),
        _BIAS: lambda: implicit_bias(runs("implicit_bias"), pictures, PICTURES),
    }
    yield _HEAD
    for head, make in sections.items():
        yield ""
        yield head
        yield ""
        yield from make()
    yield ""
    yield "## What did not work, and what was not run"
    yield ""
    yield from (f"- {line}" for line in shortfalls(found))
    yield REMARKS.read_text().strip()


def write(page_at: Path, pictures: Path) -> None:
    """The page and its pictures."""
    pictures.mkdir(parents=True, exist_ok=True)
    page_at.write_text("\n".join(page(pictures)) + "\n")


def differences(scratch: Path) -> list[str]:
    """What is in docs and is not what the results make, or is missing there."""
    write(scratch / PAGE.name, scratch / PICTURES)
    made = [path for path in scratch.rglob("*") if path.is_file()]
    return [
        str(path.relative_to(scratch))
        for path in sorted(made)
        if not (there := PAGE.parent / path.relative_to(scratch)).exists()
        or there.read_bytes() != path.read_bytes()
    ]


def main() -> None:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether anything differs")
    options = parser.parse_args()
    if not options.check:
        write(PAGE, PAGE.parent / PICTURES)
        return
    with tempfile.TemporaryDirectory() as scratch:
        wrong = differences(Path(scratch))
    if wrong:
        sys.exit(f"not what the stored results make: {', '.join(wrong)}; run make results")


if __name__ == "__main__":
    main()
