"""Log records for people and for machines."""

import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest

from tan_core import log_records

log = logging.getLogger("tests.log_records")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    log_records.configure("text")
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def written(stream: io.StringIO) -> dict:
    (line,) = stream.getvalue().splitlines()
    return json.loads(line)


def test_a_record_is_one_object_with_what_is_known_of_its_origin(stream):
    log_records.configure("json", stream=stream)
    with log_records.bind(study_id="s-1", run_id=lambda: "s-1-search", attempt=lambda: None):
        log.warning("lost\nan attempt after %d s", 30)
    record = written(stream)
    assert record.pop("time").endswith("+00:00")
    assert record == {
        "level": "warning",
        "logger": "tests.log_records",
        "message": "lost\nan attempt after 30 s",
        "study_id": "s-1",
        "run_id": "s-1-search",
    }


def test_an_exception_is_a_field(stream):
    log_records.configure("json", stream=stream)
    try:
        raise ValueError("no such σ")
    except ValueError:
        log.exception("failed")
    record = written(stream)
    assert record["message"] == "failed"
    assert record["exception"].startswith("Traceback")
    assert record["exception"].endswith("ValueError: no such σ")


def test_what_is_bound_ends_with_its_block(stream):
    log_records.configure("text", stream=stream)
    with log_records.bind(study_id="s-1"), log_records.bind(attempt=2):
        log.info("inside")
    log.info("outside")
    inside, outside = stream.getvalue().splitlines()
    assert inside.endswith("INFO tests.log_records inside [study_id=s-1 attempt=2]")
    assert outside.endswith("outside")


def test_what_is_known_of_a_process_is_said_by_all_its_threads(stream):
    log_records.configure("json", stream=stream, run_id="s-1-private", attempt=2)
    thread = threading.Thread(target=lambda: log.info("inside"))
    with log_records.bind(attempt=3):
        thread.start()
        thread.join()
    assert {"run_id": "s-1-private", "attempt": 2}.items() <= written(stream).items()


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_no_secret_is_written(stream, log_format):
    log_records.configure(log_format, stream=stream)
    try:
        raise RuntimeError("postgresql://tan_app:hunter2@127.0.0.1:5432/tan does not answer")
    except RuntimeError:
        log.exception("sent Authorization: Bearer tan_abc.DEF-123== to postgres://x:p4ss@host/db")
    text = stream.getvalue()
    assert not {"hunter2", "DEF-123", "p4ss"} & {
        word for word in ("hunter2", "DEF-123", "p4ss") if word in text
    }
    assert "tan_app:***@127.0.0.1" in text
    assert "Bearer ***" in text


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_message_of_an_error_is_read_back_from_its_line(stream, log_format):
    log_records.configure(log_format, stream=stream, run_id="s-1-private", attempt=2)
    log.error("no answer [yet]")
    log.warning("slow")
    lines = stream.getvalue().splitlines()
    assert [log_records.error_message(line) for line in lines] == ["no answer [yet]", None]
