"""Takes out of a log what opens something. A driver's own code, or a library, may print anything."""

import re
from collections.abc import Iterable

HIDDEN = "***"
_PATTERNS = (
    # Our API tokens.
    (re.compile(r"\btan_[A-Za-z0-9]+_[A-Za-z0-9_-]{8,}"), f"tan_{HIDDEN}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), rf"\1 {HIDDEN}"),
    # postgresql://name:password@host
    (re.compile(r"(://[^\s/:@]*):[^\s/@]+@"), rf"\1:{HIDDEN}@"),
    (
        re.compile(
            r"(?i)((?:TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|ACCESS_KEY)[\"']?\s*[=:]\s*[\"']?)"
            r"[^\s\"',;)}]{4,}"
        ),
        rf"\1{HIDDEN}",
    ),
)


def redact(text: str, *, known: Iterable[str] = ()) -> str:
    """The text without the known secrets and without whatever looks like one.

    Example:
        >>> redact("Authorization: Bearer c0ffee0123456789 at postgresql://tan:hunter2@db/tan")
        'Authorization: Bearer *** at postgresql://tan:***@db/tan'
    """
    for secret in known:
        text = text.replace(secret, HIDDEN)
    for pattern, shown in _PATTERNS:
        text = pattern.sub(shown, text)
    return text
