"""Settings of the control plane: the only place in ``service`` that reads the environment."""

import difflib
import os
import re
import stat
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.hosts import checked_proxies, is_loopback
from service.rate_limit import RateLimit, parse_rate_limit
from service.webhook_urls import WebhookUrls
from tan_core.errors import TanError
from tan_core.log_records import LogFormat
from tan_core.spec.addresses import DataUrls
from tan_core.spec.base import listed
from tan_core.spec.models import ModulePrefixes
from tan_core.spec.pretrained import CheckpointDirectory

if TYPE_CHECKING:
    from tan_core.data import Storage


def _absolute(folder: Path) -> Path:
    if not folder.is_absolute():
        raise ValueError("a folder is named by its absolute path")
    return folder.resolve()


def _none_if_empty(text: object) -> object:
    return (text.strip() if isinstance(text, str) else text) or None


DataDirectories = Annotated[
    tuple[Annotated[Path, AfterValidator(_absolute)], ...], BeforeValidator(listed)
]

SHORTEST_TOKEN = 16
"""Characters of TAN_API_TOKEN where other machines are served: 64 bits where it is made of hexadecimal digits."""
_READ_ELSEWHERE = frozenset({"TAN_API_URL", "TAN_SECRETS_DIR", "TAN_TORCH", "TAN_TORCH_INDEX"})
_OF_KUBERNETES = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP)\w*)?)")
"""How it names what it tells every container of services beside it: ``TAN_SEARCH_API_SERVICE_HOST``."""
_SECRETS_DIR = Path(os.environ.get("TAN_SECRETS_DIR", "/run/secrets"))


class Settings(BaseSettings):
    """Every setting is an environment variable ``TAN_<NAME>``, or a file ``tan_<name>`` below
    ``TAN_SECRETS_DIR`` (default ``/run/secrets``), where containers find their secrets.
    """

    model_config = SettingsConfigDict(
        env_prefix="TAN_",
        extra="ignore",
        env_ignore_empty=True,  # as whoever passes on ${TAN_STORAGE:-} means it; a folder "" would be the one we are in
        hide_input_in_errors=True,  # an address or a file may hold a secret
        secrets_dir=_SECRETS_DIR if _SECRETS_DIR.is_dir() else None,
    )

    home: Path = Path("~/.tan")
    """State of a local service: database, keys, logs, checkpoints."""
    host: str = "127.0.0.1"
    port: int = Field(default=8321, ge=0, le=65535)
    root_path: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$")] = ""
    """What a proxy puts before every path, and takes off again: ``/tan``."""
    listen_fd: Annotated[tuple[int, ...], NoDecode, BeforeValidator(listed)] = ()
    """Listening sockets to serve on, inherited from a supervisor; they override ``host`` and ``port``."""
    api_workers: int = Field(default=1, ge=1, le=16)
    """API processes of ``tan-cli serve``, all behind its one port."""
    api_silence_seconds: float = Field(default=60, ge=0)
    """Of an API process, after which ``tan-cli serve`` kills it and starts it again; 0: it may hang for ever."""
    orchestrator_silence_seconds: float = Field(default=300, ge=0)
    """Of an orchestrator that comes to the end of no tick, likewise; 0: it may hang for ever."""
    api_token: Annotated[SecretStr | None, BeforeValidator(_none_if_empty)] = None
    """A token that is always good, for everything, unless it is one of the database's: those are made with
    ``tan-cli token create``, and keep their scopes and their end. Empty is unset: it would let everybody in."""
    rate_limit: Annotated[RateLimit, NoDecode, BeforeValidator(parse_rate_limit)] = RateLimit(
        per_second=500, burst=1000
    )
    """``REQUESTS_PER_SECOND,BURST`` of one token, or of one address without one."""
    trusted_proxies: Annotated[str | None, AfterValidator(checked_proxies)] = None
    """Addresses of proxies, comma separated, whose X-Forwarded-For and -Proto are believed. Where one
    is named, other machines are served."""
    database_url: SecretStr | None = None
    """``postgresql://...`` of PostgreSQL 15+, as the application role. Unset: embedded PostgreSQL."""
    database_owner_url: SecretStr | None = None
    """The role that owns the tables and runs migrations. Unset: ``database_url``."""
    database_pool: int = Field(default=16, ge=4, le=1000)
    """Connections of one process at most; an API has one more, which listens for events."""
    ray_address: str | None = None
    """Address of the Ray Jobs API, ``http://host:8265``. Unset: a local Ray is started."""
    ray_token_path: Path | None = None
    """File with the token of the Ray cluster. Unset: none is sent."""
    worker_url: str | None = None
    """How workers reach the API, where that differs from how it is bound."""
    worker_python: str | None = None
    """Interpreter of the drivers on the Ray head. Unset: this one."""
    storage: Path | None = None
    """Shared directory for checkpoints and models. Unset: ``home/runs``."""
    data_dir: Path | None = None
    """Where example datasets lie (``mnist/``, ...)."""
    allowed_data_dirs: Annotated[DataDirectories, NoDecode] = ()
    """Folders below which datasets may be registered, comma separated. Unset: any, as long as only
    this machine is served; none otherwise."""
    allowed_data_urls: Annotated[DataUrls, NoDecode] = ()
    """Addresses of object stores (``s3://bucket/data``) at and below which datasets may lie, comma
    separated. Unset: none."""
    node_cache_dir: Path | None = None
    """Folder on every node's own disk for datasets that are fetched or do not fit into memory, as
    private as they are. Unset: below ``storage``."""
    node_cache_gb: float | None = Field(default=None, gt=0)
    """Of each node's disk, at most; what was read longest ago goes first. Unset: as much as there is."""
    gpus_per_trial: float | None = Field(default=None, ge=0)
    """GPUs of one simulation; below 1 several share a GPU and its memory. Unset: one each where the Ray
    cluster has any."""
    autoscaling: bool = False
    """The Ray cluster starts nodes for what is asked for: trials and ranks are not cut to what is there."""
    allowed_model_prefixes: Annotated[ModulePrefixes, NoDecode] = ()
    """Modules and packages that ``python:`` models may be imported from, comma separated."""
    pretrained_dir: CheckpointDirectory = None
    """The folder, on storage that every node sees, below which ``model.pretrained`` may name
    checkpoints. Unset: none may be named."""
    cpus: int | None = Field(default=None, ge=1)
    """Cores for the local Ray. Unset: all."""
    max_running_studies: int = Field(default=1, ge=1)
    max_running_studies_per_tenant: int | None = Field(default=None, ge=1)
    """Of one tenant at a time. Unset: as many as run at all."""
    max_attempts: int = Field(default=5, ge=1)
    webhook_urls: Annotated[WebhookUrls, NoDecode] = ()
    """Addresses that are told when a study ends or waits for a person, comma separated."""
    webhook_secret_path: Path | None = None
    """File with the key of their signatures. Unset: ``home/webhook_secret``, made on first use."""
    heartbeat_timeout_seconds: float = Field(default=30.0, gt=0)
    progress_timeout_seconds: float = Field(default=1800.0, ge=0)
    """Without a microbatch done, after which a trial's worker, or all ranks of a private run, count as hung and
    are killed; 0: they may hang for ever."""
    tick_seconds: float = Field(default=0.5, gt=0)
    pulse_file: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """File that the orchestrator touches as long as it goes round: for a probe. Unset: none."""
    cache_retention_days: float = Field(default=30, ge=1)
    """Features below ``storage`` that no run has read for longer are deleted when a run begins."""
    event_retention_days: float | None = Field(default=None, gt=0)
    """Events of studies that have been over for longer are forgotten. Unset: they are kept."""
    webhook_retention_days: float = Field(default=90, ge=2)
    """Likewise what was sent to webhooks; longer than a message is tried for."""
    idempotency_retention_days: float = Field(default=90, ge=1)
    """How long an idempotency key is known from its first use on."""
    otlp_endpoint: str | None = Field(default=None, validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    """Where traces are sent, as OpenTelemetry names it. Unset: none are made."""
    log_format: LogFormat = "text"
    """``text`` for people, or ``json``: one object per record."""

    @property
    def serves_others(self) -> bool:
        """Whether other machines are served: on an address of theirs, or through a proxy."""
        return not is_loopback(self.host) or bool(self.trusted_proxies)

    @property
    def weak_token(self) -> str | None:
        """What to say of a token with all rights that could be guessed; None: there is none, or it could not.

        Ten wrong ones an address and then one every ten seconds is what the door allows, from any number of addresses.
        """
        if self.api_token is None or len(self.api_token.get_secret_value()) >= SHORTEST_TOKEN:
            return None
        return (
            f"TAN_API_TOKEN has fewer than {SHORTEST_TOKEN} characters, and whoever guesses it has all rights: "
            "take what `openssl rand -hex 32` prints, or unset it and use `tan-cli token create`"
        )

    @property
    def open_home(self) -> str | None:
        """What to say of a ``home`` that every user of this machine may look into; None: there is none such."""
        home = self.home_path
        mode = stat.S_IMODE(home.stat().st_mode) if home.is_dir() else 0
        if not mode & (stat.S_IROTH | stat.S_IWOTH):
            return None
        # Of the superuser: PostgreSQL, whom it does not run as, has to come through.
        closed = "711" if os.geteuid() == 0 else "700"
        return (
            f"every user of this machine may look into {home} (mode {mode:o}), where models and logs are: "
            f"chmod {closed} {home}"
        )

    @property
    def is_part(self) -> bool:
        """Whether this process is one of a deployment: where no database is named, ``tan-cli serve`` starts all."""
        return self.database_url is not None

    @cached_property
    def home_path(self) -> Path:
        """``home``, absolute."""
        return self.home.expanduser().resolve()

    @cached_property
    def storage_path(self) -> Path:
        """``storage``, absolute."""
        return (self.storage.expanduser() if self.storage else self.home_path / "runs").resolve()

    @property
    def dataset_storage(self) -> "Storage":
        """Where this machine reads datasets from and keeps them, to look at them."""
        # Here, because it brings pyarrow, and not everybody who reads settings reads datasets.
        from tan_core.data.storage import storage_of

        folder = self.node_cache_dir or self.storage_path / "cache" / "node"
        return storage_of(folder, self.node_cache_gb, self.allowed_data_urls)

    @property
    def for_drivers(self) -> dict[str, str]:
        """The environment by which drivers, and what they start on any node, are told of settings."""
        told: dict[str, object] = {
            "TAN_CACHE_DIR": self.storage_path / "cache",
            "TAN_CACHE_RETENTION_DAYS": self.cache_retention_days,
            "TAN_NODE_CACHE_DIR": self.node_cache_dir,
            "TAN_NODE_CACHE_GB": self.node_cache_gb,
            "TAN_ALLOWED_DATA_URLS": ",".join(self.allowed_data_urls),
            "TAN_ALLOWED_MODEL_PREFIXES": ",".join(self.allowed_model_prefixes),
            "TAN_PRETRAINED_DIR": self.pretrained_path or "",
            "TAN_GPUS_PER_TRIAL": self.gpus_per_trial,
            "TAN_AUTOSCALING": self.autoscaling,
            "TAN_PROGRESS_TIMEOUT_SECONDS": self.progress_timeout_seconds,
            "TAN_LOG_FORMAT": self.log_format,
        }
        return {name: str(value) for name, value in told.items() if value is not None}

    @cached_property
    def pretrained_path(self) -> Path | None:
        """``pretrained_dir``, absolute."""
        return self.pretrained_dir and self.pretrained_dir.expanduser().resolve()


class SettingsError(TanError, ValueError):
    """Variables say what their settings cannot be. They are named, and their values, which may be secret, are not."""


def read_settings() -> Settings:
    """What the environment says.

    Raises:
        SettingsError: some of it cannot be had.
    """
    try:
        return Settings()
    except ValidationError as error:
        faults = error.errors(include_input=False)
        wrong = (f"TAN_{str(each['loc'][0]).upper()}: {each['msg']}" for each in faults)
        raise SettingsError("; ".join(wrong)) from None


def unread_settings(environ: Mapping[str, str] = os.environ) -> list[str]:
    """What to say of variables that are named as our settings are, and that nobody reads.

    Example:
        >>> unread_settings({"TAN_PORT": "80", "TAN_MAX_RUNING_STUDIES": "9"})
        ['TAN_MAX_RUNING_STUDIES is no setting and changes nothing: did you mean TAN_MAX_RUNNING_STUDIES?']
    """
    known = _READ_ELSEWHERE | {f"TAN_{name.upper()}" for name in Settings.model_fields}
    found: list[str] = []
    for name in sorted(each for each in environ if each.startswith("TAN_") and each not in known):
        if (ending := _OF_KUBERNETES.search(name)) and ending.end() == len(name):
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        guess = f"did you mean {close[0]}?" if close else "the README has all, under Configuration"
        found.append(f"{name} is no setting and changes nothing: {guess}")
    return found


def child_environment(**overrides: str) -> dict[str, str]:
    """The environment for a child process: this one's, with settings replaced."""
    return {**os.environ, **overrides}


def bare_environment(**overrides: str) -> dict[str, str]:
    """The same without any of our settings: no password or token goes to whom it is not given."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TAN_")}
    return {**inherited, **overrides}


def own_settings(*, without: frozenset[str] = frozenset()) -> dict[str, str]:
    """Our settings as they stand in the environment."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("TAN_") and name not in without
    }
