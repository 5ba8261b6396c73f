"""What an installed package must hold beside its modules: an image is made from one."""

import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[3]
DATA = ("*.html", "*.css", "*.js", "*.svg", "*.json", "*.sql", "LICENSE")


def test_every_file_that_the_service_reads_is_packaged() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    globs = settings["tool"]["setuptools"]["package-data"]["service"]
    packaged = set(chain.from_iterable((ROOT / "service").glob(each) for each in globs))
    # A pattern that ends in ** takes folders here, and what is in them when it is packaged.
    packaged |= set(chain.from_iterable(each.rglob("*") for each in packaged if each.is_dir()))

    there = set(chain.from_iterable((ROOT / "service").rglob(each) for each in DATA))

    assert there
    assert there - packaged == set()
