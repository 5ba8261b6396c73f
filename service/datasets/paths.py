"""Which files of this machine a registration may name: a dataset is read by whoever runs a study."""

import os
from collections.abc import Iterator
from pathlib import Path

from service.errors import InvalidInputError
from service.settings import Settings
from tan_core.errors import DatasetError
from tan_core.spec.addresses import check_allowed, is_address

SETTING = "TAN_ALLOWED_DATA_DIRS"


def check(path: str, settings: Settings) -> None:
    """Refuse a path that leads, links followed, to a file outside the folders and addresses allowed.

    What lies elsewhere is refused alike, whether it exists or not.

    Raises:
        InvalidInputError: the path is not absolute, is an address that is not allowed, or leads
            elsewhere; or other machines are served and the operator allows no folder.
    """
    if is_address(path):
        try:
            check_allowed(path, settings.allowed_data_urls)
        except DatasetError as error:
            raise InvalidInputError.at("path", str(error), path) from error
        return
    if not Path(path).is_absolute():
        raise _refused(
            "an absolute path is needed: the service and its workers run in other folders", path
        )
    allowed = settings.allowed_data_dirs
    if not allowed:
        if not settings.serves_others:
            return
        raise _refused(
            f"other machines are served here, so the operator must name the folders of datasets "
            f"first: {SETTING}",
            path,
        )
    outside = next((each for each in _ends(path) if not _is_below(each, allowed)), None)
    if outside is not None:
        listed = ", ".join(str(folder) for folder in allowed)
        raise _refused(f"does not lie below a folder allowed by {SETTING}: {listed}", path)


def _ends(path: str) -> Iterator[Path]:
    """Where the path leads, and where every link below it leads, each folder once."""
    waiting, seen = [Path(path)], set[Path]()
    while waiting:
        end = _resolved(waiting.pop(), path)
        yield end
        if end in seen:
            continue
        seen.add(end)
        for folder, folders, files in os.walk(end):
            below = (Path(folder, name) for name in (*folders, *files))
            waiting += [each for each in below if each.is_symlink()]


def _resolved(path: Path, given: str) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # links in a circle, names that are too long
        raise _refused(f"cannot be found: {error}", given) from error


def _is_below(path: Path, folders: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _refused(message: str, path: str) -> InvalidInputError:
    return InvalidInputError.at("path", message, path)
