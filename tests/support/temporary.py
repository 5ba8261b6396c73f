"""Where whole services that tests start keep what they leave in the temporary folder; it goes with the tests."""

import tempfile
from pathlib import Path

_FOLDER = tempfile.TemporaryDirectory(prefix="t-")
Path(_FOLDER.name).chmod(0o711)  # started by root, PostgreSQL runs as another user

ENVIRONMENT = {"TMPDIR": _FOLDER.name}
