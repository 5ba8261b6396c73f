"""Which records two datasets share, by keyed digests."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tan_core.data import digests, inspect
from tan_core.data.digests import from_bytes, shared, to_bytes
from tests.support.image_files import image_shards

KEY = b"a key"


def table(folder: Path, name: str, rows: list[str]) -> str:
    path = folder / name
    path.write_text("\n".join(["a,b,label", *rows]) + "\n")
    return str(path)


def digests_of(path: str, **options: str) -> digests.Digests:
    found = inspect(path, digest_key=KEY, **options).record_digests
    assert found is not None
    return found


ROWS = [f"{i / 7:.4f},{i},{i % 2}" for i in range(300)]


def test_a_record_is_known_again_in_another_order_format_and_part(tmp_path: Path) -> None:
    whole = digests_of(table(tmp_path, "whole.csv", ROWS))
    fewer = digests_of(table(tmp_path, "fewer.csv", [*ROWS[200:], "1,2,0", *ROWS[:50]]))
    numbers = [row.split(",") for row in ROWS[100:160]]
    features = np.array([[float(a), float(b)] for a, b, _ in numbers], dtype=np.float32)
    np.savez(tmp_path / "some.npz", x=features, y=np.array([int(c) for *_, c in numbers]))
    some = digests_of(str(tmp_path / "some.npz"))

    assert shared(fewer, whole) == (150, 151, 300)
    assert shared(some, whole) == (60, 60, 300)
    assert shared(whole, some) == (60, 300, 60)


def test_pictures_are_known_again_in_a_table_of_their_pixels(tmp_path: Path) -> None:
    """Pixels are kept as bytes: as numbers they were other records, with a budget of their own."""
    pixels = np.random.default_rng(0).integers(0, 256, size=(120, 2, 2)).astype(np.uint8)
    labels = np.arange(120) % 2
    np.savez(tmp_path / "pictures.npz", x=pixels, y=labels)
    np.savez(tmp_path / "numbers.npz", x=pixels.reshape(120, 4).astype(np.float64), y=labels)
    rows = [
        f"{','.join(map(str, row))},{label}"
        for row, label in zip(pixels.reshape(120, 4), labels, strict=True)
    ]
    (tmp_path / "written.csv").write_text("\n".join(["a,b,c,d,label", *rows]) + "\n")

    of_pictures = digests_of(str(tmp_path / "pictures.npz"))

    for name in ("numbers.npz", "written.csv"):
        assert shared(digests_of(str(tmp_path / name)), of_pictures) == (120, 120, 120)


def test_a_negative_zero_is_no_other_number(tmp_path: Path) -> None:
    rows = [row.partition(",")[2] for row in ROWS]
    one, other = (
        digests_of(table(tmp_path, f"{name}.csv", [f"{zero},{row}" for row in rows]))
        for name, zero in (("plain", "0.0"), ("signed", "-0.0"))
    )

    assert shared(one, other) == (300, 300, 300)


def test_labels_make_no_other_record(tmp_path: Path) -> None:
    whole = digests_of(table(tmp_path, "whole.csv", ROWS))
    relabelled = [f"{row.rsplit(',', 1)[0]},{1 - int(row[-1])}" for row in ROWS]
    other = digests_of(table(tmp_path, "other.csv", relabelled))

    assert shared(other, whole) == (300, 300, 300)


def test_images_are_known_by_what_is_stored_of_them(tmp_path: Path) -> None:
    image_shards(tmp_path / "one")
    image_shards(tmp_path / "other", shards=1)

    same, of_one, of_other = shared(
        digests_of(str(tmp_path / "one")), digests_of(str(tmp_path / "other"))
    )

    # The first shard of the same noise.
    assert (same, of_one, of_other) == (20, 60, 20)


def test_images_of_class_folders_are_those_of_parquet_and_every_part_counts(tmp_path: Path) -> None:
    image_shards(tmp_path / "packed", shards=2)
    packed = pq.read_table(tmp_path / "packed").to_pydict()
    for number, image in enumerate(packed["image"]):
        file = tmp_path / "loose" / ("test" if number < 10 else "train") / "ab"[number % 2]
        file.mkdir(parents=True, exist_ok=True)
        (file / f"{number}.png").write_bytes(image["bytes"])

    one, other = (digests_of(str(tmp_path / name)) for name in ("loose", "packed"))

    assert shared(one, other) == (40, 40, 40)


def test_of_many_records_the_smallest_digests_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two samples can be compared only where each holds all digests up to its largest."""
    table(tmp_path, "train.csv", ROWS[:200])
    table(tmp_path, "test.csv", ROWS[200:])
    whole = digests_of(str(tmp_path))
    assert len(whole) == 300

    monkeypatch.setattr(digests, "MOST", 20)

    assert digests_of(str(tmp_path)).tolist() == whole[:20].tolist()


def test_what_is_kept_has_one_order_of_bytes() -> None:
    """Rows of the database outlive the machine that wrote them."""
    kept = bytes.fromhex("0000000000000001ff00000000000000")

    assert to_bytes(np.array([1, 0xFF << 56], dtype=np.uint64)) == kept
    assert from_bytes(kept).tolist() == [1, 0xFF << 56]


def test_without_the_key_nothing_is_known_again(tmp_path: Path) -> None:
    path = table(tmp_path, "whole.csv", ROWS)
    other = inspect(path, digest_key=b"another key").record_digests
    assert other is not None

    assert shared(digests_of(path), other)[0] == 0
    assert inspect(path).record_digests is None


@given(
    one=st.sets(st.integers(0, 2**64 - 1), max_size=60),
    both=st.sets(st.integers(0, 2**64 - 1), max_size=60),
    other=st.sets(st.integers(0, 2**64 - 1), max_size=60),
)
def test_what_two_samples_share_is_what_both_must_hold(
    one: set[int], both: set[int], other: set[int]
) -> None:
    """Of sets larger than is kept, the count is that of the whole sets below both samples' ends."""
    ends: list[int] = []
    kept = []
    for whole in (one | both, other | both):
        smallest = sorted(whole)[:20]
        if len(smallest) == 20:
            ends.append(smallest[-1])
        kept.append(np.array(smallest, dtype=np.uint64))
    end = min(ends, default=2**64)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digests, "MOST", 20)
        found = shared(from_bytes(to_bytes(kept[0])), kept[1])

    first, second = ({n for n in whole if n <= end} for whole in (one | both, other | both))
    assert found == (len(first & second), len(first), len(second))


def test_records_of_train_that_are_in_other_splits_are_counted_but_for_labels(
    tmp_path: Path,
) -> None:
    """Accuracies are of what was learnt by heart there."""
    flipped = [f"{row[:-1]}{1 - int(row[-1])}" for row in ROWS]
    table(tmp_path, "train.csv", ROWS[:200])
    table(tmp_path, "validation.csv", [*flipped[:3], *ROWS[200:240]])
    table(tmp_path, "test.csv", [*ROWS[240:], ROWS[7], ROWS[7]])

    found = inspect(str(tmp_path), digest_key=KEY)

    assert found.seen_in_train == {"validation": 3, "test": 2}
    assert inspect(str(tmp_path)).seen_in_train == {}


def test_records_that_a_file_has_twice_are_in_several_of_the_splits_that_are_cut(
    tmp_path: Path,
) -> None:
    twice = inspect(table(tmp_path, "twice.csv", ROWS * 2), digest_key=KEY)

    assert 60 < twice.seen_in_train["test"] < twice.num_test == 120
    assert inspect(table(tmp_path, "once.csv", ROWS), digest_key=KEY).seen_in_train == {
        "validation": 0,
        "test": 0,
    }


def test_records_that_train_has_more_than_once_are_counted_but_for_labels(tmp_path: Path) -> None:
    """Each of them is a unit of its own there, and its guarantee is for one."""
    flipped = [f"{row[:-1]}{1 - int(row[-1])}" for row in ROWS]
    table(tmp_path, "train.csv", [*ROWS[:200], *flipped[:3], ROWS[7], ROWS[2]])
    table(tmp_path, "test.csv", ROWS[240:])
    table(tmp_path, "validation.csv", [*ROWS[200:240], *ROWS[200:240]])

    assert inspect(str(tmp_path), digest_key=KEY).repeated_in_train == 9
    assert inspect(str(tmp_path)).repeated_in_train == 0


def test_those_of_users_are_not(tmp_path: Path) -> None:
    """A user may have a record as often as it likes: its gradient is clipped once."""
    rows = [f"{row},{number % 60}" for number, row in enumerate(ROWS * 2)]
    file = tmp_path / "users.csv"
    file.write_text("\n".join(["a,b,label,user", *rows]))

    assert inspect(str(file), unit="user", digest_key=KEY).repeated_in_train == 0
