import hashlib
import re
from pathlib import Path

import pytest

from tan_core.data.pretrained import locate, sha256_of
from tan_core.errors import PretrainedError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The allowed folder, beside others that begin like it or lie around it."""
    for folder in ("allowed/deep", "allowed-not", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.pt").write_bytes(b"weights")
    root = tmp_path / "allowed"
    (root / "out.pt").symlink_to(tmp_path / "elsewhere" / "a.pt")
    (root / "away").symlink_to(tmp_path / "elsewhere")
    (root / "in.pt").symlink_to(root / "deep" / "a.pt")
    (root / "round.pt").symlink_to(root / "round.pt")
    return root


@pytest.mark.parametrize("path", ["deep/a.pt", "in.pt", "deep/../deep/a.pt", "{root}/deep/a.pt"])
def test_a_file_below_the_folder_is_found_wherever_links_lead_within_it(
    root: Path, path: str
) -> None:
    assert locate(path.format(root=root), root) == root / "deep" / "a.pt"


@pytest.mark.parametrize(
    "path",
    [
        "../elsewhere/a.pt",
        "deep/../../elsewhere/a.pt",
        "{root}/../elsewhere/a.pt",
        "{root}-not/a.pt",
        "out.pt",
        "away/a.pt",
        "/etc/passwd",
        "../nowhere/a.pt",
        "~/a.pt/../../../elsewhere/a.pt",
    ],
)
def test_what_lies_elsewhere_is_refused_and_what_is_allowed_is_named(root: Path, path: str) -> None:
    allowed = re.escape(f"allowed by TAN_PRETRAINED_DIR: {root}")
    with pytest.raises(PretrainedError, match=allowed) as caught:
        locate(path.format(root=root), root)

    assert caught.value.field == "model.pretrained.path"


@pytest.mark.parametrize("path", ["no.pt", "deep", "", ".", "round.pt", "a" * 5000 + ".pt"])
def test_what_is_no_file_is_refused(root: Path, path: str) -> None:
    with pytest.raises(PretrainedError, match=r"is not a file below|cannot be found"):
        locate(path, root)


def test_without_a_folder_nothing_is_read(root: Path) -> None:
    with pytest.raises(PretrainedError, match="allowed by TAN_PRETRAINED_DIR: none"):
        locate(str(root / "deep" / "a.pt"), None)


def test_a_folder_that_is_a_link_is_the_one_it_leads_to(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)

    assert locate("deep/a.pt", tmp_path / "link") == root / "deep" / "a.pt"


def test_the_hash_is_of_the_bytes(root: Path) -> None:
    assert sha256_of(root / "in.pt") == hashlib.sha256(b"weights").hexdigest()
    with pytest.raises(PretrainedError, match="cannot be read"):
        sha256_of(root / "gone.pt")
