"""A driver's output as people read it."""

import re
import unicodedata

from tan_core.log_records import error_message

LAST_LINES = 20
MAX_LAST_CHARACTERS = 4000
MAX_RAYS_CHARACTERS = 300
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"(\w+\.)*\w*(Error|Exception)(\(\w+\))?: \S")
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


def last_lines(text: str) -> str:
    """The end of a log, without empty lines and without what Ray itself says in it."""
    said = [line for line in text.splitlines() if line.strip() and not _RAYS_OWN_LINE.search(line)]
    return "\n".join(said[-LAST_LINES:])[-MAX_LAST_CHARACTERS:]


def last_words(text: str) -> str | None:
    r"""The error that a log ends with: the message of a record, or the last line of a traceback.

    None where no error stands for itself. KeyboardInterrupt does not: it says that somebody stopped the
    program, and not why.

    Example:
        >>> last_words("step 7\nTraceback (most recent call last):\n  File ...\nValueError: no such column")
        'ValueError: no such column'
    """
    ending = last_lines(text).rpartition(_TRACEBACK)[-1].splitlines()
    if ending and (message := error_message(ending[-1])):
        return message
    return next((line for line in reversed(ending) if _EXCEPTION.match(line)), None)


def rays_words(message: str) -> str | None:
    r"""The line that counts of what Ray says of a job that it ended, or could not begin: it writes pages.

    Example:
        >>> rays_words("Unexpected error occurred: low on memory.\nObject store memory usage: [...")
        'Unexpected error occurred: low on memory.'
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        return None
    return lines[-1 if lines[0] == _TRACEBACK else 0][:MAX_RAYS_CHARACTERS]
