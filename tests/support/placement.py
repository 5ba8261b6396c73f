"""``python -m tests.support.placement FOLDER``: where a real Ray that says it has two GPUs places trials.

Nothing is computed on them. What the trials saw is printed as JSON.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray import tune

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
        is_writable = self.data.flags.writeable
        return {"gpu": gpu, "sharing": sharing, "file": self.file(), "is_writable": is_writable, "done": True}  # fmt: skip

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
    resources = of_trial(ray.cluster_resources(), settings(gpus_per_trial))
    tuner = tune.Tuner(
        tune.with_resources(given, resources),
        tune_config=tune.TuneConfig(num_samples=TRIALS, reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(folder / "tune"), verbose=0),
    )
    keys = ("gpu", "sharing", "file", "is_writable")
    return [{key: each.metrics[key] for key in keys} for each in tuner.fit()]


def main() -> None:
    ray.init(num_cpus=CPUS, num_gpus=GPUS, include_dashboard=False, log_to_driver=False)
    # Of another study: the node that it waits for never comes.
    waiting = ray.remote(num_gpus=16)(lambda: None).remote()
    folder = Path(sys.argv[1])
    told: dict[str, Any] = {
        "unstated": placed(None, 2, folder),
        "quarters": placed(0.25, 8, folder),
    }
    ranks = of_ranks(ray.cluster_resources(), 4, settings())
    told["ranks"] = [ranks.number, ranks.each]
    told["is_still_waiting"] = ray.wait([waiting], timeout=0)[0] == []
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
