"""A driver's output as people read it."""

import re
import unicodedata

LAST_LINES = 20
MAX_LAST_CHARACTERS = 4000
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RAYS_OWN_LINE = re.compile(r"^Running entrypoint for job |\b(INFO|WARNING) \w+\.py:\d+ -- ")


def clean(text: str) -> str:
    r"""The text without colours and without what a database cannot hold.

    Example:
        >>> clean("\x1b[31mred\x1b[0m\x00\n")
        'red\n'
    """
    plain = _STYLE.sub("", text)
    if plain.isprintable():
        return plain
    return "".join(
        character
        for character in plain
        if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs")
    )


def last_lines(text: str, lines: int = LAST_LINES) -> str:
    """The end of a log, without empty lines and without what Ray itself says in it."""
    said = [line for line in text.splitlines() if line.strip() and not _RAYS_OWN_LINE.search(line)]
    return "\n".join(said[-lines:])[-MAX_LAST_CHARACTERS:]
