"""What maintenance refuses."""

from tan_core.errors import TanError


class MaintenanceError(TanError, RuntimeError):
    """What was asked cannot be done to this database; the message says why and what to do."""
