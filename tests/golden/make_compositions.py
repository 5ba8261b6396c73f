"""Writes ``compositions.csv``: epsilon of runs of unlike steps, and of replaced units, by nobody's accountant.

    python tests/golden/make_compositions.py

The loss of each step is put on a grid by interpolation, which keeps its mean and bounds nothing; runs are composed in
Fourier space, and epsilon is the largest of all directions. The two grids differ by a factor of two: ``low`` and
``high`` are the finer one's epsilon, less and more by their difference and by 0.01 %. NumPy and SciPy alone: nothing of this
project, nor of dp-accounting.
"""

import csv
from pathlib import Path

import numpy as np
from scipy.special import ndtr

FILE = Path(__file__).with_name("compositions.csv")
POINTS, CELLS = 2**20, 2**20
CELL = 1e-4
MANY = " ".join(f"{3 * n + 5}x{0.01 + 0.004 * n:.3f}@{4 + n / 2:g}" for n in range(12))
ROWS = [
    ("unlike-12", "add_or_remove_one", MANY, 1e-5),
    ("unlike-12-replaced", "replace_one", MANY, 1e-5),
    ("unlike-9-releases", "add_or_remove_one", " ".join(f"1x1@{20 + n}" for n in range(9)), 1e-6),
    ("replaced-low-noise", "replace_one", "5000x0.002@1", 1e-6),
    ("replaced-lower-noise", "replace_one", "5000x0.0005@0.7", 1e-6),
]


def losses(rate: float, sigma: float, first: float, other: float) -> tuple[np.ndarray, np.ndarray]:
    """Of a step: the values, and how probable they are, where a unit has moved the mean by ``first``, against ``other``."""
    edges = np.linspace(-14 * sigma - 1, 14 * sigma + 1, POINTS + 1)
    x = (edges[1:] + edges[:-1]) / 2

    def density(moved: float) -> np.ndarray:
        return np.log1p(rate * np.expm1((2 * moved * x - moved**2) / (2 * sigma**2)))

    def mass(moved: float) -> np.ndarray:
        return np.diff(ndtr((edges - moved) / sigma))

    return density(first) - density(other), (1 - rate) * mass(0) + rate * mass(first)


def epsilon(parts: list[tuple[int, float, float]], pair: tuple[float, float], delta: float, cell: float) -> float:  # fmt: skip
    """Of all parts one after the other: so many steps at a rate and a noise."""
    spectrum, mean = np.ones(CELLS // 2 + 1, complex), 0.0
    for count, rate, sigma in parts:
        values, masses = losses(rate, sigma, *pair)
        below = np.floor(values / cell).astype(int)
        share = values / cell - below
        grid = np.bincount(below % CELLS, masses * (1 - share), CELLS)
        grid += np.bincount((below + 1) % CELLS, masses * share, CELLS)
        spectrum *= np.fft.rfft(grid) ** count
        mean += count * float(values @ masses)
    probable = np.maximum(np.fft.irfft(spectrum, CELLS), 0)
    start = round(mean / cell) - CELLS // 2
    values = (start + (np.arange(CELLS) - start) % CELLS) * cell

    def lost(tried: float) -> float:
        above = values > tried
        return float(probable[above] @ -np.expm1(tried - values[above]))

    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if lost(middle) > delta else (low, middle)
    return high


def main() -> None:
    """Compute every row anew."""
    pairs = {"add_or_remove_one": [(1.0, 0.0), (0.0, 1.0)], "replace_one": [(1.0, -1.0)]}
    with FILE.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["id", "relation", "parts", "delta", "low", "high"])
        for name, relation, written, delta in ROWS:
            parts = [(int(part.split("x")[0]), *map(float, part.split("x")[1].split("@"))) for part in written.split()]  # fmt: skip
            coarse, fine = (max(epsilon(parts, pair, delta, cell) for pair in pairs[relation]) for cell in (CELL, CELL / 2))  # fmt: skip
            margin = abs(fine - coarse) + 1e-4 * fine
            writer.writerow([name, relation, written, delta, f"{fine - margin:.6f}", f"{fine + margin:.6f}"])  # fmt: skip


if __name__ == "__main__":
    main()
