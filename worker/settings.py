"""Settings of a driver: the only place in ``worker`` that reads the environment."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from tan_core.log_records import LogFormat
from tan_core.spec.addresses import DataUrls
from tan_core.spec.models import ModulePrefixes
from tan_core.spec.pretrained import CheckpointDirectory

if TYPE_CHECKING:
    from tan_core.data import Storage


class WorkerSettings(BaseSettings):
    """Set by the control plane on the Ray job of one attempt, as ``TAN_<NAME>``."""

    model_config = SettingsConfigDict(env_prefix="TAN_", extra="ignore", frozen=True)

    api_url: str
    """Base URL of the control plane, as workers reach it."""
    run_id: str
    fence: int = Field(ge=1)
    """The attempt's number: reports with an older one are refused."""
    run_token: SecretStr
    """Good for this attempt of this run only."""
    cache_dir: Path | None = None
    """Where features of frozen extractors are kept, as private as the data. Unset: nowhere."""
    cache_retention_days: float = Field(default=30, ge=1)
    """What nobody has read there for longer is deleted when a driver begins."""
    node_cache_dir: Path | None = None
    """On each node's own disk, for datasets that are fetched or do not fit into memory. Unset: below
    ``cache_dir``."""
    node_cache_gb: float | None = Field(default=None, gt=0)
    """Of each node's disk, at most. Unset: as much as there is."""
    gpus_per_trial: float | None = Field(default=None, ge=0)
    """As :attr:`service.settings.Settings.gpus_per_trial`."""
    autoscaling: bool = False
    """The cluster starts nodes for what is asked for: what is there now is no limit."""
    allowed_data_urls: Annotated[DataUrls, NoDecode] = ()
    """Datasets are read from these addresses and below them, and from no other address."""
    allowed_model_prefixes: Annotated[ModulePrefixes, NoDecode] = ()
    """Modules and packages that ``python:`` models may be imported from: nothing else is."""
    pretrained_dir: CheckpointDirectory = None
    """Checkpoints to begin from are read below it, and nowhere else."""
    progress_timeout_seconds: float = Field(default=1800, ge=0)
    """As :attr:`service.settings.Settings.progress_timeout_seconds`."""
    log_format: LogFormat = "text"
    """As the service writes its own log."""
    code_commit: str | None = None
    """Of the sources that an image was made of, which is no checkout: ``deploy/Dockerfile`` sets it."""
    image: str | None = None
    """The container image that this runs in, as whoever starts it names it: none can read its own digest."""

    @property
    def storage(self) -> "Storage":
        """Where this node reads datasets from and keeps them."""
        # Here, because it brings pyarrow: by then the lease is being kept.
        from tan_core.data.storage import storage_of

        folder = self.node_cache_dir or (self.cache_dir and self.cache_dir / "node")
        return storage_of(folder, self.node_cache_gb, self.allowed_data_urls)


def quieten_ray() -> None:
    """Tell Ray, before it is imported, to keep still. What an operator has set stays."""
    for name, value in {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AIR_NEW_OUTPUT": "0",
        # The control plane keeps the scores; Tune's CSV, JSON and TensorBoard files would cost time.
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        # SIGINT is handled by worker.driver.
        "TUNE_DISABLE_SIGINT_HANDLER": "1",
        # A search is resumed from the control plane's trials, never from Tune's snapshots.
        "TUNE_GLOBAL_CHECKPOINT_S": "3600",
        # A rank that is taken away ends the attempt like any other lost one: no process has to watch.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    }.items():
        os.environ.setdefault(name, value)
