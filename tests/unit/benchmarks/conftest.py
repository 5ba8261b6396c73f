"""Benchmarks are scripts beside each other: their folder is where they are imported from."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
