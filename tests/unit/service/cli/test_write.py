"""A file that a verb writes: whole, or as it was."""

import errno
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


@pytest.mark.parametrize(
    ("call", "number"), [("replace", errno.EBUSY), ("replace", errno.EPERM), ("chown", errno.EPERM)]
)
def test_a_file_that_cannot_be_replaced_is_written_to(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is mounted by itself, and one of somebody else."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    file = tmp_path / "file"
    file.write_text("something old")
    monkeypatch.setattr(os, call, refuse)
    write(file, "new")
    assert file.read_text() == "new"
    assert os.listdir(tmp_path) == ["file"]


def test_what_replaces_a_file_is_nobody_elses_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, modes = tmp_path / "file", list[int]()
    file.write_text("old")
    file.chmod(0o600)
    write_text = Path.write_text

    def watched(path: Path, *args: str, **kwargs: str) -> int:
        modes.append(path.stat().st_mode & 0o777)
        return write_text(path, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", watched)
    write(file, "new")
    assert modes == [0o600]


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
