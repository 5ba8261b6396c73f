"""``python -m service.local``: what ``tan-cli serve`` runs. Prints one line ``ready URL [TOKEN]`` on stdout."""

import contextlib
import logging
import sys

from service.local.supervisor import ServiceError, Supervisor
from service.settings import SettingsError, read_settings, unread_settings
from tan_core import log_records
from tan_core.errors import TanError


def main() -> int:
    """Run until SIGINT or SIGTERM."""
    try:
        settings = read_settings()
    except SettingsError as error:
        _say(str(error))
        return 1
    log_records.configure(settings.log_format, level=logging.WARNING)
    for told in unread_settings():
        _say(told)
    if settings.weak_token and settings.serves_others:
        _say(settings.weak_token)
        return 1
    for told in filter(None, [settings.weak_token, settings.open_home]):
        _say(told)
    supervisor = Supervisor(settings, say=_say)
    try:
        supervisor.run(ready=_ready)
    except (ServiceError, TanError) as error:
        _say(str(error))
        return 1
    return 0


def _say(text: str) -> None:
    # Whoever read it may be gone, as a terminal that was closed: what has to be stopped is stopped all the same.
    with contextlib.suppress(OSError):
        sys.stderr.write(f"tan-cli serve: {text}\n")
        sys.stderr.flush()


def _ready(url: str, first_token: str | None) -> None:
    sys.stdout.write(f"ready {url} {first_token or ''}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
