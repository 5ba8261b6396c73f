"""``python -m tests.support.placement FOLDER``: where a real Ray that says it has two GPUs places trials.

Nothing is computed on them. What the trials, and a task that computes features, saw is printed as JSON.
"""

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray import tune
from torch import Tensor

from tan_core.data import inspect, load_split
from tan_core.errors import DatasetError
from tan_core.mechanism import Mechanism
from tan_core.models.extractor import Extractor
from tests.support.assignments import search_assignment
from tests.support.datasets import dataset_ref
from worker.at_once import devices_lent
from worker.features import UnwantedError, put_splits
from worker.places import nodes_now
from worker.resources import of_ranks, of_trial
from worker.settings import WorkerSettings

CPUS, GPUS, TRIALS = 8, 2, 8
LONGEST_SECONDS = 120.0


class Trial(tune.Trainable):
    """Runs until as many have been seen at once as are to be: its GPU, who shared it, and what it reads."""

    def setup(
        self, config: dict[str, Any], *, data: np.ndarray, folder: Path, at_once: int
    ) -> None:
        self.data, self.folder, self.at_once = data, folder, at_once

    def step(self) -> dict[str, Any]:
        (gpu,) = ray.get_runtime_context().get_accelerator_ids()["GPU"]
        (self.folder / f"{gpu}-{self.trial_id}").touch()
        until, sharing = time.monotonic() + LONGEST_SECONDS, 0
        while time.monotonic() < until:
            running = [each.name[0] for each in self.folder.glob("?-*")]
            sharing = max(sharing, running.count(gpu))
            if len(running) == self.at_once:
                (self.folder / "all").touch()
            if (self.folder / "all").exists():
                break
            time.sleep(0.1)
        time.sleep(1.0)  # for others to see it too
        (self.folder / f"{gpu}-{self.trial_id}").unlink()
        return {
            "gpu": gpu,
            "sharing": sharing,
            "file": self.file(),
            "is_writable": self.data.flags.writeable,
            "devices": devices_lent(),
            "done": True,
        }

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        return True

    def file(self) -> str:
        """What the data are mapped from."""
        address = self.data.__array_interface__["data"][0]
        for line in Path("/proc/self/maps").read_text().splitlines():
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if begin <= address < end:
                return line.partition("/")[2]
        return ""


def settings(gpus_per_trial: float | None = None) -> WorkerSettings:
    return WorkerSettings(
        api_url="http://x", run_id="r", fence=1, run_token="t", gpus_per_trial=gpus_per_trial
    )


def placed(gpus_per_trial: float | None, at_once: int, folder: Path) -> list[dict[str, Any]]:
    """What each of the trials of one search saw."""
    meeting = folder / f"meeting-{at_once}"
    meeting.mkdir()
    given = tune.with_parameters(Trial, data=np.arange(2_000_000), folder=meeting, at_once=at_once)
    resources = of_trial(nodes_now(), settings(gpus_per_trial))
    tuner = tune.Tuner(
        tune.with_resources(given, resources),
        tune_config=tune.TuneConfig(num_samples=TRIALS, reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(folder / "tune"), verbose=0),
    )
    keys = ("gpu", "sharing", "file", "is_writable", "devices")
    return [{key: each.metrics[key] for key in keys} for each in tuner.fit()]


class Listening(Extractor):
    """The first pixels. Notes where it runs; stands still, or ends its process once, where it is told to."""

    fingerprint = "listening"

    def __init__(self, folder: Path, *, seconds: float = 0.0, is_lost: bool = False) -> None:
        super().__init__()
        self.folder, self.seconds, self.is_lost = folder, seconds, is_lost
        self.driver = os.getpid()

    def forward(self, images: Tensor) -> Tensor:
        lent = ray.get_runtime_context().get_accelerator_ids()["GPU"]
        (self.folder / f"gpu-{lent[0] if lent else 'none'}").touch()
        if os.getpid() != self.driver:
            (self.folder / f"process-{os.getpid()}").touch()
            if self.is_lost and not (self.folder / "lost").exists():
                (self.folder / "lost").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds)
        return images.flatten(1)[:, 18:21]


def features(folder: Path) -> dict[str, Any]:
    """What becomes of a search's data where trials have a GPU."""
    ref = dataset_ref(inspect(None, source="digits"))
    mechanism = Mechanism(sampling_rate=0.2, noise_multiplier=1.0, clip_norm=1.0, steps=2)
    assignment = search_assignment(ref, mechanism=mechanism, search={"space": {"learning_rate": 1}})
    other = assignment.model_copy(update={"dataset": ref.model_copy(update={"num_train": 7})})
    each = of_trial(nodes_now(), settings())
    put = partial(put_splits, settings=settings(), each=each)

    found = ray.get(put(assignment, Listening(folder), is_unwanted=lambda: False))
    told: dict[str, Any] = {
        "lengths": [len(split) for split in found],
        "shapes": [split.inputs.shape[1:] for split in found],
        "gpus": sorted(file.name for file in folder.glob("gpu-*")),
    }
    try:
        put(other, Listening(folder), is_unwanted=lambda: False)
    except DatasetError as error:
        told["refused"] = str(error)
    for file in folder.glob("*-*"):
        file.unlink()
    # On processors what the driver has not done after some seconds is shared out.
    alone = Listening(folder, seconds=0.04, is_lost=True)
    shared, _ = ray.get(
        put_splits(assignment, alone, settings(), {"cpu": 1}, is_unwanted=lambda: False)
    )
    pixels = load_split(ref, "train").inputs.reshape(len(shared), -1)[:, 18:21]
    told |= {
        "processes": len([*folder.glob("process-*")]),
        "is_lost": (folder / "lost").exists(),
        "on": sorted(file.name for file in folder.glob("gpu-*")),
        "is_in_order": bool(np.abs(shared.inputs - (pixels / 127.5 - 1)).max() < 0.01),
    }
    for file in folder.glob("*-*"):
        file.unlink()
    try:
        put(
            assignment,
            Listening(folder, seconds=600),
            is_unwanted=lambda: any(folder.glob("gpu-*")),
        )
    except UnwantedError:
        told["is_unwanted"] = True
    until = time.monotonic() + LONGEST_SECONDS
    while ray.available_resources().get("GPU") != GPUS and time.monotonic() < until:
        time.sleep(0.1)
    told["free"] = ray.available_resources().get("GPU")
    return told


def main() -> None:
    ray.init(num_cpus=CPUS, num_gpus=GPUS, include_dashboard=False, log_to_driver=False)
    # Of another study: the node that it waits for never comes.
    waiting = ray.remote(num_gpus=16)(lambda: None).remote()
    folder = Path(sys.argv[1])
    told: dict[str, Any] = {
        "features": features(folder),
        "unstated": placed(None, 2, folder),
        "quarters": placed(0.25, 8, folder),
    }
    ranks = of_ranks(nodes_now(), 4, settings())
    told["ranks"] = [ranks.number, ranks.each]
    told["is_still_waiting"] = ray.wait([waiting], timeout=0)[0] == []
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
