"""A run says which commit of the code executed it, and nothing where that is not known."""

import subprocess
from pathlib import Path

import pytest

from worker import leader
from worker.provenance import commit
from worker.settings import WorkerSettings


def git(root: Path, *words: str) -> str:
    who = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *who, *words], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "module.py").write_text("x = 1\n")
    git(tmp_path, "init")
    git(tmp_path, "add", "module.py")
    git(tmp_path, "commit", "--message", "first")
    return tmp_path


def test_a_checkout_is_told_by_its_whole_commit(checkout: Path) -> None:
    git(checkout, "tag", "--annotate", "v1", "--message", "release")
    (checkout / "notes.txt").write_text("not tracked")

    assert commit(checkout) == git(checkout, "rev-parse", "HEAD")


def test_a_tracked_file_that_was_changed_is_told(checkout: Path) -> None:
    (checkout / "module.py").write_text("x = 2\n")

    assert commit(checkout) == f"{git(checkout, 'rev-parse', 'HEAD')}-dirty"


def test_a_worktree_is_a_checkout(checkout: Path) -> None:
    other = checkout / "other"
    git(checkout, "worktree", "add", str(other))
    git(other, "commit", "--allow-empty", "--message", "second")

    assert commit(other) == git(other, "rev-parse", "HEAD") != commit(checkout)


def test_installed_code_inside_somebody_elses_repository_is_not_told_by_it(checkout: Path) -> None:
    installed = checkout / "site-packages"
    installed.mkdir()

    assert commit(installed) is None


def test_nothing_is_told_without_git(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    assert commit(checkout) is None


def test_a_repository_without_a_commit_tells_none(tmp_path: Path) -> None:
    git(tmp_path, "init")

    assert commit(tmp_path) is None


@pytest.mark.parametrize(
    ("of_image", "of_checkout", "told"),
    [(None, "12-dirty", "12-dirty"), ("34", "12", "34"), ("", None, None)],
)
@pytest.mark.parametrize("image", [None, "", "tan-search-worker:0.1.0"])
def test_software_names_the_commit_of_the_image_or_of_the_checkout_and_the_image(
    of_image: str | None,
    of_checkout: str | None,
    told: str | None,
    image: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader, "commit", lambda: of_checkout)
    settings = WorkerSettings.model_construct(code_commit=of_image, image=image)

    software = leader.software(settings)

    assert software.get("commit") == told
    assert software.get("image") == (image or None)
