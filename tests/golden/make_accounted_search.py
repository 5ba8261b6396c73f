"""Fill the last three columns of ``accounted_search.csv`` by the oracles of ``make_accountants.py``.

    python -m tests.golden.make_accounted_search

The other columns are data: a private run, and the simulations of a search that is charged with it, as
``count x sampling_rate @ noise_multiplier`` steps; scores are steps with a sampling rate of 1. Nothing of ``tan_core`` is imported; the tests read the
table and never run this file.

``run_low, _high``     epsilon of the run alone: every loss rounded down, and up.
``low, high``          the same of run and search together.
``rdp_exact``          Rényi divergences of both by quadrature, summed, minimised over all orders.
"""

import csv
from pathlib import Path

import numpy as np
from scipy import optimize, special

from tests.golden.make_accountants import _add_cdf, _remove_cdf

TABLE = Path(__file__).with_name("accounted_search.csv")
WIDTH = 0.02  # nats between the two ends
HALF_RANGE = 24.0  # nats of total loss; beyond it the mass is far below delta

Steps = tuple[float, float, int]
"""q, sigma, S."""


def sandwich(parts: list[Steps], delta: float) -> tuple[float, float]:
    sides = [_side(parts, cdf, delta) for cdf in (_remove_cdf, _add_cdf)]
    return max(low for low, _ in sides), max(high for _, high in sides)


def _side(parts: list[Steps], cdf_of, delta: float) -> tuple[float, float]:
    total = sum(steps for _, _, steps in parts)
    grid = WIDTH / total
    half = int(HALF_RANGE / grid)
    losses = grid * np.arange(-half, half)
    spectrum = np.ones(half + 1, dtype=complex)
    for q, sigma, steps in parts:
        probs = np.diff(cdf_of(q, sigma)(losses), prepend=0.0)
        spectrum *= np.fft.rfft(np.roll(probs, half)) ** steps
    composed = np.maximum(np.roll(np.fft.irfft(spectrum, n=2 * half), half), 0)

    def excess(epsilon: float, shift: float) -> float:
        return float(composed @ -np.expm1(np.minimum(epsilon + shift - losses, 0))) - delta

    def root(shift: float) -> float:
        return float(optimize.brentq(excess, 0, HALF_RANGE / 2, args=(shift,), xtol=1e-5))

    return root(total * grid), root(0.0)


def rdp_exact(parts: list[Steps], delta: float) -> float:
    def epsilon(log_order_minus_1: float) -> float:
        order = 1 + np.exp(log_order_minus_1)
        renyi = sum(steps * _log_moment(q, sigma, order) for q, sigma, steps in parts)
        return float(
            renyi / (order - 1) + np.log1p(-1 / order) - np.log(delta * order) / (order - 1)
        )

    coarse = np.linspace(np.log(0.05), np.log(300), 120)
    best = coarse[np.argmin([epsilon(value) for value in coarse])]
    found = optimize.minimize_scalar(epsilon, bounds=(best - 0.1, best + 0.1), method="bounded")
    return float(found.fun)


def _log_moment(q: float, sigma: float, order: float) -> float:
    x = np.linspace(-20 * sigma, 40 * sigma + 60, 100_001)
    log_base = -(x**2) / (2 * sigma**2) - np.log(sigma * np.sqrt(2 * np.pi))
    with np.errstate(divide="ignore"):  # q = 1: scores read every validation record
        log_ratio = np.logaddexp(np.log1p(-q), np.log(q) + (2 * x - 1) / (2 * sigma**2))
    moment = special.logsumexp(log_base + order * log_ratio) + np.log(x[1] - x[0])
    return max(float(moment), 0.0)


def parts_of(row: dict[str, str]) -> list[Steps]:
    run = (float(row["sampling_rate"]), float(row["noise_multiplier"]), int(row["steps"]))
    simulations = []
    for each in row["simulations"].split():
        count, _, rest = each.partition("x")
        q, _, sigma = rest.partition("@")
        simulations.append((float(q), float(sigma), int(count)))
    return [run, *simulations]


def main() -> None:
    with TABLE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        parts, delta = parts_of(row), float(row["delta"])
        for name, some in (("run_", parts[:1]), ("", parts)):
            low, high = sandwich(some, delta)
            row[f"{name}low"], row[f"{name}high"] = f"{low:.5f}", f"{high:.5f}"
        row["rdp_exact"] = f"{rdp_exact(parts, delta):.5f}"
        print(row)
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
