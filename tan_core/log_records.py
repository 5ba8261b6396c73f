"""How every process writes its log, of the service and of what runs inside Ray: lines for people, or one JSON object per record.

``TAN_LOG_FORMAT`` chooses. A JSON record has ``time`` (UTC), ``level``, ``logger``, ``message``,
whatever of ``request_id``, ``study_id``, ``run_id``, ``attempt``, ``trial`` and ``rank`` is known where it
was written, and ``exception`` where there was one. Passwords in URLs and bearer tokens are blanked in both formats.
"""

import json
import logging
import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO, Literal

LogFormat = Literal["json", "text"]

_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_TEXT_OF_ERROR = re.compile(r"\d{4}-\d\d-\d\d [\d:,]+ ERROR \S+ (?P<message>.+?)( \[\w+=[^\]]*\])?")
_SECRETS = (
    (re.compile(r"(?<=://)([^\s:/@]*):[^\s@/]+@"), r"\1:***@"),
    (re.compile(r"\b(tan_[0-9a-f]+)_[0-9a-f]{64}\b"), r"\1_***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+"), r"\1 ***"),
)
_fields: ContextVar[Mapping[str, object]] = ContextVar("log_fields", default={})  # noqa: B039 - never changed in place
_process: dict[str, object] = {}
"""Said of every record of this process, whichever thread writes it."""


@contextmanager
def bind(**fields: object) -> Generator[None]:
    """Say these of every record that is written inside, in this task and those that it starts.

    A function is called whenever a record is written; what is None is left out.
    """
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


def bound() -> Mapping[str, object]:
    """What is said of a record that is written here."""
    said = {**_process, **_fields.get()}
    answers = {name: value() if callable(value) else value for name, value in said.items()}
    return {name: value for name, value in answers.items() if value is not None}


class JsonFormatter(logging.Formatter):
    """One object per record, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
            **bound(),
        }
        if record.exc_info:
            fields["exception"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(fields, default=str)


class TextFormatter(logging.Formatter):
    """A line for people, and a traceback below it; what is known of its origin comes last."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """The line without its traceback."""
        known = " ".join(f"{name}={value}" for name, value in bound().items())
        return super().formatMessage(record) + (f" [{known}]" if known else "")

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        return without_secrets(super().format(record))


def configure(
    log_format: LogFormat,
    *,
    level: int = logging.INFO,
    stream: IO[str] | None = None,
    **fields: object,
) -> None:
    """Write every record of this process to ``stream``, by default standard error, with these fields."""
    _process.clear()
    _process.update(fields)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)


def error_message(line: str) -> str | None:
    """What a record of an error says, from its line in either format; None where it is no such record.

    Example:
        >>> error_message("2026-11-25 14:14:48,232 ERROR worker.driver no answer [run_id=s-1 attempt=2]")
        'no answer'
    """
    if written := _TEXT_OF_ERROR.fullmatch(line):
        return written["message"]
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # a driver may print anything
        return None
    is_error = isinstance(record, dict) and record.get("level") == "error"
    return str(record.get("message")) if is_error else None


def without_secrets(text: str) -> str:
    """The text with passwords in URLs and tokens in headers blanked."""
    for pattern, blank in _SECRETS:
        text = pattern.sub(blank, text)
    return text
