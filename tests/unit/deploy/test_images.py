"""The Dockerfile: what a build fetches is pinned, and an edit of the sources fetches nothing."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from worker.settings import WorkerSettings

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
SOURCES = {"tan_core", "service", "worker"}


def stages() -> dict[str, list[str]]:
    """Instructions by the stage they are in, each on a line of its own."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    found: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if line.startswith("FROM "):
            name = line.split()[-1]
        if line and not line.startswith("#"):
            found.setdefault(name, []).append(line)
    return found


def copies_sources(line: str) -> bool:
    return line.startswith("COPY ") and "--from" not in line and bool(set(line.split()) & SOURCES)


def fetches(line: str) -> bool:
    return line.startswith("RUN ") and bool(
        re.search(r"pip install .*-r |install\.sh|apt-get", line)
    )


def test_the_sources_come_after_all_that_is_fetched() -> None:
    found = stages()

    assert any(copies_sources(line) for lines in found.values() for line in lines)
    for name, lines in found.items():
        copied = [at for at, line in enumerate(lines) if copies_sources(line)]
        # What another stage built of them is as much an edit.
        copied += [at for at, line in enumerate(lines) if "--from=wheel" in line]
        fetched = [at for at, line in enumerate(lines) if fetches(line)]
        assert not copied or not fetched or max(fetched) < min(copied), name


@pytest.mark.parametrize("name", ["build-service", "build-worker"])
def test_an_image_installs_the_wheel_without_what_it_needs(name: str) -> None:
    lines = stages()[name]

    assert "RUN pip install --no-cache-dir --no-deps /wheels/*.whl" in lines
    assert not [line for line in lines if re.search(r"pip install .* \.", line)]
    assert not [line for line in lines if copies_sources(line)]


def test_the_wheel_is_made_by_what_is_pinned() -> None:
    (made,) = (line for line in stages()["wheel"] if "pip wheel" in line)
    tools = (DEPLOY / "requirements-build.lock").read_text()
    all_of_them = (ROOT / "requirements.lock").read_text()

    assert "--no-build-isolation" in made
    pins = [part for part in re.split(r"^(?=\w)", tools, flags=re.MULTILINE) if "==" in part]
    assert [part.split("==")[0] for part in pins] == ["setuptools"]
    assert all(part in all_of_them for part in pins)


def test_resolving_the_locks_writes_that_pin_too(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    for name in ("Makefile", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    subprocess.run(["make", "lock", "COMPILE=true"], cwd=tmp_path, check=True, capture_output=True)

    made, kept = [each / "deploy/requirements-build.lock" for each in (tmp_path, ROOT)]
    assert made.read_text() == kept.read_text()


def test_the_worker_is_told_the_commit_of_its_sources_after_all_that_takes_long() -> None:
    lines = stages()["worker"]

    told = lines.index("ENV TAN_CODE_COMMIT=${CODE_COMMIT}")
    assert lines[told - 1] == "ARG CODE_COMMIT="
    assert all(at < told for at, line in enumerate(lines) if line.startswith(("RUN", "COPY")))
    assert "code_commit" in WorkerSettings.model_fields
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    for name in ("ray-head", "ray-worker", "ray-worker-gpu"):
        args = compose["services"][name]["build"]["args"]
        assert args["CODE_COMMIT"] == "${TAN_CODE_COMMIT:-}"


def test_torch_is_installed_without_the_sources() -> None:
    (line,) = (line for line in stages()["build-worker"] if "install.sh" in line and "RUN" in line)
    script = (DEPLOY / "install.sh").read_text()

    assert "EDITABLE=none" in line
    assert re.search(r"^ +none\) ;;$", script, re.MULTILINE)
