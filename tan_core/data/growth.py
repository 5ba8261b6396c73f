"""How far a file may grow as it is read: a small one can claim to hold any number of records."""

from tan_core.errors import DatasetError

MAX_BYTES = 2**36
"""Of all records together once unpacked."""
FREE_BYTES = 2**30
"""Up to here a file may grow as it will: no machine is brought down by so much."""
MAX_FACTOR = 100
"""Above that, of the file's own size. Deflate reaches 1,032 on zeros; data does not."""


def check_growth(num_bytes: int, *, stored: int, where: object) -> None:
    """Refuse what unpacks to more than is reasonable.

    Args:
        num_bytes: of the records once unpacked.
        stored: bytes of the file that holds them.
        where: the file, for the message.

    Raises:
        DatasetError: it is more than :data:`MAX_BYTES`, or more than :data:`FREE_BYTES` and
            :data:`MAX_FACTOR` times the file.
    """
    if num_bytes > MAX_BYTES or num_bytes > max(FREE_BYTES, MAX_FACTOR * stored):
        raise DatasetError(
            f"{where} unpacks to {num_bytes:,} bytes, {num_bytes // max(stored, 1):,} times its size; "
            f"accepted: {MAX_FACTOR} times above {FREE_BYTES:,} bytes, at most {MAX_BYTES:,}",
            field="path",
        )
