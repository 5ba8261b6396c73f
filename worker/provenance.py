"""Which commit of this code executes a run."""

import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_SECONDS = 10.0
"""For git, on a file system of the network."""


def commit(root: Path = _ROOT) -> str | None:
    """Of the checkout that this code is imported from, with ``-dirty`` where tracked files differ from it.

    None where it is no checkout, as in an image, or git does not say.
    """
    repository = root / ".git"
    if not repository.exists():  # git would take one further up, which may be of other code
        return None
    try:
        asked = subprocess.run(
            [
                "git",
                *("-c", "safe.directory=*"),  # the checkout may be somebody else's
                "--no-optional-locks",
                *("--git-dir", repository, "--work-tree", root),
                *("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"),
            ],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip() or None
