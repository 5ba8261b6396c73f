"""Make ``random_settings.csv``: 300 random runs, priced by two accountants that nobody here wrote.

    pip install prv-accountant dp-accounting
    python tests/golden/make_random_settings.py

Nothing of ``tan_core`` is imported. The tests read the table and never run this file.

``pld``            dp-accounting's PLD accountant, pessimistic, on a grid of 3 % of one step's deviation.
``prv_low, _high`` Microsoft's prv-accountant (Gopi, Lee and Wutschitz 2021): a rigorous interval, 0.01 to each
                   side. Empty where it gave up, or took longer than a minute.
"""

import csv
import math
import multiprocessing
from pathlib import Path

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

TABLE = Path(__file__).with_name("random_settings.csv")
ROWS, SEED = 300, 20261121
LEAST, MOST = 0.02, 20.0  # epsilon
PATIENCE_SECONDS = 60


def pld(q: float, sigma: float, steps: int, delta: float) -> float:
    deviation = q * math.sqrt(math.expm1(sigma**-2))
    accountant = PLDAccountant(value_discretization_interval=min(0.03 * deviation, 5e-3))
    accountant.compose(PoissonSampledDpEvent(q, GaussianDpEvent(sigma)), steps)
    return float(accountant.get_epsilon(delta))


def prv(q: float, sigma: float, steps: int, delta: float) -> tuple[float, float]:
    step = PoissonSubsampledGaussianMechanism(sampling_probability=q, noise_multiplier=sigma)
    accountant = PRVAccountant(
        prvs=step, max_self_compositions=steps, eps_error=0.01, delta_error=delta / 1000
    )
    low, _, high = accountant.compute_epsilon(delta=delta, num_self_compositions=steps)
    return float(low), float(high)


def main() -> None:
    rng = np.random.default_rng(SEED)
    rows: list[dict[str, object]] = []
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        while len(rows) < ROWS:
            q = float(f"{10 ** rng.uniform(-4, -0.5):.6g}")
            sigma = float(f"{10 ** rng.uniform(math.log10(0.5), math.log10(20)):.6g}")
            steps = int(10 ** rng.uniform(1, 4.3))
            delta = float(f"{10 ** rng.uniform(-9, -4):.3g}")
            epsilon = pld(q, sigma, steps, delta)
            if not LEAST < epsilon < MOST:
                continue
            job = pool.apply_async(prv, (q, sigma, steps, delta))
            low = high = ""
            try:
                low, high = (f"{end:.5f}" for end in job.get(PATIENCE_SECONDS))
            except multiprocessing.TimeoutError:
                pool.terminate()
                pool = multiprocessing.get_context("spawn").Pool(1)
            except Exception as error:
                print("gave up:", error)
            rows.append(
                {
                    "id": len(rows), "sampling_rate": q, "noise_multiplier": sigma, "steps": steps, "delta": delta,
                    "pld": f"{epsilon:.6g}", "prv_low": low, "prv_high": high,
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
