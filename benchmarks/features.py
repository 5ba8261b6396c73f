"""Features of a frozen network, shared out over the cores of a machine: beside one process that has all of them.

    python benchmarks/features.py [--quick] [--json FILE]

What a search does before its first trial, on a real Ray: wrn-16-4 without its classifier, random weights and images.
*One process* is a driver that computes all itself, by a thread for each core; *shared* begins so, and goes on
in a task for each core. By turns; Ray begins anew each time, and what its workers take to begin is counted.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median

import numpy as np
import ray
import torch
from _report import circumstances, row

from tan_core.models import build
from tan_core.models.backbone import FrozenBackbone
from tan_core.spec.models import WideResNetModel
from worker.features import Sharing
from worker.settings import WorkerSettings

SHAPE, NUMBER, QUICK, REPEATS = (3, 32, 32), 12_288, 3_072, 3
EACH = {"cpu": 1.0}
SETTINGS = WorkerSettings(api_url="http://none", run_id="none", fence=1, run_token="none")


def seconds(backbone: FrozenBackbone, images: np.ndarray, *, is_shared: bool) -> float:
    """From the first record to the last."""
    ray.init(include_dashboard=False, log_to_driver=False)
    began = time.perf_counter()
    limit = None if is_shared else 1
    with Sharing(EACH, limit, SETTINGS, is_unwanted=lambda: False) as sharing:
        made = sum(len(block) for block in sharing(backbone, images, range(len(images))))
    spent = time.perf_counter() - began
    assert made == len(images)
    ray.shutdown()
    return spent


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} images, once")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    options = parser.parse_args()
    number, repeats = (QUICK, 1) if options.quick else (NUMBER, REPEATS)
    generator = torch.Generator().manual_seed(0)
    model = build(WideResNetModel(), shape=SHAPE, num_classes=10, generator=generator)
    backbone = FrozenBackbone(dict([*model.named_children()][:-1]), "benchmark").eval()
    images = np.random.default_rng(0).integers(0, 256, (number, *SHAPE), dtype=np.uint8)
    print(circumstances())
    spent: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(repeats):
        for is_shared, found in spent.items():
            found.append(seconds(backbone, images, is_shared=is_shared))
    alone, shared = (median(spent[is_shared]) for is_shared in (False, True))
    print(f"{number:,} records: one process {alone:.1f} s, shared {shared:.1f} s, {alone / shared:.2f} times as fast")  # fmt: skip
    if options.json is not None:
        rows = [
            row("features, one process", alone, "s"),
            row("features, shared", shared, "s", "one process", alone / shared),
        ]
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
