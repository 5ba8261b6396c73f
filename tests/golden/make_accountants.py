"""Fill the last three columns of ``accountants.csv`` by oracles that share no formula with the library.

    python tests/golden/make_accountants.py

The other columns are data: settings from the literature and the values found for them with other
implementations (three decimals). The tests read the table and never run this file.

``rdp_exact``    Rényi divergences by quadrature of their definition, minimised over *all* orders.
``pld_low/high`` epsilon of the loss distribution with every loss rounded down / up to a grid: a
                 sandwich of the truth, from the exact distribution function of one step's loss.
                 Left out above 2,000 steps, where it would need gigabytes, and for compositions.

Rows 42 and 43 are runs so long that their loss is normal: their ``pld`` is the closed form of the
Gaussian limit. In row 43 a step is so small that what round-off leaves in each would add up to it.

``releases`` are Gaussian releases beside the run, ``count@noise_multiplier``.
"""

import csv
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy import optimize, special

TABLE = Path(__file__).with_name("accountants.csv")
SANDWICH_WIDTH = 0.02  # nats between the two ends
HALF_RANGE = 40.0  # nats of total loss; beyond it the mass is far below delta
MAX_STEPS = 2000


def rdp_exact(
    q: float, sigma: float, steps: int, delta: float, release: tuple[int, float] | None
) -> float:
    x = np.linspace(-20 * sigma, 40 * sigma + 60, 400_001)
    log_base = -(x**2) / (2 * sigma**2) - math.log(sigma * math.sqrt(2 * math.pi))
    with np.errstate(divide="ignore"):
        log_ratio = np.logaddexp(np.log1p(-q), np.log(q) + (2 * x - 1) / (2 * sigma**2))

    def epsilon(log_order_minus_1: float) -> float:
        order = 1 + math.exp(log_order_minus_1)
        log_moment = special.logsumexp(log_base + order * log_ratio) + math.log(x[1] - x[0])
        renyi = steps * max(log_moment, 0.0) / (order - 1)
        if release is not None:
            renyi += release[0] * order / (2 * release[1] ** 2)
        return renyi + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)

    coarse = np.linspace(math.log(0.05), math.log(300), 120)
    best = coarse[np.argmin([epsilon(value) for value in coarse])]
    found = optimize.minimize_scalar(epsilon, bounds=(best - 0.1, best + 0.1), method="bounded")
    return float(found.fun)


def pld_sandwich(q: float, sigma: float, steps: int, delta: float) -> tuple[float, float]:
    both = [_sandwich(cdf, steps, delta) for cdf in (_remove_cdf(q, sigma), _add_cdf(q, sigma))]
    return max(low for low, _ in both), max(high for _, high in both)


def _crossing(q: float, sigma: float, loss: np.ndarray) -> np.ndarray:
    """The output at which the loss of removal is this large."""
    inside = (np.expm1(loss) + q) / q
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(inside > 0, sigma**2 * np.log(np.maximum(inside, 1e-320)) + 0.5, -np.inf)


def _remove_cdf(q: float, sigma: float):
    def cdf(loss):
        x = _crossing(q, sigma, loss)
        return (1 - q) * special.ndtr(x / sigma) + q * special.ndtr((x - 1) / sigma)

    return cdf


def _add_cdf(q: float, sigma: float):
    return lambda loss: special.ndtr(-_crossing(q, sigma, -loss) / sigma)


def _sandwich(cdf, steps: int, delta: float) -> tuple[float, float]:
    grid = SANDWICH_WIDTH / steps
    half = int(HALF_RANGE / grid)
    losses = grid * np.arange(-half, half)
    probs = np.diff(cdf(losses), prepend=0.0)
    # The transform is circular: index 0 of the kernel must be loss 0.
    composed = np.fft.irfft(np.fft.rfft(np.roll(probs, half)) ** steps, n=2 * half)
    composed = np.maximum(np.roll(composed, half), 0)

    def excess(epsilon: float, shift: float) -> float:
        gain = -np.expm1(np.minimum(epsilon + shift - losses, 0))
        return float(composed @ gain) - delta

    def root(shift: float) -> float:
        return float(optimize.brentq(excess, 0, HALF_RANGE / 2, args=(shift,), xtol=1e-5))

    return root(steps * grid), root(0.0)  # rounding down is rounding up, one cell lower per step


def main() -> None:
    with TABLE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        q, sigma = float(Fraction(row["sampling_rate"])), float(row["noise_multiplier"])
        steps, delta = int(row["steps"]), float(row["delta"])
        count, _, noise = row["releases"].partition("@")
        release = (int(count), float(noise)) if count else None
        row["rdp_exact"] = f"{rdp_exact(q, sigma, steps, delta, release):.5f}"
        if steps <= MAX_STEPS and release is None:
            low, high = pld_sandwich(q, sigma, steps, delta)
            row["pld_low"], row["pld_high"] = f"{low:.5f}", f"{high:.5f}"
        print(row)
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
