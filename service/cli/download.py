"""``tan-cli download``: the private model as a file, and how to load it."""

import json
import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.errors import CliError
from service.cli.options import JsonFlag, StudyReference

if TYPE_CHECKING:
    from service.client.models import SavedModel

Json = dict[str, Any]

LOADING = """\
import json
import sys

import numpy as np
import torch
from PIL import Image
from pydantic import TypeAdapter
from safetensors import safe_open

from tan_core.data import read_features
from tan_core.models import build
from tan_core.spec import ModelSpec

with safe_open({path}, framework="pt") as file:
    about = {{key: json.loads(text) for key, text in file.metadata().items()}}
    weights = {{name: file.get_tensor(name) for name in file.keys()}}
spec = about["model"] | {{"pretrained": None}}  # the weights are all here
model = build(
    TypeAdapter(ModelSpec).validate_python(spec),
    shape=about["shape"],
    num_classes=about["num_classes"],
    generator=torch.Generator(),
)
model.load_state_dict(weights)
model.eval()
names = about.get("class_names") or range(about["num_classes"])  # where the dataset names its classes


def read(path):
    if any(isinstance(each, dict) for each in about.get("features") or []):  # a table with named columns
        return torch.from_numpy(read_features(path, about["features"]))
    if len(about["shape"]) == 1:  # a table: features as they are, in the order of the dataset, without a header
        # Columns of bytes (uint8) were trained on as x / 127.5 - 1: write them so.
        return torch.from_numpy(np.loadtxt(path, delimiter=",", dtype="float32", ndmin=2))
    channels, height, width = about["shape"]
    image = Image.open(path).convert("L" if channels == 1 else "RGB").resize((width, height))
    # As in training: bytes from 0 to 255 become numbers from -1 to 1, channels first.
    pixels = torch.from_numpy(np.array(image, dtype="float32")) / 127.5 - 1
    return pixels.reshape(1, height, width, channels).permute(0, 3, 1, 2)


# python classify.py IMAGE.png ..., or files of comma-separated features
for path in sys.argv[1:]:
    with torch.no_grad():
        for chances in model(read(path)).softmax(dim=1):
            print(f"{{path}}: class {{names[int(chances.argmax())]}}, {{float(chances.max()):.1%}}")
"""
"""Loads a released model and classifies files; a test runs it."""


def download(
    study: StudyReference,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; default: NAME.safetensors."),
    ] = None,
    example: Annotated[
        bool,
        typer.Option(
            "--example",
            help="Only print the Python that loads the file and classifies images with it.",
        ),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Download the private model (safetensors), check its digest, and show how to classify with it.

    A download that was cut is taken up where it ended when the command is repeated.
    """
    from service.cli.connect import find_study, open_client, readable
    from service.cli.output import show, show_json
    from service.client import ProblemError
    from service.text import guarantee

    if example and output is not None:
        print(loading_example(output), end="")
        return
    with open_client() as client:
        found = find_study(client, study)
        target = output or Path(f"{found['name']}.safetensors")
        if example:
            print(loading_example(target), end="")
            return
        try:
            with _bar(target.name, quiet=as_json) as on_progress:
                saved = client.save_model(found["id"], target, on_progress=on_progress)
        except ProblemError as refusal:
            error = readable(refusal)
            error.hint = f"tan-cli show {found['id']} says where it stands"
            raise error from refusal
        except OSError as error:
            raise CliError(f"cannot write {target}: {error.strerror or error}") from error
    if as_json:
        show_json(_document(saved, found["privacy"]))
        return
    show(
        f"{saved.path}: {saved.size_bytes:,} bytes, SHA-256 {saved.sha256} as the service states it",
        guarantee(found["privacy"]),
        f"\nClassify files with it ({_example_command(found['id'], output)}):\n",
    )
    print(loading_example(saved.path), end="")


def loading_example(path: Path) -> str:
    """Python that loads the weights at ``path`` into their model."""
    return LOADING.format(path=json.dumps(str(path), ensure_ascii=False))


def _example_command(study: str, output: Path | None) -> str:
    """That prints the same once more; it names the file where that has a name of its own."""
    named = "" if output is None else f" -o {shlex.quote(str(output))}"
    return f"tan-cli download {study}{named} --example > classify.py"


def _document(saved: "SavedModel", privacy: Json) -> Json:
    return {
        "path": str(saved.path),
        "size_bytes": saved.size_bytes,
        "sha256": saved.sha256,
        "privacy": privacy,
    }


@contextmanager
def _bar(title: str, *, quiet: bool) -> Generator[Callable[[int, int], None] | None]:
    """Something that shows how much has arrived, on a terminal."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from service.cli.output import console

    screen = console(error=True)
    if quiet or not screen.is_terminal:
        yield None
        return
    columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        *columns,
        console=screen,
        transient=True,
    ) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
