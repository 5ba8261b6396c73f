"""Reading by index: an index of ImageNet's size, and what the loader gives a second.

    python benchmarks/loader.py [--quick] [--json FILE] [--folder DIR]

1,281,167 images of 16x16 (``--quick``: 40,000) in Parquet shards, then 224x224 JPEG. Registered (every label, every
header, every byte hashed), packed into a node's store and read at random, as Poisson batches are, in a process of
its own, whose peak memory is taken. Speeds are of whole ``take`` calls of 1,024 (16x16) or 64 (224x224) random
records: read, decode, and write into one array; by one thread and by one for each core.
"""

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from _report import circumstances, row
from PIL import Image

from tan_core import data
from tan_core.data import Records, Storage, Store
from tan_core.wire import DatasetRef

IMAGENET, QUICK = 1_281_167, 40_000
SHARD_ROWS = 20_000
DISTINCT = 1000
"""Images that are encoded; each is stored many times, uncompressed, so that the disk holds them all."""
SECONDS = 5.0


@dataclass(frozen=True)
class Load:
    """Images of one kind."""

    name: str
    number: int
    side: int
    form: str
    at_once: int


def encoded(load: Load) -> list[bytes]:
    """Pictures of some structure: noise of a few pixels, enlarged."""
    rng = np.random.default_rng(0)
    pictures: list[bytes] = []
    for _ in range(min(DISTINCT, load.number)):
        coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((load.side, load.side), Image.Resampling.BICUBIC)
        noisy = np.asarray(picture) + rng.normal(0, 8, (load.side, load.side, 3))
        stream = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(stream, load.form)
        pictures.append(stream.getvalue())
    return pictures


def shards(load: Load, folder: Path) -> None:
    """The dataset, written some rows at a time."""
    folder.mkdir()
    pictures = encoded(load)
    starts = range(0, load.number, SHARD_ROWS)
    for shard, start in enumerate(starts):
        rows = range(start, min(start + SHARD_ROWS, load.number))
        table = {
            "image": [{"bytes": pictures[row % len(pictures)], "path": None} for row in rows],
            "label": pa.array([row % 1000 for row in rows], pa.int64()),
        }
        file = folder / f"train-{shard:05d}-of-{len(starts):05d}.parquet"
        pa_parquet.write_table(
            pa.table(table), file, use_dictionary=False, compression="none", row_group_size=1000
        )


def peak_mb() -> float:
    """Of this process so far; getrusage would count its parent's memory before the exec."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [each for each in lines if each.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def measure(path: Path, kept: Path, at_once: int) -> dict[str, float]:
    """In a process that has done nothing else."""
    figures = {"memory before": peak_mb()}
    start = time.perf_counter()
    facts = asdict(data.inspect(str(path)))
    figures["register"] = time.perf_counter() - start
    figures["memory of registering"] = peak_mb()
    facts = {name: facts[name] for name in DatasetRef.model_fields.keys() & facts.keys()}
    ref = DatasetRef.model_validate({"name": "made", "path": str(path), **facts})
    storage = Storage(store=Store(kept), in_memory_bytes=0)
    start = time.perf_counter()
    records = data.load_split(ref, "train", storage=storage).inputs
    assert isinstance(records, Records)
    figures["pack"] = time.perf_counter() - start
    figures["memory of packing"] = peak_mb()
    figures["records"] = float(len(records))
    start = time.perf_counter()
    again = data.load_split(ref, "train", storage=storage).inputs
    assert isinstance(again, Records)
    figures["open"] = time.perf_counter() - start
    for threads, per_second in speeds(records, at_once):
        figures[f"records a second, {threads} threads"] = per_second
    figures["memory at the end"] = peak_mb()
    return figures


def speeds(records: Records, at_once: int) -> Iterator[tuple[int, float]]:
    """Records a second by one thread and by all."""
    rng = np.random.default_rng(1)
    cores = len(os.sched_getaffinity(0))
    for threads in sorted({1, cores}):
        os.sched_setaffinity(0, range(threads))
        reader = records.__reduce__()[0](*records.__reduce__()[1])
        taken, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < SECONDS:
            reader.take(rng.integers(0, len(reader), at_once))
            taken += at_once
        yield threads, taken / spent
        os.sched_setaffinity(0, range(cores))


def main() -> None:
    """Measure, print, and write what was asked for."""
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="40,000 images")
    parser.add_argument("--json", type=Path, help="also write rows for scripts to this file")
    parser.add_argument("--folder", type=Path, help="on the disk that is to be measured")
    options = parser.parse_args()
    number = QUICK if options.quick else IMAGENET
    loads = [
        Load("16x16 PNG", number, 16, "PNG", 1024),
        Load("224x224 JPEG", 2000 if options.quick else 20_000, 224, "JPEG", 64),
    ]
    print(f"{circumstances()}\n\n| images | what | measured |\n| --- | --- | --- |")
    rows = []
    for load in loads:
        folder = Path(tempfile.mkdtemp(prefix="tan-bench-", dir=options.folder))
        try:
            shards(load, folder / "shards")
            command = [
                sys.executable,
                __file__,
                "--measure",
                str(folder / "shards"),
                str(folder / "kept"),
            ]
            answer = subprocess.run(
                [*command, str(load.at_once)], stdout=subprocess.PIPE, check=True, text=True
            ).stdout
        finally:
            shutil.rmtree(folder)
        for what, value in json.loads(answer).items():
            unit = (
                "MB"
                if what.startswith("memory")
                else "s"
                if what in ("register", "pack", "open")
                else ""
            )
            print(f"| {load.name} | {what} | {value:,.1f} {unit} |", flush=True)
            rows.append(row(f"{load.name}: {what}", value, unit))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
