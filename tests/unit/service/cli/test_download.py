"""``tan-cli download``: the file, what is said of it, and Python that really loads it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from service.cli.download import loading_example
from tan_core.engine import checkpoint
from tan_core.engine.inputs import as_floats
from tan_core.models import build
from tan_core.spec.models import MlpModel, Model, ScatterLinearModel
from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import STUDY, WEIGHTS, RecordedServer

ID = STUDY["id"]


def test_the_file_has_the_name_of_the_study_and_the_digest_of_the_service(
    cli: Cli, server: RecordedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("download", "digits-eps3")
    assert (tmp_path / "digits-eps3.safetensors").read_bytes() == WEIGHTS
    assert [path.name for path in tmp_path.iterdir()] == ["digits-eps3.safetensors"]
    assert "8 bytes, SHA-256 " in done.out
    assert 'safe_open("digits-eps3.safetensors"' in done.out
    assert done.err == ""


def test_json_has_the_digest_and_the_guarantee(
    cli: Cli, server: RecordedServer, tmp_path: Path
) -> None:
    told = json.loads(cli("download", ID, "-o", str(tmp_path / "m"), "--json").out)
    assert (told["size_bytes"], len(told["sha256"])) == (8, 64)
    assert told["privacy"] == STUDY["privacy"]


def test_the_command_that_prints_the_example_names_the_file_that_was_written(
    cli: Cli, server: RecordedServer, tmp_path: Path
) -> None:
    target = tmp_path / "a model.safetensors"

    done = cli("download", ID, "-o", str(target))

    command = f"tan-cli download {ID} -o '{target}' --example > classify.py"
    assert command in done.out.replace("\n", " ")


def test_the_example_alone_downloads_nothing(cli: Cli, server: RecordedServer) -> None:
    assert cli("download", ID, "--example").out == loading_example(Path("digits-eps3.safetensors"))
    assert not server.asked(f"GET /studies/{ID}/model")


def test_a_folder_that_is_not_there_is_named(
    cli: Cli, server: RecordedServer, tmp_path: Path
) -> None:
    done = cli("download", ID, "-o", str(tmp_path / "away" / "m"))
    assert (done.code, "cannot write" in done.err) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "shape", "named"),
    [
        (MlpModel(hidden=[5]), [1, 8, 8], {"class_names": ["été", "{b}", "c c"]}),
        (ScatterLinearModel(), [1, 8, 8], {}),
        (MlpModel(hidden=[5]), [3, 8, 8], {"class_names": None}),
        (MlpModel(hidden=[5]), [6], {}),
    ],
    ids=["grey, named", "scatter-linear", "colour", "table"],
)
def test_the_example_classifies_as_the_model_was_trained_to(
    tmp_path: Path, spec: Model, shape: list[int], named: dict[str, list[str] | None]
) -> None:
    generator = torch.Generator().manual_seed(0)
    model = build(spec, shape=shape, num_classes=3, generator=generator)  # type: ignore[arg-type]
    path = tmp_path / 'a "model".safetensors'
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    about = {"model": spec.model_dump(mode="json"), "shape": shape, "num_classes": 3} | named
    checkpoint.save_weights(path, weights, metadata=about)

    draw = np.random.default_rng(0)
    size = (8, 8) if shape[0] == 1 else (8, 8, 3)
    pixels = draw.integers(0, 256, size, dtype=np.uint8) if len(shape) == 3 else None
    if pixels is None:
        records = draw.normal(size=(2, *shape)).astype(np.float32)
        np.savetxt(tmp_path / "x.csv", records, delimiter=",")
        inputs = as_floats(torch.from_numpy(records), torch.float32)
    else:
        Image.fromarray(pixels).save(tmp_path / "x.png")
        record = torch.from_numpy(pixels.reshape(8, 8, -1)).permute(2, 0, 1)[None]
        inputs = as_floats(record, torch.float32)  # what training does with these bytes

    name = str(tmp_path / ("x.csv" if pixels is None else "x.png"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", loading_example(path), name],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        expected = model.eval()(inputs).softmax(dim=1)
    names = named.get("class_names") or range(3)
    assert done.stdout.splitlines() == [
        f"{name}: class {names[int(each.argmax())]}, {float(each.max()):.1%}" for each in expected
    ]
