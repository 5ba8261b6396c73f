import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live import LiveService


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    live = LiveService(tmp_path_factory.mktemp("home")).start()
    yield live
    assert live.stop() == 0


@pytest.fixture(scope="session")
def mnist() -> Path:
    root = Path(os.environ.get("TAN_DATA_DIR") or Path(__file__).parents[3] / "shared" / "data")
    path = root / "mnist"
    if not (path / "train.parquet").exists():
        pytest.skip(f"MNIST is not at {path}; set TAN_DATA_DIR to a folder that holds mnist/")
    return path
