"""What others wrote is what they published, and says under which licence."""

import hashlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
FOLDERS = [ROOT / "service/dashboard/static/vendor", ROOT / "tests/browser/vendor"]


@pytest.mark.parametrize("folder", FOLDERS, ids=["dashboard", "tests"])
class TestVendored:
    def test_every_file_is_the_one_that_was_published(self, folder: Path) -> None:
        named = {
            name: digest
            for package in json.loads((folder / "VENDOR.json").read_text())
            for name, digest in package["files"].items()
        }
        held = {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*")
            if path.is_file() and path.name != "VENDOR.json"
        }

        assert held == named

    def test_every_package_has_its_licence_beside_it(self, folder: Path) -> None:
        for package in json.loads((folder / "VENDOR.json").read_text()):
            assert package["name"]
            assert package["version"]
            assert package["licence"]
            assert package["licence_file"] in package["files"]
