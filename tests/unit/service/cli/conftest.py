from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.cli.main import run
from tests.unit.service.cli.recorded import RecordedServer, serving


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Cli = Callable[..., Outcome]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedServer]:
    with serving(RecordedServer()) as recorded:
        monkeypatch.setenv("TAN_API_URL", recorded.url)
        monkeypatch.delenv("TAN_API_TOKEN", raising=False)
        yield recorded


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = run(list(arguments))
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def study_yaml(tmp_path: Path) -> str:
    path = tmp_path / "study.yaml"
    path.write_text("name: digits-eps3\ndataset: digits\nprivacy: {epsilon: 3, delta: 1e-5}\n")
    return str(path)
