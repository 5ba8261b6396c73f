"""Datasets behind addresses: fetched once, held to their registration, and only from where it is allowed."""

import contextlib
import http.server
import io
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fsspec
import numpy as np
import pytest

from tan_core import data
from tan_core.data import Storage, Store, remote
from tan_core.data.store import size_of
from tan_core.errors import DatasetError
from tan_core.spec import addresses
from tan_core.wire import DatasetRef
from tests.support.datasets import dataset_ref
from tests.support.http_files import FileServer, serving
from tests.support.http_server import listening
from tests.support.image_files import image_shards


@pytest.fixture
def served(tmp_path: Path) -> Iterator[FileServer]:
    image_shards(tmp_path / "www" / "images")
    with serving(tmp_path / "www") as server:
        yield server


@pytest.fixture
def storage(tmp_path: Path, served: FileServer) -> Storage:
    return Storage(store=Store(tmp_path / "kept"), allowed_urls=(served.url,))


def registered(address: str, storage: Storage, **changes) -> DatasetRef:
    facts = data.inspect(address, storage=storage)
    return dataset_ref(facts, **changes).model_copy(update={"path": address})


def entries(storage: Storage) -> set[str]:
    assert storage.store is not None
    return {each.name.partition("-")[0] for each in storage.store.folder.iterdir() if each.is_dir()}


@dataclass
class Bucket:
    """A store as fsspec presents it; it may list and send what no honest one would."""

    files: dict[str, bytes]
    sends: bytes | None = None
    says_sizes: bool = True

    def find(self, _: str, *, detail: bool) -> dict[str, dict[str, int | None]]:
        assert detail
        return {key: self.info(key) for key in self.files}

    def info(self, key: str) -> dict[str, int | None]:
        return {"size": len(self.files[key]) if self.says_sizes else None}

    def open(self, key: str, *_: object, **__: object) -> io.BytesIO:
        return io.BytesIO(self.files[key] if self.sends is None else self.sends)


class TestFetching:
    @pytest.mark.parametrize("in_memory_bytes", [0, 2**30])
    def test_a_folder_is_read_as_if_it_lay_here(
        self, served: FileServer, storage: Storage, tmp_path: Path, in_memory_bytes: int
    ) -> None:
        here = data.inspect(str(tmp_path / "www" / "images"))
        storage = Storage(storage.store, storage.allowed_urls, in_memory_bytes)

        ref = registered(f"{served.url}/images", storage)
        found = data.load_split(ref, "train", storage=storage)

        assert ref.content_sha256 == here.content_sha256
        expected = data.load_split(dataset_ref(here, path=tmp_path / "www" / "images"), "train")
        assert np.array_equal(found.inputs[:], expected.inputs)
        assert np.array_equal(found.labels, expected.labels)

    def test_a_single_file_is_one_dataset(self, served: FileServer, storage: Storage) -> None:
        ref = registered(f"{served.url}/images/train-00000-of-00003.parquet", storage)

        assert (ref.num_train, ref.num_validation, ref.num_test) == (15, 1, 4)

    def test_what_was_fetched_is_never_asked_for_again(
        self, served: FileServer, storage: Storage
    ) -> None:
        ref = registered(f"{served.url}/images", storage)
        served.asked.clear()

        for split in ("train", "validation", "test"):
            data.verify(ref, storage=storage)
            data.load_split(ref, split, storage=storage)

        assert served.asked == []

    def test_another_node_fetches_it_once(
        self, served: FileServer, storage: Storage, tmp_path: Path
    ) -> None:
        ref = registered(f"{served.url}/images", storage)
        other = Storage(Store(tmp_path / "other"), storage.allowed_urls)

        data.load_split(ref, "train", storage=other)
        assert entries(other) == {"files"}
        served.asked.clear()
        data.load_split(ref, "test", storage=other)

        assert served.asked == []

    def test_another_node_fetches_what_it_packs(
        self, served: FileServer, storage: Storage, tmp_path: Path
    ) -> None:
        """Fetching and packing both make an entry, and of one store one process makes one at a time."""
        ref = registered(f"{served.url}/images", storage)
        other = Storage(Store(tmp_path / "other"), storage.allowed_urls, in_memory_bytes=0)

        found = data.load_split(ref, "train", storage=other)

        here = data.load_split(ref, "train", storage=storage)
        assert np.array_equal(found.inputs[:], here.inputs)
        assert entries(other) == {"files", "images"}

    def test_what_changed_since_it_was_registered_is_refused_and_not_kept(
        self, served: FileServer, storage: Storage, tmp_path: Path
    ) -> None:
        ref = registered(f"{served.url}/images", storage)
        shutil.copy(
            tmp_path / "www/images/train-00000-of-00003.parquet",
            tmp_path / "www/images/train-00001-of-00003.parquet",
        )
        other = Storage(Store(tmp_path / "other"), storage.allowed_urls)

        with pytest.raises(DatasetError, match="not the one that was registered") as caught:
            data.load_split(ref, "train", storage=other)

        assert caught.value.field == "content_sha256"
        assert entries(other) == set()

    def test_two_contents_are_never_taken_for_one_another(
        self, served: FileServer, storage: Storage, tmp_path: Path
    ) -> None:
        image_shards(tmp_path / "www" / "few", shards=1)
        refs = [registered(f"{served.url}/{name}", storage) for name in ("images", "few")]

        for ref, name in zip(refs, ("images", "few"), strict=True):
            found = data.load_split(ref, "train", storage=storage)
            here = data.inspect(str(tmp_path / "www" / name))
            assert ref.content_sha256 == here.content_sha256
            assert len(found) == here.num_train
        assert storage.store is not None
        assert len(list(storage.store.folder.glob("files-*"))) == 2

    def test_packs_outlive_the_files_that_they_were_made_of(
        self, served: FileServer, storage: Storage, tmp_path: Path
    ) -> None:
        ref = registered(f"{served.url}/images", storage)
        by_index = Storage(storage.store, storage.allowed_urls, in_memory_bytes=0)
        before = data.load_split(ref, "train", storage=by_index).inputs[:]
        assert storage.store is not None
        (files,) = storage.store.folder.glob("files-*")
        shutil.rmtree(files)
        served.asked.clear()

        assert np.array_equal(data.load_split(ref, "train", storage=by_index).inputs[:], before)
        assert served.asked == []

    def test_files_stay_while_they_are_packed(
        self, served: FileServer, storage: Storage, tmp_path: Path
    ) -> None:
        """There is room for them and not for the pack beside them."""
        ref = registered(f"{served.url}/images", storage)
        num_bytes = size_of(tmp_path / "www" / "images")
        small = Storage(Store(tmp_path / "kept", num_bytes + 1000), storage.allowed_urls, 0)

        with pytest.raises(DatasetError, match="that TAN_NODE_CACHE_GB allows"):
            data.load_split(ref, "train", storage=small)

        assert entries(small) == {"files"}

    def test_too_much_is_refused_before_it_is_fetched(
        self, served: FileServer, tmp_path: Path
    ) -> None:
        storage = Storage(Store(tmp_path / "small", max_bytes=2000), (served.url,))

        with pytest.raises(DatasetError, match="2,000 that TAN_NODE_CACHE_GB"):
            data.inspect(f"{served.url}/images", storage=storage)

        assert size_of(tmp_path / "small") == 0

    def test_data_that_cannot_be_registered_are_not_kept(
        self, served: FileServer, storage: Storage, tmp_path: Path
    ) -> None:
        (tmp_path / "www/images/train-00002-of-00003.parquet").write_bytes(b"PAR1 no")

        with pytest.raises(DatasetError, match="not a readable Parquet file"):
            data.inspect(f"{served.url}/images", storage=storage)

        assert entries(storage) == set()

    def test_memory_and_other_object_stores_are_read_through_fsspec(self, tmp_path: Path) -> None:
        """The listing and the reading of one whose names are no HTTP addresses."""
        image_shards(tmp_path / "images")
        memory = fsspec.filesystem("memory")
        memory.put(str(tmp_path / "images"), "/bucket/images", recursive=True)
        memory.pipe("/bucket/images/README.md", b"no data")
        store = Store(tmp_path / "kept")

        with remote.unregistered("memory://bucket/images", store) as (place, _):
            assert sorted(each.name for each in place.iterdir()) == [
                f"train-0000{number}-of-00003.parquet" for number in range(3)
            ]
            here = data.inspect(str(tmp_path / "images")).content_sha256
            assert data.inspect(str(place)).content_sha256 == here

    @pytest.mark.parametrize(
        "key",
        [
            "data/../../evil.csv",
            "data/.hidden/x.csv",
            "data/.x.csv",
            "data//x.csv",
            "data/a\\b.csv",
            "data/a\0.csv",
            "database/x.csv",
        ],
    )
    def test_a_key_that_would_lead_out_of_the_folder_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, key: str
    ) -> None:
        """Keys of object stores are any text, and a store may list what it was not asked for."""
        monkeypatch.setattr(remote, "_file_system", lambda _: (Bucket({key: b"1"}), "data"))

        with pytest.raises(DatasetError, match="such a name is not fetched") as caught:
            remote.listing("s3://data")
        assert caught.value.field == "path"

    def test_what_is_fetched_has_the_endings_of_data_below_the_address_alone(self) -> None:
        memory = fsspec.filesystem("memory")
        ours = ["a/1.png", "b/2.JPEG", "c.csv", "d.NPZ", "e.parquet"]
        for name in (*ours, "README.md", "x.pkl"):
            memory.pipe(f"/mixed/images/{name}", name.encode())
        memory.pipe("/mixed/images-old/1.png", b"old")

        found = remote.listing("memory://mixed/images")

        assert [(file.name, file.num_bytes) for file in found] == [(n, len(n)) for n in ours]

    @pytest.mark.parametrize("sent", [b"", b"1234567", b"123456789"])
    def test_what_is_not_as_long_as_it_was_listed_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
    ) -> None:
        bucket = Bucket({"data/x.csv": b"12345678"}, sends=sent)
        monkeypatch.setattr(remote, "_file_system", lambda _: (bucket, "data"))
        store = Store(tmp_path)

        with (
            pytest.raises(DatasetError, match="is not the 8 bytes that it was listed with"),
            remote.unregistered("s3://data", store),
        ):
            pass
        assert size_of(tmp_path) == 0

    def test_who_sends_without_end_is_left_at_the_first_block_too_many(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """There was room for as much as was listed."""
        sent = 0

        class Endless(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                nonlocal sent
                sent += 1
                return b"1234" if sent < 1000 else b""

        bucket = Bucket({"data/x.csv": b"12345678"})
        monkeypatch.setattr(bucket, "open", lambda *_, **__: Endless())
        monkeypatch.setattr(remote, "_file_system", lambda _: (bucket, "data"))

        with (
            pytest.raises(DatasetError, match="is not the 8 bytes"),
            remote.unregistered("s3://data", Store(tmp_path)),
        ):
            pass
        assert sent == 3

    def test_a_web_server_need_not_send_parts(
        self, served: FileServer, storage: Storage, tmp_path: Path
    ) -> None:
        """This one sends all of a file whatever part of it is asked for, as others do of what they compress."""
        content = np.random.default_rng(0).bytes(3 * remote.BLOCK)
        (tmp_path / "www" / "large.npz").write_bytes(content)
        assert storage.store is not None

        with remote.unregistered(f"{served.url}/large.npz", storage.store) as (place, _):
            assert place.read_bytes() == content

    def test_a_web_server_that_sends_without_end_is_left(self, tmp_path: Path) -> None:
        """Whatever was asked for is in memory before it is looked at, where it comes as one part."""
        sent: list[int] = []

        class Endless(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()

            def do_GET(self) -> None:
                self.send_response(206)
                self.end_headers()
                with contextlib.suppress(OSError):
                    for _ in range(64):
                        self.wfile.write(bytes(2**20))
                        sent.append(2**20)

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        with (
            listening(Endless) as url,
            pytest.raises(DatasetError, match="is not the 1,000 bytes"),
            remote.unregistered(f"{url}/x.npz", Store(tmp_path)),
        ):
            pass
        assert sum(sent) < 2**25

    def test_what_a_killed_look_left_goes_and_is_not_taken_for_what_lies_there_now(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may be as long."""
        bucket = Bucket({"data/x.csv": b"before"})
        monkeypatch.setattr(remote, "_file_system", lambda _: (bucket, "data"))
        store = Store(tmp_path)

        with monkeypatch.context() as killed:
            killed.setattr(Store, "drop", lambda *_: None)
            with remote.unregistered("s3://data", store):
                pass
        assert size_of(tmp_path) == 6
        bucket.files["data/x.csv"] = b"behind"
        with remote.unregistered("s3://data", store) as (place, _):
            assert (place / "x.csv").read_bytes() == b"behind"
            assert size_of(tmp_path) == 6
        assert size_of(tmp_path) == 0

    def test_two_looks_at_once_have_a_copy_each(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else the one that ends first takes that of the other away."""
        bucket = Bucket({"data/x.csv": b"before"})
        monkeypatch.setattr(remote, "_file_system", lambda _: (bucket, "data"))
        store = Store(tmp_path)

        with remote.unregistered("s3://data", store) as (place, _):
            bucket.files["data/x.csv"] = b"behind"
            with remote.unregistered("s3://data", store) as (other, keep):
                assert (other / "x.csv").read_bytes() == b"behind"
                keep("0" * 64)
            assert (place / "x.csv").read_bytes() == b"before"

    def test_what_was_only_looked_at_is_not_kept(
        self, served: FileServer, storage: Storage
    ) -> None:
        data.inspect(f"{served.url}/images", storage=storage, keep=False)

        assert entries(storage) == set()

    def test_a_store_that_does_not_say_how_long_a_file_is_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bucket = Bucket({"data/x.csv": b"1"}, says_sizes=False)
        monkeypatch.setattr(remote, "_file_system", lambda _: (bucket, "data"))

        with pytest.raises(DatasetError, match="does not say how long it is"):
            remote.listing("s3://data")

    def test_a_place_without_data_is_named(self, served: FileServer, storage: Storage) -> None:
        with pytest.raises(DatasetError, match="cannot be read: FileNotFoundError"):
            data.inspect(f"{served.url}/nothing.npz", storage=storage)

    def test_a_server_that_is_away_is_named(self, storage: Storage) -> None:
        dead = Storage(storage.store, ("http://127.0.0.1:9",))

        with pytest.raises(DatasetError, match=r"http://127\.0\.0\.1:9/x\.npz: cannot be read"):
            data.inspect("http://127.0.0.1:9/x.npz", storage=dead)


class TestAllowed:
    def test_nothing_is_unless_an_operator_says_so(
        self, served: FileServer, tmp_path: Path
    ) -> None:
        for allowed in ((), (f"{served.url}/other",), ("s3://bucket",)):
            storage = Storage(Store(tmp_path / "kept"), allowed)
            with pytest.raises(DatasetError, match="nothing is fetched"):
                data.inspect(f"{served.url}/images", storage=storage)
        assert served.asked == []

    def test_a_dataset_is_read_only_while_its_address_is_allowed(
        self, served: FileServer, storage: Storage
    ) -> None:
        ref = registered(f"{served.url}/images", storage)
        withdrawn = Storage(storage.store, ("s3://other",))

        for read in (
            lambda: data.verify(ref, storage=withdrawn),
            lambda: data.load_split(ref, "train", storage=withdrawn),
        ):
            with pytest.raises(DatasetError, match="does not lie below"):
                read()

    @pytest.mark.parametrize(
        "link",
        [
            "%2e%2e/secret/x.csv",
            "%2E%2E/secret/",
            "../secret/",
            "./",
            "..%2fsecret/",
            "x.csv?y=.csv",
        ],
    )
    def test_a_page_that_links_elsewhere_is_not_followed(self, tmp_path: Path, link: str) -> None:
        """On the same server, where the operator has allowed one folder."""
        asked: list[str] = []

        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                page = f'<a href="{link}">x</a><a href="/data/a/">a</a>'.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(page)

            do_HEAD = do_GET  # noqa: N815 - http.server's name

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        with (
            listening(Page) as url,
            pytest.raises(DatasetError, match=r"such a name is not fetched|no file of data there"),
            remote.unregistered(f"{url}/data", Store(tmp_path)),
        ):
            pass
        assert set(asked) == {"/data/", "/data/a/"}

    def test_folders_without_end_are_left(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(remote, "_MOST_FOLDERS", 20)

        class Web:
            def ls(self, folder: str, *, detail: bool) -> list[dict[str, str]]:
                assert detail
                return [{"name": f"{folder}{name}/"} for name in "ab"]

        web = (Web(), "https://host/data")
        monkeypatch.setattr(remote, "_file_system", lambda _: web)
        with pytest.raises(DatasetError, match="more than 20 folders"):
            remote.listing("https://host/data")
        monkeypatch.setattr(remote, "_MOST_FOLDERS", 2**12)
        with pytest.raises(DatasetError, match="no file of data there"):
            remote.listing("https://host/data")

    def test_a_redirect_leads_nowhere(
        self, served: FileServer, storage: Storage, tmp_path: Path
    ) -> None:
        """Where it leads is another server's decision, and may be any machine."""
        image_shards(tmp_path / "secret")
        with serving(tmp_path / "secret") as secret:
            name = "train-00000-of-00003.parquet"
            served.redirects[f"/images/{name}"] = f"{secret.url}/{name}"
            with pytest.raises(DatasetError):
                data.inspect(f"{served.url}/images", storage=storage)

            assert secret.asked == []

    @pytest.mark.parametrize(
        ("address", "prefix"),
        [
            ("s3://bucket/data", "s3://bucket/data"),
            ("s3://bucket/data/", "s3://bucket/data"),
            ("s3://bucket/data/a/b.parquet", "s3://bucket/data"),
            ("https://host:8443/data/a.npz", "https://host:8443"),
            ("gs://bucket/x", "gs://bucket"),
        ],
    )
    def test_what_lies_below_a_prefix(self, address: str, prefix: str) -> None:
        assert addresses.check_allowed(address, [prefix]) == address.removesuffix("/")

    @pytest.mark.parametrize(
        "address",
        [
            "s3://bucket/database",
            "s3://bucket/data/../secret",
            "s3://bucket/data/./x",
            "s3://bucket/data//x",
            "s3://bucket/data/%2e%2e/secret",
            "s3://bucket/data?x=http://169.254.169.254",
            "s3://bucket/data#x",
            "s3://bucket/data\\..\\x",
            "S3://bucket/data",
            "s3://user:password@bucket/data",
            "s3://other/data",
            "http://bucket/data",
            "file:///data",
            "simplecache::s3://bucket/data",
            "s3://bucket/data::http://169.254.169.254/",
            "zip://x::s3://bucket/data",
            "s3:///bucket/data",
            "s3://",
            "s3://bucket/data/ x",
        ],
    )
    def test_what_does_not(self, address: str) -> None:
        with pytest.raises(DatasetError, match="nothing is fetched") as caught:
            addresses.check_allowed(address, ["s3://bucket/data"])
        assert caught.value.field == "path"
