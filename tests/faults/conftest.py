from collections.abc import Iterator

import pytest

from tests.support.live import LiveService


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    live = LiveService(
        tmp_path_factory.mktemp("home"), TAN_HEARTBEAT_TIMEOUT_SECONDS="15", TAN_MAX_ATTEMPTS="4"
    ).start()
    yield live
    live.stop()
