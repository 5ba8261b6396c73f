import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.auth.secrets import run_token, server_secret, write_private


class TestServerSecret:
    def test_it_is_made_once(self, tmp_path):
        assert server_secret(tmp_path) == server_secret(tmp_path)
        assert len(server_secret(tmp_path)) == 32

    def test_only_its_owner_can_read_it(self, tmp_path):
        server_secret(tmp_path)
        assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600

    def test_racing_processes_agree(self, tmp_path):
        with ThreadPoolExecutor(8) as pool:
            found = set(pool.map(server_secret, [tmp_path] * 32))
        assert len(found) == 1

    def test_no_part_is_left_behind(self, tmp_path):
        server_secret(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["secret"]

    def test_a_truncated_secret_is_refused(self, tmp_path):
        (tmp_path / "secret").write_bytes(b"short")
        with pytest.raises(RuntimeError, match="holds 5 bytes"):
            server_secret(tmp_path)


class TestWritePrivate:
    def test_an_existing_file_is_kept(self, tmp_path):
        write_private(tmp_path / "key", b"first")
        write_private(tmp_path / "key", b"second")
        assert (tmp_path / "key").read_bytes() == b"first"

    @pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
    def test_a_file_system_without_hard_links_keeps_secrets_too(self, tmp_path, monkeypatch, code):
        def refused(*_):
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "link", refused)
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(write_private, [tmp_path / "key"] * 8, [bytes([i]) * 9 for i in range(8)])
            )
        kept = (tmp_path / "key").read_bytes()
        assert kept in [bytes([i]) * 9 for i in range(8)]
        write_private(tmp_path / "key", b"later")
        assert (tmp_path / "key").read_bytes() == kept
        assert [path.name for path in tmp_path.iterdir()] == ["key"]
        assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600

    def test_a_folder_that_cannot_be_written_is_told(self, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(errno.ENOSPC, "full")

        monkeypatch.setattr(os, "link", full)
        with pytest.raises(OSError, match="full"):
            write_private(tmp_path / "key", b"x")
        assert list(tmp_path.iterdir()) == []


class TestRunToken:
    def test_each_attempt_has_its_own(self):
        assert run_token(b"s" * 32, "r-a1") != run_token(b"s" * 32, "r-a2")

    def test_each_server_has_its_own(self):
        assert run_token(b"s" * 32, "r-a1") != run_token(b"t" * 32, "r-a1")
