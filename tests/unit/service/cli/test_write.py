"""A file that a verb writes: whole, or as it was."""

import os
import threading
from pathlib import Path

import pytest

from service.cli.errors import InputError
from service.cli.schema import write
from tests.support.disks import fill, small_disk


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        (disk / "study.yaml").write_text("mine\n")
        fill(disk)
        with pytest.raises(InputError, match=r"cannot write .*study\.yaml: No space left"):
            write(disk / "study.yaml", "x" * 100_000)
        assert (disk / "study.yaml").read_text() == "mine\n"
        assert sorted(path.name for path in disk.iterdir()) == ["ballast", "study.yaml"]


def test_a_file_keeps_who_may_read_it_and_its_link(tmp_path: Path) -> None:
    file, link = tmp_path / "there" / ("e" * 250), tmp_path / "link"
    file.parent.mkdir()
    file.write_text("old")
    file.chmod(0o600)
    link.symlink_to(file)
    write(link, "ε = 3\n")
    assert file.read_bytes() == "ε = 3\n".encode()
    assert file.stat().st_mode & 0o777 == 0o600
    assert link.is_symlink()
    assert os.listdir(file.parent) == [file.name]


def test_a_new_file_is_readable_as_others_are(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    write(tmp_path / "new", "text")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write(pipe, "text")
    reader.join(10)
    assert read == ["text"]
    assert pipe.is_fifo()
