"""Where datasets may be read from, and where this machine keeps what it makes of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tan_core.data.store import Store
from tan_core.errors import DatasetError


@dataclass(frozen=True, slots=True)
class Storage:
    """What an operator grants."""

    store: Store | None = None
    """On this node's own disk. None: nothing is fetched, and every split is read into memory."""
    allowed_urls: tuple[str, ...] = ()
    """Datasets may lie at these addresses and below them."""
    in_memory_bytes: int = 2**31
    """Of a split of images, decoded. What is larger is read by index, and decoded at each reading."""

    def needed_store(self) -> Store:
        """The store.

        Raises:
            DatasetError: there is none.
        """
        if self.store is None:
            raise DatasetError(
                "a folder is needed on this machine's own disk where the dataset is kept: "
                "TAN_NODE_CACHE_DIR",
                field="cache_dir",
            )
        return self.store


LOCAL: Final = Storage()
"""Files of this machine, in memory."""


def storage_of(
    folder: Path | None, gigabytes: float | None, allowed_urls: tuple[str, ...]
) -> Storage:
    """As settings name it; the folder may begin with ``~``."""
    if folder is None:
        return Storage(allowed_urls=allowed_urls)
    max_bytes = None if gigabytes is None else int(gigabytes * 1e9)
    return Storage(store=Store(folder.expanduser(), max_bytes), allowed_urls=allowed_urls)
