"""``make demo``: one study from its YAML to its statement, on this machine, then everything stopped.

``python -m service.cli.demo STUDY.yaml``. State stays in ``TAN_HOME`` (default ``.tan`` beside the
Makefile): a later demo spends from the same ledger, and ``tan-cli serve --home .tan`` shows it again.
"""

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from service import text
from service.cli import plan_view, views
from service.cli.connect import open_client
from service.cli.errors import CliError, Exit
from service.cli.follow import follow
from service.cli.live import open_display
from service.cli.output import console, show, show_error
from service.cli.settings import ClientSettings
from service.cli.study_file import read_mapping
from service.cli.submit import outcome, send
from service.client import Client
from service.local.handle import LocalService, LocalServiceError
from service.settings import Settings

Json = dict[str, Any]

CHECKOUT = Path(__file__).resolve().parents[2]
MNIST: Json = {
    "name": "mnist",
    "source": "parquet",
    "label": "label",
    "num_classes": 10,
    "epsilon": 100.0,
    "delta": 1e-3,
    "allow": ["public_proxy", "accounted", "declared_unaccounted"],
    "waiver": "demo: MNIST is published; the search on it is shown as not accounted",
}
REGISTRATIONS = {"mnist": MNIST}


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 only when the study completed."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1:
        print("usage: python -m service.cli.demo STUDY.yaml", file=sys.stderr)
        return Exit.BAD_INPUT
    # SIGINT too: what a script puts into the background is started with it ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    home = demo_home(Settings())
    try:
        return run(given[0], home)
    except CliError as error:
        show_error(error)
        if error.exit_code == Exit.OVER_BUDGET:
            print(_over_budget_advice(home), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; everything is stopped", file=sys.stderr)
        return Exit.INTERRUPTED


def run(source: str, home: Path) -> int:
    """Serve, register, submit, watch, report, stop."""
    spec = read_mapping(source)
    show(f"starting PostgreSQL, Ray, the API and the orchestrator in {home}")
    try:
        with (
            LocalService(home) as url,
            open_client(ClientSettings(api_url=url, token=_token())) as client,
        ):
            show(f"ready: dashboard and API at {url}")
            register_missing(client, dataset_names(spec), data_folders(Settings()))
            study = send(client, spec, quiet=True)
            show(f"submitted {source} as {study['id']}")
            with open_display(console(), study["name"]) as display:
                final = follow(client, study, display=display)
            show("", report(final, url=url, home=home))
            return outcome(final)
    except LocalServiceError as error:
        raise CliError(f"the service did not start: {error}\nlogs: {home / 'logs'}") from error


def demo_home(settings: Settings) -> Path:
    """``TAN_HOME`` where it is set, else ``.tan`` in the checkout."""
    return settings.home_path if "home" in settings.model_fields_set else CHECKOUT / ".tan"


def data_folders(settings: Settings) -> list[Path]:
    """Where example datasets may lie, the stated place first."""
    stated = [settings.data_dir.expanduser()] if settings.data_dir else []
    return [*stated, CHECKOUT.parent / "shared" / "data", CHECKOUT / "data"]


def dataset_names(spec: Json) -> list[str]:
    """The datasets that a study names; a malformed study is left to the server to refuse."""
    search = spec.get("search")
    proxy = search.get("dataset") if isinstance(search, dict) else None
    return [name for name in (spec.get("dataset"), proxy) if isinstance(name, str)]


def register_missing(client: Client, names: list[str], folders: list[Path]) -> None:
    """Register what the study names and the demo knows, unless that was done before."""
    registered = {dataset.name for dataset in client.list_datasets().items}
    for name in names:
        registration = REGISTRATIONS.get(name)
        if name in registered or registration is None:
            continue
        path = find_parquet(name, folders)
        client.register_dataset({**registration, "path": str(path)})
        show(
            f"registered {name} from {path}: a budget of ε = {registration['epsilon']:g}, "
            f"δ = {registration['delta']:g} in total"
        )


def find_parquet(name: str, folders: list[Path]) -> Path:
    """The folder with the dataset's two files.

    Raises:
        CliError: it is in none of the places.
    """
    for folder in folders:
        place = folder / name
        if all((place / f"{split}.parquet").is_file() for split in ("train", "test")):
            return place.resolve()
    places = "".join(f"\n  {folder / name}" for folder in folders)
    raise CliError(
        f"{name} is not at hand: train.parquet and test.parquet (columns image, label) were looked "
        f"for in{places}\nTAN_DATA_DIR names another place; examples/digits.yaml needs no file."
    )


def report(study: Json, *, url: str, home: Path) -> Any:
    """What the study came to, on one screen."""
    run_, privacy = study.get("run") or {}, study["privacy"]
    return views.facts(
        f"{study['name']}: {study['state']}" + (f" ({study['reason']})" if study["reason"] else ""),
        [
            *plan_view.summary(study["plan"]),
            ("best trial", views.best_trial(study)),
            *views.prediction_rows(study),
            ("test accuracy", f"{text.percent(run_.get('test_accuracy'))} (the private run)"),
            ("privacy", text.guarantee(privacy)),
            ("search", f"{privacy['search_accounting']}: {privacy['search_note']}"),
            ("ledger", views.ledger_line(study)),
            ("logs", str(home / "logs") if study["state"] != "completed" else None),
            ("dashboard", f"{url} (stopped now; `tan-cli serve --home {_short(home)}` shows it again)"),
        ],
    )  # fmt: skip


def _token() -> str | None:
    token = Settings().api_token
    return token.get_secret_value() if token else None


def _over_budget_advice(home: Path) -> str:
    return (
        "Each demo spends from the ledger of its dataset, and a ledger forgets nothing. For a fresh "
        f"demo ledger remove {_short(home)} (this deletes the demo's studies and models with it)."
    )


def _short(path: Path) -> str:
    """The path as one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
