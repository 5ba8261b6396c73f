"""Writes renyi_divergences.csv: the definition itself, integrated with 40 digits by mpmath.

python tests/golden/make_renyi_divergences.py
"""

import csv
import itertools
from pathlib import Path

from mpmath import exp, inf, log, mp, mpf, npdf, quad

SETTINGS = ((0.02, 2.0), (0.08192, 3.0), (0.0256, 2.5), (0.0001, 0.5), (0.5, 0.3), (1.0, 5.0))
ORDERS = (1.0625, 1.5, 2.0, 2.75, 5.5, 8.0, 18.0)


def divergence(rate: float, sigma: float, order: float) -> mpf:
    """Rényi divergence of one Poisson-sampled Gaussian step."""
    q, s, a = mpf(rate), mpf(sigma), mpf(order)

    def integrand(t: mpf) -> mpf:
        return npdf(t) * (1 - q + q * exp(t / s - 1 / (2 * s**2))) ** a

    places = sorted({mpf(k) / s for k in (0, 1, a / 2, a - 1, a, a + 6)} | {mpf(-8), a / s + 8})
    return log(quad(integrand, [-inf, *places, inf])) / (a - 1)


def main() -> None:
    """Write the rows."""
    mp.dps = 40
    with Path(__file__).with_name("renyi_divergences.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("sampling_rate", "noise_multiplier", "order", "divergence"))
        for (rate, sigma), order in itertools.product(SETTINGS, ORDERS):
            if order <= 60 * sigma:
                writer.writerow((rate, sigma, order, mp.nstr(divergence(rate, sigma, order), 17)))


if __name__ == "__main__":
    main()
