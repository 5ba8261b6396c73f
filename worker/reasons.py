"""What a user is told of a failure: one line of it, and what to do where that is known."""

import re

from tan_core.errors import DatasetError
from tan_core.wire import clean_reason

_LONGEST = 500

# Ray's own words end in a page on its memory monitor, torch's in a setting of its allocator.
_OUT_OF_MEMORY = (
    (
        re.compile(
            r"due to the node running low on memory.*?was (\S+) used / (\S+) limit", re.DOTALL
        ),
        r"the memory of its node was full (\1 of \2), so Ray ended it",
    ),
    (
        re.compile(r"(?:CUDA|HIP) out of memory\. Tried to allocate (\d\S* \w+)"),
        r"the GPU's memory is full: there was no room for \1 more",
    ),
    (
        re.compile(r"can't allocate memory: you tried to allocate (\d+) bytes"),
        r"the memory of its node is full: there was no room for \1 bytes more",
    ),
    (
        re.compile(r"MemoryError: Unable to allocate (\d\S* \w+)"),
        r"the memory of its node is full: there was no room for \1 more",
    ),
)
_LESS_MEMORY = (
    "; give it more, or a smaller train.microbatch_size (256 by default), which changes no update"
)


class UncoveredError(RuntimeError):
    """Steps were taken that a reservation has no room for: no further attempt can go on from them."""


def reason_of(error: BaseException | str) -> str:
    """The one line of a failure that a user is shown.

    Args:
        error: or the text of its traceback.

    Example:
        >>> reason_of(ValueError("the file ends early"))
        'ValueError: the file ends early'
    """
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    for pattern, found in _OUT_OF_MEMORY:
        if match := pattern.search(text):
            return match.expand(found) + _LESS_MEMORY
    # Of any text: a report that holds what cannot be stored could not even be sent.
    lines = [line for each in text.splitlines() if (line := clean_reason(each).strip())]
    return lines[-1][:_LONGEST] if lines else type(error).__name__


def is_of_other_data(said: str) -> bool:
    """Whether the reason of a failure says that the data are not those that were registered.

    They will not be at the next attempt either. Data that are missing may be back by then.
    """
    return DatasetError.__name__ in said and "is not the one that was registered" in said
