"""Write scattering.npz: what Kymatio makes of fixed random images.

    git clone KYMATIO kymatio && git -C kymatio checkout 11552ed5
    PYTHONPATH=kymatio python tests/golden/make_scattering.py

Only its two-dimensional part is imported: what else is in it does not load with recent SciPy.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

frontend: Any = import_module("kymatio.scattering2d.frontend.torch_frontend")
arrays: dict[str, Any] = {}
for scales, height, width in [(2, 28, 28), (2, 9, 14), (3, 16, 24)]:
    images = np.random.Generator(np.random.Philox(0)).random((2, 2, height, width))
    scattering = frontend.ScatteringTorch2D(scales, shape=(height, width), L=8)
    coefficients = scattering(torch.tensor(images, dtype=torch.float32)).flatten(1, 2)
    arrays[f"{scales}-{height}-{width}"] = coefficients.numpy()
np.savez_compressed(Path(__file__).with_name("scattering.npz"), **arrays)
