"""Names and addresses of this machine."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine, and nothing else."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
