"""The end of a log that may be of any length, out of an answer that is read as it comes.

Ray gives a log only whole, as the one text of a JSON document. A driver whose code prints at every step makes gigabytes
of it; held at once, they would end the orchestrator, and at its next look the next one.
"""

import json
import re
from dataclasses import dataclass

KEPT_BYTES = 9 * 2**20
"""Of the answer, three quarters at least: more than a million characters, however they are written."""
_BEFORE = re.compile(rb'\s*\{\s*"logs"\s*:\s*"')
_LINE = re.compile(rb"(?<=[^\\])\\n")
"""A backslash after another character begins an escape."""
_ESCAPE = re.compile(rb"(?<=[^\\])\\(?!u[dD][c-fC-F])")
"""Any but the second half of a character that is written as two."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a driver has said, or the end of it."""

    text: str
    dropped: int = 0
    """Characters before it."""


class LogTail:
    """Takes the answer in parts, and keeps of a long one the end."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._dropped = 0
        self._is_cut = False

    def add(self, part: bytes) -> bool:
        """Whether :meth:`cut` is due, which takes a while."""
        self._raw += part
        return len(self._raw) >= 2 * KEPT_BYTES

    def cut(self) -> None:
        """Let the beginning go, and count what it held.

        Raises:
            ValueError: this is no log.
        """
        if not self._is_cut:
            before = _BEFORE.match(self._raw)
            if before is None:
                raise ValueError("an answer of many megabytes is no log")
            del self._raw[: before.end()]
            self._is_cut = True
        start = len(self._raw) - KEPT_BYTES
        end = start + KEPT_BYTES // 4
        found = _LINE.search(self._raw, start, end) or _ESCAPE.search(self._raw, start, end)
        at = found.start() if found else end  # where no escape begins, none is cut in two
        self._dropped += len(json.loads(b'"' + self._raw[:at] + b'"'))
        del self._raw[:at]

    def said(self) -> Said:
        """What is there, once all has come.

        Raises:
            ValueError: it is no log.
        """
        raw = b'{"logs": "' + self._raw if self._is_cut else bytes(self._raw)
        document = json.loads(raw)
        if not isinstance(document, dict):
            raise ValueError("its answer is no mapping")
        return Said(document.get("logs") or "", self._dropped)
