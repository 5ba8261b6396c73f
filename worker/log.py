"""The log of a driver, a trial worker or a rank: written as the service writes its own."""

import logging
from collections.abc import Callable

from tan_core import log_records
from tan_core.log_records import LogFormat


def write_log(
    log_format: LogFormat,
    *,
    run_id: str,
    attempt: int,
    trial: Callable[[], int] | None = None,
    rank: int | None = None,
) -> None:
    """Write every record of this process to standard error, with the attempt that it works for.

    Of libraries only warnings: a line for every request to the control plane would bury the rest.
    """
    log_records.configure(
        log_format, level=logging.WARNING, run_id=run_id, attempt=attempt, trial=trial, rank=rank
    )
    logging.getLogger("worker").setLevel(logging.INFO)
