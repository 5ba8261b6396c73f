import logging
import subprocess
import sys
from pathlib import Path

import pytest

from service.local.short_logs import keep_short

WRITER = "import sys\nfor line in sys.stdin: print(line, end='', flush=True); print('.', file=sys.stderr, flush=True)"


def test_who_writes_a_long_log_goes_on_at_its_new_beginning(tmp_path: Path) -> None:
    path = tmp_path / "api.log"

    def say(writer: subprocess.Popen[str], line: str) -> None:
        assert writer.stdin
        assert writer.stderr
        writer.stdin.write(line + "\n")
        writer.stdin.flush()
        writer.stderr.readline()  # it is written

    with (
        path.open("ab") as log,
        subprocess.Popen(
            [sys.executable, "-c", WRITER],
            stdin=subprocess.PIPE, stdout=log, stderr=subprocess.PIPE, text=True,
        ) as writer,
    ):  # fmt: skip
        for line in ("first", "second"):
            say(writer, line)
            keep_short(tmp_path, max_bytes=5)
            assert (path.read_text(), path.with_suffix(".log.1").read_text()) == ("", f"{line}\n")
        say(writer, "third")
    assert path.read_text() == "third\n"


def test_short_logs_and_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "api.log").write_text("short")
    (tmp_path / "notes.txt").write_text("longer than a log may be")
    keep_short(tmp_path, max_bytes=5)
    keep_short(tmp_path / "missing")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["api.log", "notes.txt"]
    assert (tmp_path / "api.log").read_text() == "short"


def test_a_log_that_cannot_be_copied_stays_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "api.log").write_text("longer")
    (tmp_path / "api.log.1").mkdir()
    with caplog.at_level(logging.WARNING):
        keep_short(tmp_path, max_bytes=5)
    assert (tmp_path / "api.log").read_text() == "longer"
    assert "cannot be shortened" in caplog.text
