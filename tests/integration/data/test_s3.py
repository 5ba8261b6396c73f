"""Datasets in buckets of a server that speaks S3 (moto): credentials, refusals, ranges and broken lines.

Not of the pinned versions, for botocore holds others back: ``pip install --target FOLDER s3fs 'moto[s3]'
flask-cors``, and run it with ``PYTHONPATH=FOLDER``.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import pytest

from tan_core import data
from tan_core.data import Storage, Store, remote
from tan_core.errors import DatasetError
from tests.support.datasets import dataset_ref
from tests.support.image_files import image_shards
from tests.support.ports import free_port
from tests.support.proxy import Fate, Proxy

for _needed in ("s3fs", "moto", "flask", "flask_cors"):
    pytest.importorskip(_needed, reason="needs s3fs, moto[s3] and flask-cors: see the module")

from botocore.session import Session  # noqa: E402

pytestmark = pytest.mark.slow

READER, STRANGER = "reader", "stranger"
OF_THE_READER = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::open"},
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::open/*"},
    ],
}


@dataclass
class Line:
    """What goes to the server: every request is noted, and some are broken off."""

    proxy: Proxy
    requests: list[str] = field(default_factory=list)
    broken: int = 0
    """So many answers to requests for parts of objects are still to be lost."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.proxy.port}"

    def rule(self, message: bytes) -> Fate:
        head = message.partition(b"\r\n\r\n")[0].decode("latin-1")
        self.requests.append(head)
        if self.broken and "range: bytes=" in head.lower():
            self.broken -= 1
            return Fate.ANSWER_IS_LOST
        return Fate.ARRIVES


@dataclass(frozen=True)
class Key:
    """What an identity is known by."""

    id: str
    secret: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two buckets with the same shards; it asks for no credentials until it is told to."""
    shards = tmp_path_factory.mktemp("shards")
    image_shards(shards)
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _await(url)
        for bucket in ("open", "closed"):
            httpx.put(f"{url}/{bucket}").raise_for_status()
            for file in sorted(shards.iterdir()):
                put(url, f"{bucket}/images/{file.name}", file.read_bytes())
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def reader(server: str) -> Key:
    """May list and read one bucket, and nothing else."""
    return _identity(server, READER, OF_THE_READER)


@pytest.fixture(scope="module")
def stranger(server: str) -> Key:
    return _identity(server, STRANGER, None)


@pytest.fixture
def line(server: str) -> Iterator[Line]:
    with Proxy(("127.0.0.1", int(server.rpartition(":")[2]))) as proxy:
        line = Line(proxy)
        proxy.rule = line.rule
        yield line


@pytest.fixture
def guarded(server: str) -> Iterator[None]:
    """From here on every request needs credentials that allow it."""
    _ask_for_credentials(server, after="0")
    yield
    _ask_for_credentials(server, after="inf")


@pytest.fixture
def identify(line: Line, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Sets what a worker's environment holds: an endpoint, and perhaps a key."""

    def identify(key: Key | None) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        for name, value in (
            ("AWS_ACCESS_KEY_ID", key and key.id),
            ("AWS_SECRET_ACCESS_KEY", key and key.secret),
        ):
            if value:
                monkeypatch.setenv(name, value)
            else:
                monkeypatch.delenv(name, raising=False)

    identify(Key("anybody", "anything"))
    return identify


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(Store(tmp_path / "kept"), ("s3://open", "s3://closed", "s3://none"))


def entries(storage: Storage) -> list[str]:
    assert storage.store is not None
    folder = storage.store.folder
    return [each.name for each in folder.iterdir() if each.is_dir()] if folder.is_dir() else []


@pytest.mark.usefixtures("identify")
class TestReading:
    def test_a_folder_is_read_as_if_it_lay_here(self, storage: Storage, tmp_path: Path) -> None:
        image_shards(tmp_path / "images")
        here = data.inspect(str(tmp_path / "images"))

        there = data.inspect("s3://open/images", storage=storage)
        ref = dataset_ref(there).model_copy(update={"path": "s3://open/images"})
        found = data.load_split(ref, "train", storage=storage)

        assert there.content_sha256 == here.content_sha256
        expected = data.load_split(dataset_ref(here, path=tmp_path / "images"), "train")
        assert np.array_equal(found.inputs[:], expected.inputs)
        assert np.array_equal(found.labels, expected.labels)

    def test_a_long_file_is_read_in_ranges(
        self, server: str, line: Line, storage: Storage, tmp_path: Path
    ) -> None:
        """Larger than what is read at once, and of no even number of blocks."""
        rng = np.random.default_rng(0)
        path = tmp_path / "long.npz"
        np.savez(path, x=rng.random((1500, 1000)), y=rng.integers(0, 2, 1500))
        put(server, "open/long.npz", path.read_bytes())

        there = data.inspect("s3://open/long.npz", storage=storage)

        assert there.content_sha256 == data.inspect(str(path)).content_sha256
        ranges = [
            (int(found[1]), int(found[2]))
            for each in line.requests
            if (found := re.search(r"(?i)range: bytes=(\d+)-(\d+)", each))
        ]
        assert len(ranges) > 1
        assert max(end - begin for begin, end in ranges) < 2 * remote.BLOCK < path.stat().st_size

    def test_what_was_added_to_a_bucket_is_seen_at_the_next_look(
        self, server: str, storage: Storage, tmp_path: Path
    ) -> None:
        """A process that lives for months lists each address more than once."""
        image_shards(tmp_path / "images")
        first, *others = sorted((tmp_path / "images").iterdir())
        put(server, f"open/growing/{first.name}", first.read_bytes())
        before = data.inspect("s3://open/growing", storage=storage)

        for file in others:
            put(server, f"open/growing/{file.name}", file.read_bytes())
        after = data.inspect("s3://open/growing", storage=storage)

        assert after.content_sha256 != before.content_sha256
        assert after.content_sha256 == data.inspect(str(tmp_path / "images")).content_sha256


@pytest.mark.usefixtures("guarded")
class TestCredentials:
    def test_a_key_that_may_read_reads(self, storage: Storage, identify, reader: Key) -> None:
        identify(reader)

        assert data.inspect("s3://open/images", storage=storage).num_classes > 1

    @pytest.mark.parametrize("bucket", ["closed", "none"])
    def test_another_bucket_is_refused_by_its_address(
        self, storage: Storage, identify, reader: Key, bucket: str
    ) -> None:
        identify(reader)

        with pytest.raises(DatasetError, match=f"s3://{bucket}/images: cannot be read") as refusal:
            data.inspect(f"s3://{bucket}/images", storage=storage)

        assert refusal.value.field == "path"
        assert reader.secret not in str(refusal.value)
        assert entries(storage) == []

    def test_who_may_nothing_reads_nothing(self, storage: Storage, identify, stranger: Key) -> None:
        identify(stranger)

        with pytest.raises(DatasetError, match="s3://open/images: cannot be read: PermissionError"):
            data.inspect("s3://open/images", storage=storage)

    @pytest.mark.parametrize("key", [Key("AKIAUNKNOWN", "secret"), None], ids=["wrong", "none"])
    def test_a_key_that_is_none_opens_nothing(
        self, storage: Storage, identify, key: Key | None
    ) -> None:
        identify(key)

        with pytest.raises(DatasetError, match="s3://open/images: cannot be read"):
            data.inspect("s3://open/images", storage=storage)

    def test_a_key_that_was_changed_is_used_from_then_on(
        self, storage: Storage, identify, reader: Key, stranger: Key
    ) -> None:
        identify(stranger)
        with pytest.raises(DatasetError):
            data.inspect("s3://open/images", storage=storage)

        identify(reader)

        assert data.inspect("s3://open/images", storage=storage).num_classes > 1


@pytest.mark.usefixtures("identify")
class TestBrokenLine:
    def test_an_answer_that_broke_off_is_asked_for_again(
        self, line: Line, storage: Storage, tmp_path: Path
    ) -> None:
        image_shards(tmp_path / "images")
        line.broken = 2

        there = data.inspect("s3://open/images", storage=storage)

        assert line.broken == 0
        assert there.content_sha256 == data.inspect(str(tmp_path / "images")).content_sha256

    def test_a_line_that_stays_broken_is_named_and_nothing_is_kept(
        self, line: Line, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # five with pauses take minutes
        line.broken = 10**6

        with pytest.raises(DatasetError, match=r"open/images/.*: cannot be read") as refusal:
            data.inspect("s3://open/images", storage=storage)

        assert refusal.value.field == "path"
        assert entries(storage) == []


def put(url: str, key: str, content: bytes) -> None:
    httpx.put(f"{url}/{key}", content=content).raise_for_status()


def _identity(url: str, name: str, policy: dict | None) -> Key:
    iam = Session().create_client(
        "iam",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    iam.create_user(UserName=name)
    if policy is not None:
        iam.put_user_policy(UserName=name, PolicyName=name, PolicyDocument=json.dumps(policy))
    made = iam.create_access_key(UserName=name)["AccessKey"]
    return Key(made["AccessKeyId"], made["SecretAccessKey"])


def _ask_for_credentials(url: str, *, after: str) -> None:
    httpx.post(f"{url}/moto-api/reset-auth", content=after).raise_for_status()


def _await(url: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            httpx.get(f"{url}/moto-api/", timeout=5)
            return
        time.sleep(0.1)
    raise AssertionError("moto did not start")
