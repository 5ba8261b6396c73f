"""Stylesheets, scripts and icon: read once, named by what they hold, so that browsers may keep them.

What others wrote lies below ``static/vendor``; ``VENDOR.json`` there says what it is.
"""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Asset:
    """One static file."""

    name: str
    """Its path below the folder."""
    media_type: str
    content: bytes

    @cached_property
    def version(self) -> str:
        """Changes with the content, and with nothing else."""
        return hashlib.sha256(self.content).hexdigest()[:12]

    @cached_property
    def compressed(self) -> bytes:
        """As gzip."""
        return gzip.compress(self.content, mtime=0)


@cache
def assets() -> dict[str, Asset]:
    """Every static file by name."""
    found = (path for path in sorted(FOLDER.rglob("*")) if path.suffix in MEDIA_TYPES)
    made = (
        Asset(path.relative_to(FOLDER).as_posix(), MEDIA_TYPES[path.suffix], path.read_bytes())
        for path in found
    )
    return {asset.name: asset for asset in made}
