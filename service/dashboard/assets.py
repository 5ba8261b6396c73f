"""Stylesheet, script and icon: read once, named by what they hold, so that browsers may keep them."""

import hashlib
from dataclasses import dataclass
from functools import cache
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
    media_type: str
    content: bytes

    @property
    def version(self) -> str:
        """Changes with the content, and with nothing else."""
        return hashlib.sha256(self.content).hexdigest()[:12]


@cache
def assets() -> dict[str, Asset]:
    """Every static file by name."""
    return {
        path.name: Asset(path.name, MEDIA_TYPES[path.suffix], path.read_bytes())
        for path in sorted(FOLDER.iterdir())
        if path.suffix in MEDIA_TYPES
    }
