from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import Cli, cli_of
from tests.unit.service.cli.recorded import RecordedServer, serving


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedServer]:
    with serving(RecordedServer()) as recorded:
        monkeypatch.setenv("TAN_API_URL", recorded.url)
        monkeypatch.delenv("TAN_API_TOKEN", raising=False)
        yield recorded


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return cli_of(capsys)


@pytest.fixture
def study_yaml(tmp_path: Path) -> str:
    path = tmp_path / "study.yaml"
    path.write_text("name: digits-eps3\ndataset: digits\nprivacy: {epsilon: 3, delta: 1e-5}\n")
    return str(path)
